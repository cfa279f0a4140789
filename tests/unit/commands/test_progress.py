"""What is said of a trial and of its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from raybench.analysis.scaling import Scaling, scaling
from raybench.commands.progress import Display, StudyProgress
from raybench.plan.notes import Stage
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.report.format import percent
from raybench.spec.knobs import Setting
from raybench.spec.load import find_study, load_study
from raybench.spec.study import Study
from tests.support.planted import FakeLearning, Noise
from tests.unit.studies import (
    SIXTEEN_TENTHS,
    asked,
    exactly,
    failed,
    measured,
    study,
    trained_study,
    variants_for,
)

STUDY = study(knobs={"batch_size": [32, 512]})
DEFAULT, LARGE = STUDY.knobs.grid()


class RecordingDisplay(Display):
    """Keeps what it is told to show."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def stage(self, text: str) -> None:
        self.told.append(("stage", text))

    def trial(self, words: str, *, done: int, total: int | None, left_s: float | None) -> None:
        self.told.append(("trial", words, done, total, left_s))

    def progress(self, progress: Progress) -> None:
        self.told.append(("progress", progress))

    def trial_done(self, names: Sequence[str], outcome: str) -> None:
        self.told.append(("trial_done", *names, outcome))


def told(record: TrialRecord, estimate: Scaling | None) -> str:
    """The line of a trial's end."""
    display = RecordingDisplay()
    StudyProgress(STUDY, display).trial_done(record, estimate)
    ((event, name, _, outcome),) = display.told
    assert event == "trial_done"
    return f"{name}: {outcome}"


def test_a_reason_is_said_once() -> None:
    display = RecordingDisplay()
    progress = StudyProgress(STUDY, display)
    for size, reason in ((1, "no data.csv"), (2, "no data.csv"), (4, "no memory")):
        progress.trial_done(failed(asked(STUDY, "scaling", Setting(), size), "crashed", reason), None)
    assert [each[-1] for each in display.told] == [
        "crashed: no data.csv",
        "crashed: as before",
        "crashed: no memory",
    ]


def test_a_trial_is_named_by_its_devices_and_knobs_while_it_runs() -> None:
    display, phase = RecordingDisplay(), Progress("measure", "round 7")
    progress = StudyProgress(STUDY, display)
    progress.stage(Stage.TRAINING, 3)
    request = asked(STUDY, "search", LARGE, 2)
    progress.trial(request, done=1, total=4, left_s=30.0)
    progress.progress(request, phase)
    assert display.told == [
        ("stage", "Training 3 trials to the last epoch"),
        ("trial", "2 devices, batch 512", 1, 4, 30.0),
        ("progress", phase),
    ]


def test_the_end_of_a_trial_says_rate_speedup_efficiency_and_rounds() -> None:
    record = measured(SIXTEEN_TENTHS, setting=Setting(batch_size=512))
    estimate = scaling(record)
    assert record.steps is not None
    assert estimate.speedup is not None
    assert estimate.efficiency is not None
    rate, rounds = estimate.throughput_samples_per_s.value, len(record.steps.rounds)
    assert told(record, estimate) == (
        f"2 devices, batch 512: {rate:,.0f} samples/s, {estimate.speedup.value:.2f}x, "
        f"{percent(estimate.efficiency)}, n={rounds}"
    )
    assert estimate.efficiency.low < 0.8 < estimate.efficiency.high  # as planted


def test_one_device_has_no_speedup() -> None:
    record = measured(SIXTEEN_TENTHS, world_size=1, setting=Setting(strategy="single"))
    assert record.steps is not None
    estimate = scaling(record)
    rate = estimate.throughput_samples_per_s.value
    line = told(record, estimate)
    rounds = len(record.steps.rounds)
    assert line == f"1 device, batch 32: {rate:,.0f} samples/s, n={rounds}"


def test_a_verification_without_a_baseline_has_its_rate() -> None:
    record = measured(
        SIXTEEN_TENTHS, role="verification", setting=LARGE, anchor=DEFAULT, variants=("ddp", "anchor")
    )
    assert " samples/s with the change, n=" in told(record, scaling(record))


def test_a_failed_trial_says_its_state_and_reason() -> None:
    record = failed(asked(STUDY, "search", LARGE, 2), "oom", "rank 1: out of memory")
    assert told(record, None) == "2 devices, batch 512: oom: rank 1: out of memory"


def test_a_trial_without_a_base_claims_nothing_beside_the_default() -> None:
    """One device alone did not fit: there is a rate, and no speed-up."""
    record = measured(SIXTEEN_TENTHS, setting=LARGE, variants=("ddp",))
    estimate = scaling(record)
    rate = estimate.throughput_samples_per_s.value
    assert estimate.efficiency is None
    assert told(record, estimate).startswith(f"2 devices, batch 512: {rate:,.0f} samples/s, n=")


