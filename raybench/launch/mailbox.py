"""The actor through which the driver and rank 0 of a worker group talk."""

from __future__ import annotations

import asyncio
from typing import Any

import ray

from raybench.records.messages import Member, Outcome, Progress

# what the driver hears: ("hello", members), ("progress", Progress) or ("outcome", Outcome)
Event = tuple[str, Any]


@ray.remote(num_cpus=0, max_restarts=0)
class Mailbox:
    """One for each worker group: a take left behind by a dead worker would swallow the next trial."""

    def __init__(self) -> None:
        self._tasks: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._workers: dict[int, Any] = {}

    async def post(self, task: dict[str, Any] | None) -> None:
        """The next trial for the group; None: no more."""
        await self._tasks.put(task)

    async def take(self) -> dict[str, Any] | None:
        """The next trial; waits for it."""
        return await self._tasks.get()

    async def register(self, rank: int, worker: Any) -> None:
        """Keep the handle of a worker, for the driver to end it by."""
        self._workers[rank] = worker

    async def workers(self) -> dict[int, Any]:
        """Handles of the workers, by rank."""
        return self._workers

    async def hello(self, members: tuple[Member, ...]) -> None:
        """All workers are ready."""
        await self._events.put(("hello", members))

    async def progress(self, progress: Progress) -> None:
        """What the trial is doing."""
        await self._events.put(("progress", progress))

    async def reply(self, outcome: Outcome) -> None:
        """How the trial ended."""
        await self._events.put(("outcome", outcome))

    async def event(self) -> Event:
        """The next event; waits for it."""
        return await self._events.get()
