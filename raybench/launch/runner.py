"""The protocol between orchestration and measurement."""

from __future__ import annotations

from typing import Protocol

from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest


class TrialRunner(Protocol):
    """Runs trials, one after the other: two at once would share links, and disturb each other's figures."""

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """Processes for the next trial: a group of ``world_size`` workers with these variables.

        The one that runs already, where it is just this one, unless new processes are asked for (``anew``). A
        runner whose trials have processes of their own makes ready for them, and names the next one's group.
        """
        ...

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """Measure a trial. Failures of the trial are outcomes, not exceptions.

        Raises ``Interrupted``, ``GroupLostError`` where its processes died before it began (a group that can
        be started again).
        """
        ...

    def close(self) -> None:
        """End every process that the runner started. May be called twice."""
        ...

    def abandon(self) -> None:
        """End them at once, in the middle of whatever they do: the command is being interrupted."""
        ...
