"""Watchers of a running study: several as one, and the gauges for Ray's dashboard, Prometheus and Grafana."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raybench.analysis.labels import label
from raybench.analysis.stats.efficiency import Scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.waterfall import waterfall
from raybench.launch import metrics
from raybench.launch.metrics import Metric, RayMetrics
from raybench.plan.notes import RepeatReason, Stage
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest, TrialRequest
from raybench.run.session import Watcher
from raybench.spec.study import Study


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


class StudyGauges:
    """The ``Watcher`` of a run that sets raybench's gauges, between trials only."""

    def __init__(self, study: Study, sent: RayMetrics) -> None:
        self._study, self._sent = study, sent
        self._ended: Counter[str] = Counter()
        self._done = 0

    def stage(self, stage: Stage, number: int, why: Sequence[RepeatReason] = ()) -> None:
        """Nothing is known yet of how much there is to do."""
        self._progress(0, None, None)

    def trial(
        self, request: TrialRequest, *, done: int, total: int | None, left_s: float | None, beside: int = 0
    ) -> None:
        """How far the stage is."""
        self._progress(done, total, left_s)

    def progress(self, progress: Progress) -> None:
        """Nothing: the trial runs."""

    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None:
        """How the trial ended, and what came out."""
        self._ended[record.state] += 1
        self._done += 1
        self._sent.set(metrics.TRIALS, self._ended[record.state], study=self._study.name, state=record.state)
        self._sent.set(metrics.STAGE_DONE, self._done, study=self._study.name)
        if scaling is None:
            return
        config = record.config
        for metric, value in trial_values(record, scaling).items():
            self._sent.set(
                metric,
                value,
                study=self._study.name,
                world_size=str(config.world_size),
                strategy=config.setting.strategy,
                setting=label(self._study, config),
            )

    def group(self, num_workers: int, seconds: float | None) -> None:
        """Nothing: no trial has begun."""

    def best(self, record: TrialRecord, scaling: Scaling) -> None:
        """Nothing: it is among the trials."""

    def _progress(self, done: int, total: int | None, left_s: float | None) -> None:
        self._done = done
        study = self._study.name
        self._sent.set(metrics.STAGE_DONE, done, study=study)
        self._sent.set(metrics.STAGE_PLANNED, total, study=study)
        self._sent.set(metrics.LEFT, left_s, study=study)


def trial_values(record: TrialRecord, scaling: Scaling) -> dict[Metric, float]:
    """What a complete trial of steps has of the gauges.

    A search's trials have no transfers apart from compute, and a confirmation no device alone.
    """
    parts = waterfall(record)
    # in a confirmation's rounds there was no base: what others measured is theirs
    without_base = record.request.role in ("confirmation", "verification")
    efficiency = None if without_base else scaling.efficiency
    found: dict[Metric, Estimate | None] = {
        metrics.STEP_TIME: scaling.step_time_s,
        metrics.THROUGHPUT: scaling.throughput_samples_per_s,
        metrics.EFFICIENCY: efficiency,
        metrics.EXPOSED: parts.parts.exposed_communication if parts else None,
        metrics.BUS_BANDWIDTH: parts.bus_bandwidth_bytes_per_s if parts else None,
    }
    values = {metric: estimate.value for metric, estimate in found.items() if estimate is not None}
    if efficiency is not None:
        values |= {metrics.EFFICIENCY_LOW: efficiency.low, metrics.EFFICIENCY_HIGH: efficiency.high}
    return values