def test_every_trial_of_the_default_study_takes_one_line_of_a_terminal() -> None:
    """Whatever it suggests; what differs from the default in two knobs or fewer is named whole."""
    default = load_study(find_study("default"), device="cpu")
    written = StringIO()
    display = Display(Console(file=written, force_terminal=True, width=80, color_system=None))
    progress, settings = StudyProgress(default, display), list(default.knobs.grid())
    for setting in settings:
        request = asked(default, "search", setting, 2)
        record = measured(
            exactly(0.684, plain_s=setting.batch_size / 181_000),
            Noise(block=0.03),  # an interval of some percent, as on two cores
            setting=setting,
            workload=request.config.workload,
            variants=variants_for(2, "weak", full=False),
            role="search",
        )
        progress.trial_done(record, scaling(record))
    lines = written.getvalue().splitlines()
    assert len(lines) == len(settings)
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)
    outcome = r"  2 devices, .*: [\d,]+ samples/s, 1\.\d\dx, \d\d% \[\d\d, \d\d\], n=\d+"
    assert all(re.fullmatch(outcome, line) for line in lines)
    names = [line.partition(":")[0] for line in lines]
    few = [each for each in settings if len(each.differences(settings[0])) <= 2]
    assert len(set(names)) == len(names)
    assert sum("…" not in name for name in names) >= len(few) == 18


def test_a_name_that_is_too_long_is_cut_and_what_failed_is_said_whole() -> None:
    written = StringIO()
    display = Display(Console(file=written, force_terminal=True, width=80, color_system=None))
    outcome = "181,093 samples/s, 1.36x, 68% [62, 75], n=10"
    display.trial_done(["2 devices, batch 512, " + "a knob " * 20, "2 devices, " + "b knob " * 20], outcome)
    (line,) = written.getvalue().splitlines()
    assert line == f"  2 devices, b knob b knob b knob…: {outcome}"
    assert len(line) == 80
    reason = "crashed: " + "word " * 40
    display.trial_done(["2 devices, batch 512", "2 devices, the default"], reason)
    assert " ".join(written.getvalue().split("\n", 1)[1].split()) == f"2 devices, batch 512: {reason}".strip()


def test_piped_output_has_the_whole_name() -> None:
    written = StringIO()
    long = "2 devices, batch 512, " + "a knob " * 20
    Display(Console(file=written, width=80)).trial_done([long, "2 devices, the default"], "1 samples/s, n=10")
    assert written.getvalue() == f"  {long}: 1 samples/s, n=10\n"


def lines_of(progress_of: Callable[[StudyProgress], None], spec: Study = STUDY) -> list[str]:
    """The lines that stay, as they are piped."""
    console = Console(file=StringIO(), width=80)
    with Display(console) as display:
        progress_of(StudyProgress(spec, display))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_the_start_of_a_worker_group_is_called_that() -> None:
    def told_of(progress: StudyProgress) -> None:
        for seconds in (11.84, 0.0):  # the second trial finds it running
            progress.trial(asked(STUDY, "search", LARGE, 2), done=0, total=4, left_s=None)
            progress.group(2, None)
            progress.group(2, seconds)

    assert lines_of(told_of) == ["  worker group of 2 started in 11.8 s"]


def test_while_it_starts_the_live_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("raybench.commands.progress.monotonic", lambda: now[0])
    console = Console(file=StringIO(), force_terminal=True, width=80)
    display = Display(console)
    progress = StudyProgress(STUDY, display)
    progress.trial(asked(STUDY, "search", LARGE, 2), done=0, total=4, left_s=None)
    progress.group(2, None)
    now[0] += 12
    console.print(display._render())
    assert "2 devices, batch 512: starting 2 workers, 12 s" in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_epoch_names_its_training_with_accuracy_and_time_left() -> None:
    plan, records = trained_study(FakeLearning())
    record = next(each for each in records if each.training is not None)
    request = record.study_request
    assert record.training is not None
    epochs = record.training.epochs

    def told_of(progress: StudyProgress) -> None:
        progress.trial(request, done=0, total=1, left_s=None)
        progress.group(1, 9.0)
        for epoch in epochs[:2]:
            progress.progress(request, Progress("train", f"epoch {epoch.epoch}/{len(epochs)}"))
            times = {"epoch_s": 12.34, "left_s": 12.34 * (2 - epoch.epoch)}
            progress.progress(request, Progress("epoch", epoch.words(2), times))
        progress.trial_done(record, None)

    started, first, second, done = lines_of(told_of, plan.study)
    assert started.startswith("  worker group of 1")
    scores = r"train loss [\d.]+ \([\d.]+%\), test loss [\d.]+ \([\d.]+%\), 12.3 s"
    assert re.fullmatch(rf"  \d devices?, .*: epoch 1/2, {scores}, about 12 s left", first)
    assert re.fullmatch(rf"  \d devices?, .*: epoch 2/2, {scores}", second)
    took = rf"[\d.e+]+ s for {len(epochs)} epochs, [\d.]+ s an epoch, best test accuracy [\d.]+%"
    assert re.fullmatch(rf"  \d devices?, .*: done, {took}", done)
