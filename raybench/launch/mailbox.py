"""The actor through which the driver and the workers of a group talk."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raybench.records.messages import Message, Task


@ray.remote(num_cpus=0, max_restarts=0)
class Mailbox:
    """One for each worker group: a take left behind by a dead worker would swallow the next trial."""

    def __init__(self) -> None:
        self._tasks: asyncio.Queue[Task | None] = asyncio.Queue()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._left: dict[int, Task] = {}
        self._workers: dict[int, Any] = {}

    async def post(self, task: Task | None) -> None:
        """The next trial for the group; None: no more."""
        await self._tasks.put(task)

    async def take(self) -> Task | None:
        """The next trial; waits for it."""
        return await self._tasks.get()

    async def leave(self, task: Task) -> None:
        """A trial for whoever is told its number."""
        self._left[task.number] = task

    async def pick_up(self, number: int) -> Task:
        """The trial that was left with this number."""
        return self._left.pop(number)

    async def register(self, rank: int, worker: Any) -> None:
        """Keep the handle of a worker, for the driver to end it by."""
        self._workers[rank] = worker

    async def workers(self) -> dict[int, Any]:
        """Handles of the workers, by rank."""
        return self._workers

    async def tell(self, message: Message) -> None:
        """A worker's message to the driver."""
        await self._messages.put(message)

    async def message(self) -> Message:
        """The next message to the driver; waits for it."""
        return await self._messages.get()


def new_mailbox() -> Any:
    """On this process's node: one that ends elsewhere must not take the driver's word along."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return Mailbox.options(scheduling_strategy=here).remote()  # type: ignore[attr-defined]
