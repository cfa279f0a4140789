"""The actor through which the driver and the workers of a group talk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raybench.records.messages import Begun, Kept, Lost, Message, Outcome, Progress, Task
from raybench.records.results import StepsResult, TrainingResult
from raybench.worker.failures import first_cause


@ray.remote(num_cpus=0, max_restarts=0)
class Mailbox:
    """One for each worker group: a take left behind by a dead worker would swallow the next trial."""

    def __init__(self) -> None:
        self._tasks: asyncio.Queue[Task | None] = asyncio.Queue()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._workers: dict[int, Any] = {}
        self._over: dict[int, asyncio.Event] = {}

    async def trial(self, task: Task) -> None:
        """The next trial for the group; returns when its outcome is told: in Ray's dashboard it is a task."""
        over = self._over[task.number] = asyncio.Event()
        await self._tasks.put(task)
        await over.wait()
        del self._over[task.number]

    async def end(self) -> None:
        """No more trials."""
        await self._tasks.put(None)

    async def take(self) -> Task | None:
        """The next trial, None: no more; waits for it."""
        return await self._tasks.get()

    async def register(self, rank: int, worker: Any) -> None:
        """Keep the handle of a worker, for the driver to end it by."""
        self._workers[rank] = worker

    async def workers(self) -> dict[int, Any]:
        """Handles of the workers, by rank."""
        return self._workers

    async def tell(self, message: Message) -> None:
        """A worker's message to the driver."""
        await self._messages.put(message)
        if isinstance(message.content, Outcome | Lost) and message.task in self._over:
            self._over[message.task].set()

    async def message(self) -> Message:
        """The next message to the driver; waits for it."""
        return await self._messages.get()


def new_mailbox(name: str) -> Any:
    """On this process's node: one that ends elsewhere must not take the driver's word along.

    ``name`` is what Ray's dashboard calls it; no other mailbox of this job has it.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return Mailbox.options(name=name, scheduling_strategy=here).remote()  # type: ignore[attr-defined]


class PostedTrial:
    """Messages about one task of a worker group; those about any other are dropped.

    Ranks whose group cannot be saved each tell how they failed, and end. What such a rank says late must not
    end the next trial.
    """

    def __init__(self, number: int, on_progress: Callable[[Progress], None]) -> None:
        self._number, self._on_progress = number, on_progress
        self._kept: Kept | None = None
        self.failures: list[Outcome] = []  # of ranks that said that they end
        self.begun = False  # every worker knows the trial
        self._ended: Outcome | None = None

    def hear(self, message: Message) -> None:
        """Take a message in."""
        content = message.content
        if message.task != self._number:
            return
        if isinstance(content, Begun):
            self.begun = True
        elif isinstance(content, Progress):
            self._on_progress(content)
        elif isinstance(content, Kept):
            self._keep(content)
        elif isinstance(content, Outcome):
            if content.ends_group:
                self.failures.append(content)
            else:
                self._ended = content

    def outcome(self) -> Outcome | None:
        """How the trial ended; None while that is open."""
        if self._ended is not None:
            return self._with_what_was_kept(self._ended)
        if self.failures:
            return self._with_what_was_kept(first_cause(self.failures))
        return None

    def lost(self, failure: Outcome) -> Outcome:
        """How the trial ended whose group was lost; ``failure`` is what the driver knows of that."""
        return self._with_what_was_kept(first_cause([*self.failures, failure]))

    def _keep(self, kept: Kept) -> None:
        if self._kept is not None:  # step times come with the first one
            step_times = self._kept.outcome.step_times
            kept = replace(kept, outcome=replace(kept.outcome, step_times=step_times))
        self._kept = kept

    def _with_what_was_kept(self, outcome: Outcome) -> Outcome:
        """A failure after the rounds or epochs costs what was still to come, not them."""
        kept = self._kept
        if outcome.state == "complete" or kept is None:
            return outcome
        result = kept.outcome.result
        assert isinstance(result, StepsResult | TrainingResult)
        reasons = dict.fromkeys(kept.open, f"{outcome.state} afterwards: {outcome.reason}")
        result = result.model_copy(update={"missing": {**result.missing, **reasons}})
        return replace(
            kept.outcome, result=result, wall_time_s=outcome.wall_time_s, ends_group=outcome.ends_group
        )
