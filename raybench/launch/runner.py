"""The protocol between orchestration and measurement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from raybench.machine.resources import Resources
from raybench.records.messages import GroupInfo, Outcome, Progress
from raybench.records.requests import TrialRequest


class TrialRunner(Protocol):
    """Runs trials one after the other. The fake is ``raybench.testing.FakeRunner``."""

    def resources(self) -> Resources:
        """What there is, before any worker starts."""
        ...

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """A group of ``world_size`` workers with these variables.

        The one that runs already, where it is just this one, unless new processes are asked for (``anew``).
        """
        ...

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        """Measure one trial; failures of the trial are outcomes, not exceptions.

        Raises ``Interrupted`` and ``GroupLostError`` (a group that cannot be started again).
        """
        ...

    def close(self) -> None:
        """End every process that the runner started. May be called twice."""
        ...

    def abandon(self) -> None:
        """End them at once, in the middle of whatever they do: the command is being interrupted."""
        ...
