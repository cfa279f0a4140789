"""What a study shows while it runs: the session's events in words for the display, and as gauges."""

from __future__ import annotations

from collections import Counter

from raybench.analysis import choice
from raybench.analysis.labels import label, short_trial_words, trial_words
from raybench.analysis.largest_batch import Probe, probe_of
from raybench.analysis.scaling import Scaling, waterfall
from raybench.analysis.simulate.what_if import bucket_choice
from raybench.analysis.stats.statistics import Estimate
from raybench.commands.display import Display
from raybench.commands.notes import stage_words
from raybench.launch import metrics
from raybench.launch.metrics import Metric, RayMetrics
from raybench.plan.notes import Stage
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest
from raybench.report.format import clock, factor, percent
from raybench.report.sections.overlap import choice_words
from raybench.spec.plural import plural
from raybench.spec.study import Study

GIBIBYTE = 2**30


class StudyProgress:
    """The ``Watcher`` of a run: puts its events into words, shows them, and sets the gauges."""

    def __init__(self, study: Study, display: Display, gauges: StudyGauges | None = None) -> None:
        self._study, self._display, self._gauges = study, display, gauges
        self._said_what_if = False
        self._training: str | None = None  # the training under way whose epochs have no line above them yet
        self._has_epochs = False  # lines of the training under way stand there
        self._so_far = ""  # of the training under way

    def stage(self, stage: Stage, number: int) -> None:
        """What the study is at."""
        self._display.stage(stage_words(self._study, stage, number))
        if self._gauges:
            self._gauges.progress()

    def trial(
        self, request: StudyRequest, *, done: int, total: int | None, left_s: float | None, beside: int = 0
    ) -> None:
        """A trial begins, beside so many others."""
        words = trial_words(self._study, request)
        self._training = words if request.kind == "training" and not beside else None
        self._has_epochs, self._so_far = False, ""
        self._display.trial(words, done=done, total=total, left_s=left_s)
        if self._gauges:
            self._gauges.progress(done, total, left_s)

    def group(self, num_workers: int, seconds: float | None) -> None:
        """Workers start, or have started."""
        if seconds is None:
            self._display.progress(Progress(f"starting {plural(num_workers, 'worker')}"))
            return
        if seconds:
            self._display.line(f"  worker group of {num_workers} started in {seconds:.1f} s")
        self._display.progress(Progress("waiting"))

    def progress(self, progress: Progress) -> None:
        """The trial's phase; an epoch that is done is a line that stays, below its trial's."""
        if progress.phase == "epoch":
            self._epoch(progress)
        elif progress.phase == "train":
            self._display.progress(Progress(progress.detail, self._so_far))
        else:
            self._display.progress(progress)

    def _epoch(self, progress: Progress) -> None:
        told = [progress.detail]
        if (seconds := progress.fields.get("epoch_s")) is not None:
            told.append(f"{seconds:.3g} s")
        if left_s := progress.fields.get("left_s", 0.0):
            told.append(f"about {clock(left_s)} left")
        if self._training is not None:
            if not self._has_epochs:
                self._display.line(f"  {self._training}:")
            self._has_epochs, self._so_far = True, f"after {', '.join(told)}"
        self._display.line(f"    {', '.join(told)}")

    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None:
        """A trial has ended."""
        if self._gauges:
            self._gauges.trial_done(record, scaling)
        request = record.study_request
        if self._has_epochs:
            self._display.line(f"    {_trained_words(record)}")
            self._has_epochs = False
            return
        names = trial_words(self._study, request), short_trial_words(self._study, request)
        self._display.trial_done(names, outcome_words(record, scaling))
        if not self._said_what_if and not self._study.knobs.has_max and scaling is not None:
            self._say_what_if(record)

    def _say_what_if(self, record: TrialRecord) -> None:
        """Once, by the trial by which the report says it, before other buckets are measured there."""
        size = record.config.world_size
        at_target = size == choice.target_world_size(self._study, (size,))
        if "bucket_cap_mb" not in self._study.knobs.explored() or not at_target:
            return
        chosen = bucket_choice(self._study, record)
        if chosen is not None:
            self._said_what_if = True
            self._display.line(f"  {choice_words(chosen)}")

    def best(self, record: TrialRecord, scaling: Scaling) -> None:
        """The best so far."""
        self._display.best(f"{trial_words(self._study, record.study_request)}: {rate_words(scaling)}")


def outcome_words(record: TrialRecord, scaling: Scaling | None) -> str:
    """What came out of a trial; ``scaling`` is that of a complete trial of steps.

    The interval beside a speed-up is its efficiency's: one is the other times a whole number.
    """
    if record.state != "complete":
        return f"{record.state}: {record.reason}"
    if record.request.kind == "probe":
        return _probe_words(probe_of(record))
    if record.training is not None:
        last = record.training.epochs[-1]
        done = f"{last.words(last.epoch)}, {last.train_s:.3g} s for the last epoch"
        pruned = record.training.stopped_by
        return done if pruned is None else f"{done}; stopped early ({pruned.pruner})"
    assert record.steps is not None
    assert scaling is not None
    rate, rounds = rate_words(scaling), f"n={len(record.steps.rounds)}"
    if record.request.role == "verification":
        return f"{rate} with the change, {rounds}"
    if record.config.world_size == 1 or scaling.speedup is None or scaling.efficiency is None:
        return f"{rate}, {rounds}"
    return f"{rate}, {factor(scaling.speedup)}, {percent(scaling.efficiency)}, {rounds}"


def _trained_words(record: TrialRecord) -> str:
    """What came out of a training whose epochs were told."""
    if record.training is None:
        return f"{record.state}: {record.reason}"
    epochs = record.training.epochs
    return f"done, {sum(epoch.elapsed_s for epoch in epochs):.3g} s for {plural(len(epochs), 'epoch')}"


def rate_words(scaling: Scaling) -> str:
    """12,345 samples/s."""
    return f"{scaling.throughput_samples_per_s.value:,.0f} samples/s"


def _probe_words(probe: Probe) -> str:
    memory = f"{probe.memory_bytes / GIBIBYTE:.2f} GiB" if probe.memory_bytes else "memory unknown"
    share = "" if probe.share is None else f", {probe.share:.0%} of the memory"
    return f"{'too large' if probe.failure else 'fits'} ({memory}{share})"


# --- gauges for Ray's dashboard, Prometheus and Grafana


class StudyGauges:
    """raybench's gauges of a study, set between trials only."""

    def __init__(self, study: Study, sent: RayMetrics) -> None:
        self._study, self._sent = study, sent
        self._ended: Counter[str] = Counter()
        self._done = 0

    def progress(self, done: int = 0, total: int | None = None, left_s: float | None = None) -> None:
        """How far the stage is; of a stage that begins nothing is known yet."""
        self._done = done
        study = self._study.name
        self._sent.set(metrics.STAGE_DONE, done, study=study)
        self._sent.set(metrics.STAGE_PLANNED, total, study=study)
        self._sent.set(metrics.LEFT, left_s, study=study)

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


def trial_values(record: TrialRecord, scaling: Scaling) -> dict[Metric, float]:
    """What a complete trial of steps has of the gauges.

    A search's trials have no transfers apart from compute, and a verification no device alone.
    """
    parts = waterfall(record)
    # in a verification's rounds there was no base: what others measured is theirs
    efficiency = None if record.request.role == "verification" else scaling.efficiency
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
