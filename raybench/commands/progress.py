"""What the user sees while a study runs: a live line on a terminal, plain lines elsewhere, and gauges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from raybench.analysis.collectives import Message, messages
from raybench.analysis.labels import label, place_words, short_trial_words, trial_words
from raybench.analysis.largest_batch import Probe, probe_of
from raybench.analysis.scaling import Fit, Scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.training import TrainedRun
from raybench.commands.console import is_read, say
from raybench.commands.notes import stage_words
from raybench.errors import Interrupted
from raybench.launch import metrics
from raybench.launch import signals as interrupt
from raybench.launch.metrics import Metric, RayMetrics
from raybench.plan.notes import Stage
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.records.requests import TrialRequest
from raybench.report.format import clock, exact_clock, factor, percent, share
from raybench.spec.plural import bytes_words, plural
from raybench.spec.study import Study

REFRESH_PER_S = 2  # a third busy process on two cores would be in every measurement
LONG_PHASE_S = 2.0  # from then on its seconds are shown
NOT_READ = "nobody reads this output any more"
LEAST_NAME = 12  # characters of a trial's name, without which its line is not kept to one


class Display:
    """Writes through a console of its own, so that Ray's lines never tear it."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self._quiet = console, quiet
        self._stage = self._head = self._trial = self._phase = ""
        self._since = monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self.console.is_terminal and not self._quiet:
            self._live = Live(
                get_renderable=self._render, console=self.console, refresh_per_second=REFRESH_PER_S,
                transient=True, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            say(self.console, text)

    def stage(self, text: str) -> None:
        """What the study is at."""
        self._stage = self._head = text
        self._trial = self._phase = ""
        if self._live is None:
            self.line(text)

    def trial(self, words: str, *, done: int, total: int | None, left_s: float | None) -> None:
        """A trial begins."""
        left = "" if left_s is None else f", about {clock(left_s)} left"
        self._head = f"{self._stage}: trial {done + 1}{f' of {total}' if total else ''}{left}"
        self._trial, self._phase, self._since = words, "", monotonic()

    def progress(self, progress: Progress) -> None:
        """The trial's phase; a study that nobody follows any more is asked to end, as by a signal."""
        if not is_read(self.console.file):
            interrupt.ask(Interrupted(NOT_READ))
        phase = f"{progress.phase} {progress.detail}".strip()
        if phase != self._phase:
            self._phase, self._since = phase, monotonic()

    def trial_done(self, names: Sequence[str], outcome: str) -> None:
        """A trial has ended; one line that stays.

        Of its names, the shortest last, the first one that leaves room for the outcome on a line of the
        terminal; where none does, the end of the last is cut. An outcome that needs a line for itself, such
        as why a trial failed, takes several.
        """
        room = self.console.width - len(f"  : {outcome}")
        name = names[0]
        if self.console.is_terminal and room >= LEAST_NAME:
            name = next((each for each in names if len(each) <= room), f"{names[-1][: room - 1]}…")
        self.line(f"  {name}: {outcome}")

    def _render(self) -> Group:
        lines = [self._head]
        if self._trial:
            for_s = monotonic() - self._since
            since = f", {clock(for_s)}" if for_s >= LONG_PHASE_S else ""
            lines.append(f"  {self._trial}: {self._phase or 'waiting'}{since}")
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


class StudyProgress:
    """The ``Watcher`` of a run: puts its events into words, shows them, and sets the gauges.

    ``study`` is None for a sweep of collectives, which has no stages.
    """

    def __init__(self, study: Study | None, display: Display, gauges: StudyGauges | None = None) -> None:
        self._study, self._display, self._gauges = study, display, gauges
        self._reason: str | None = None  # of the last failure: said once

    def stage(self, stage: Stage, number: int) -> None:
        """What the study is at."""
        assert self._study is not None
        self._display.stage(stage_words(self._study, stage, number))
        if self._gauges:
            self._gauges.progress()

    def trial(self, request: TrialRequest, *, done: int, total: int | None, left_s: float | None) -> None:
        """A trial begins."""
        self._display.trial(self._names(request)[0], done=done, total=total, left_s=left_s)
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

    def progress(self, request: TrialRequest, progress: Progress) -> None:
        """The trial's phase; an epoch that is done is a line that stays."""
        if progress.phase == "train":
            self._display.progress(Progress(progress.detail))
        elif progress.phase == "epoch":
            told = [progress.detail]
            if (seconds := progress.fields.get("epoch_s")) is not None:
                told.append(_lasting(seconds))
            if left_s := progress.fields.get("left_s", 0.0):
                told.append(f"about {clock(left_s)} left")
            self._display.trial_done(self._names(request), ", ".join(told))
        else:
            self._display.progress(progress)

    def _names(self, request: TrialRequest) -> Sequence[str]:
        if self._study is None or request.kind == "collectives":
            return [place_words(request.config)]
        return trial_words(self._study, request), short_trial_words(self._study, request)

    def trial_done(self, record: TrialRecord, scaling: Scaling | None) -> None:
        """A trial has ended."""
        if self._gauges:
            self._gauges.trial_done(record, scaling)
        is_again = record.reason is not None and record.reason == self._reason
        self._reason = record.reason or self._reason
        words = f"{record.state}: as before" if is_again else outcome_words(record, scaling)
        self._display.trial_done(self._names(record.request), words)


def outcome_words(record: TrialRecord, scaling: Scaling | None) -> str:
    """What came out of a trial; ``scaling`` is that of a complete trial of steps.

    The interval beside a speed-up is its efficiency's: one is the other times a whole number.
    """
    if record.state != "complete":
        return f"{record.state}: {record.reason}"
    if record.request.kind == "probe":
        return _probe_words(probe_of(record))
    if record.collectives is not None:
        return _swept_words(messages([record]))
    if record.training is not None:
        return _trained_words(TrainedRun(record))
    assert record.steps is not None
    assert scaling is not None
    rate = f"{scaling.throughput_samples_per_s.value:,.0f} samples/s"
    rounds = f"n={len(record.steps.rounds)}"
    if record.request.role == "verification":
        return f"{rate} with the change, {rounds}"
    if record.config.world_size == 1 or scaling.speedup is None or scaling.efficiency is None:
        return f"{rate}, {rounds}"
    return f"{rate}, {factor(scaling.speedup)}, {percent(scaling.efficiency)}, {rounds}"


def _trained_words(run: TrainedRun) -> str:
    """What a training took, and the best that it reached; each epoch has had its line."""
    words = f"done, {_lasting(run.total_s)} for {plural(len(run.epochs), 'epoch')}"
    words += f", {_lasting(run.epoch_time_s)} an epoch"
    best = max((each.test_accuracy for each in run.epochs if each.test_accuracy is not None), default=None)
    words += "" if best is None else f", best test accuracy {best:.1%}"
    stopped = run.result.stopped_by
    return words if stopped is None else f"{words}; stopped early ({stopped.pruner})"


def _lasting(seconds: float) -> str:
    return exact_clock(seconds) if seconds >= 100 else f"{seconds:.3g} s"


def _swept_words(found: Sequence[Message]) -> str:
    rounds = max(each.time_s.n for each in found)
    widest = share(round(max(each.time_s.log_half_width for each in found), 3))
    return f"{plural(len(found), 'message')}, n={rounds} rounds, widest interval ±{widest}"


def _probe_words(probe: Probe) -> str:
    memory = bytes_words(probe.memory_bytes) if probe.memory_bytes else "memory unknown"
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
        tags = {"study": self._study.name, "setting": label(self._study, config)}
        tags |= {"world_size": str(config.world_size), "strategy": config.setting.strategy}
        for metric, value in trial_values(record, scaling).items():
            self._sent.set(metric, value, **tags)


def trial_values(record: TrialRecord, scaling: Scaling) -> dict[Metric, float]:
    """What a complete trial of steps has of the gauges.

    A search's trials have no transfers apart from compute, and a verification no device alone.
    """
    parts = Fit([record]).waterfall(record)
    found: dict[Metric, Estimate | None] = {
        metrics.STEP_TIME: scaling.step_time_s,
        metrics.THROUGHPUT: scaling.throughput_samples_per_s,
        # in a verification's rounds there was no base: what others measured is theirs
        metrics.EFFICIENCY: None if record.request.role == "verification" else scaling.efficiency,
        metrics.EXPOSED: parts.parts.exposed_communication if parts else None,
        metrics.BUS_BANDWIDTH: parts.bus_bandwidth_bytes_per_s if parts else None,
    }
    return {metric: estimate.value for metric, estimate in found.items() if estimate is not None}
