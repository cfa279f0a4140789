"""What is said of a trial, of its end and of the best so far."""

from __future__ import annotations

from typing import Any

from raybench.analysis.estimates.efficiency import Scaling, scaling
from raybench.commands.display import Display
from raybench.commands.progress import StudyProgress
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.spec import Setting
from tests.unit.studies import SIXTEEN_TENTHS, asked, failed, measured, study

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

    def trial_done(self, text: str) -> None:
        self.told.append(("trial_done", text))

    def best(self, text: str) -> None:
        self.told.append(("best", text))


def told(record: TrialRecord, estimate: Scaling | None) -> str:
    """The line of a trial's end."""
    display = RecordingDisplay()
    StudyProgress(STUDY, display).trial_done(record, estimate)
    ((event, text),) = display.told
    assert event == "trial_done"
    return str(text)


def test_a_trial_is_named_by_its_devices_and_knobs_while_it_runs() -> None:
    display, phase = RecordingDisplay(), Progress("measure", "round 7")
    progress = StudyProgress(STUDY, display)
    progress.stage("Searching")
    progress.trial(asked(STUDY, "search", LARGE, 2), done=1, total=4, left_s=30.0)
    progress.progress(phase)
    assert display.told == [
        ("stage", "Searching"),
        ("trial", "2 devices, batch 512", 1, 4, 30.0),
        ("progress", phase),
    ]


def test_the_end_of_a_trial_says_rate_speedup_and_rounds() -> None:
    record = measured(SIXTEEN_TENTHS, setting=Setting(batch_size=512))
    estimate = scaling(record)
    assert record.steps is not None
    assert estimate.speedup is not None
    rate, rounds = estimate.throughput_samples_per_s.value, len(record.steps.rounds)
    line = told(record, estimate)
    assert line.startswith(f"  2 devices, batch 512: {rate:,.0f} samples/s, 1.")
    assert line.endswith(f", n={rounds}")


def test_one_device_has_no_speedup() -> None:
    record = measured(SIXTEEN_TENTHS, world_size=1, setting=Setting(strategy="single"))
    assert record.steps is not None
    estimate = scaling(record)
    rate = estimate.throughput_samples_per_s.value
    line = told(record, estimate)
    assert line == f"  1 device, batch 32: {rate:,.0f} samples/s, n={len(record.steps.rounds)}"


def test_a_confirmation_stands_beside_the_default() -> None:
    record = measured(
        SIXTEEN_TENTHS, role="confirmation", setting=LARGE, versus=DEFAULT, variants=("synced", "versus")
    )
    assert " samples/s beside the default, n=" in told(record, scaling(record))


def test_a_failed_trial_says_its_state_and_reason() -> None:
    record = failed(asked(STUDY, "search", LARGE, 2), "oom", "rank 1: out of memory")
    assert told(record, None) == "  2 devices, batch 512: oom: rank 1: out of memory"


def test_the_best_so_far_is_named_with_its_rate() -> None:
    display, record = RecordingDisplay(), measured(SIXTEEN_TENTHS, setting=LARGE)
    estimate = scaling(record)
    StudyProgress(STUDY, display).best(record, estimate)
    rate = estimate.throughput_samples_per_s.value
    assert display.told == [("best", f"2 devices, batch 512: {rate:,.0f} samples/s")]
