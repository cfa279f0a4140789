"""Several watchers of a run behind one."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.estimates.efficiency import Scaling
from raybench.plan.notes import RepeatReason, Stage
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest
from raybench.run.session import Watcher


class Watchers:
    """The ``Watcher`` that tells all of its own, in their order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def stage(self, stage: Stage, number: int, why: Sequence[RepeatReason] = ()) -> None:
        """What the study is at."""
        for each in self._watchers:
            each.stage(stage, number, why)

    def trial(
        self, request: StudyRequest, *, done: int, total: int | None, left_s: float | None, beside: int = 0
    ) -> None:
        """A trial begins."""
        for each in self._watchers:
            each.trial(request, done=done, total=total, left_s=left_s, beside=beside)

    def progress(self, progress: Progress) -> None:
        """The trial's phase."""
        for each in self._watchers:
            each.progress(progress)

    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None:
        """A trial has ended."""
        for each in self._watchers:
            each.trial_done(record, scaling)

    def group(self, num_workers: int, seconds: float | None) -> None:
        """Its worker group starts, or has started."""
        for each in self._watchers:
            each.group(num_workers, seconds)

    def best(self, record: TrialRecord, scaling: Scaling) -> None:
        """The best so far."""
        for each in self._watchers:
            each.best(record, scaling)
