"""The protocol between orchestration and measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raybench.errors import GroupLostError
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest


@dataclass(eq=False)
class Submitted:
    """A trial that a runner was given, and how it ended once that is known."""

    request: TrialRequest
    on_progress: OnProgress
    ended: Outcome | GroupLostError | None = None
    # that it took beside its own time, for processes of its own; 0 where a running group served it
    processes_s: float = 0.0

    def outcome(self) -> Outcome:
        """How it ended, once it has. Raises ``GroupLostError`` where its processes died before it began."""
        assert self.ended is not None
        if isinstance(self.ended, GroupLostError):
            raise self.ended
        return self.ended


class TrialRunner(Protocol):
    """Runs trials, ``capacity`` of them at once."""

    def capacity(self, kind: str, world_size: int, *, spread: bool = False) -> int:
        """How many trials of a kind, size and placement may be under way at once, at least 1."""
        ...

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """Processes for the next trial: a group of ``world_size`` workers with these variables.

        The one that runs already, where it is just this one, unless new processes are asked for (``anew``). A
        runner whose trials have processes of their own makes ready for them, and names the next one's group.
        """
        ...

    def submit(self, request: TrialRequest, on_progress: OnProgress) -> Submitted:
        """Begin a trial; ``wait`` says when it has ended. Failures of the trial are outcomes, not exceptions.

        Raises ``GroupLostError`` (a group that can be started again).
        """
        ...

    def wait(self, submitted: Sequence[Submitted]) -> Submitted:
        """Wait until one of these trials has ended, and return it. Raises ``Interrupted``."""
        ...

    def close(self) -> None:
        """End every process that the runner started. May be called twice."""
        ...

    def abandon(self) -> None:
        """End them at once, in the middle of whatever they do: the command is being interrupted."""
        ...
