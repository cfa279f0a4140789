"""A headline that was measured under load comes first, and is to be measured again."""

from __future__ import annotations

from raybench.analysis.stats.repeated import MOST_AGAIN

from raybench.analysis import StudyResults, analyse
from raybench.analysis.findings.case import Around
from raybench.analysis.findings.finding import FindingName, Severity
from raybench.records.record import TrialRecord
from raybench.report.finding_texts import evidence, next_step
from raybench.spec import Setting
from tests.support.planted import FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import asked, grid, study, with_others

STEADY = Noise(block=0.005, step=0.002)
GOES_ON = "raybench scaling --resume --output mine"


def under(record: TrialRecord, others: float, again: int = 0) -> TrialRecord:
    """The record where others took so many of two cores, measured so often before."""
    request = record.request.model_copy(update={"again": again})
    busy = with_others(record, others, {"python": others, "Ray": 0.1})
    return busy.model_copy(update={"request": request, "trial_id": request.trial_id})


def disturbed(load: float, *, again: int = 0) -> StudyResults:
    """A default twice as slow on the curve and in the search as beside bf16 in the confirmation."""
    spec = study(
        knobs={"batch_size": 64, "precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 2}
    )
    default, winner = Setting(batch_size=64), Setting(batch_size=64, precision="bf16")
    slow = FakeRunner(lambda config, setting: StepCosts(plain_s=0.016, contention_s=0.008), STEADY)
    fast = FakeRunner(lambda config, setting: StepCosts(plain_s=0.010, exposed_s=0.002), STEADY, seed=3)
    on_curve = run_all(slow, [asked(spec, role, default, 2) for role in ("search", "scaling")])[0]
    confirming = asked(spec, "confirmation", winner, 2, anchor=default, variants=("ddp", "anchor"))
    confirmed = run_all(fast, [confirming])[0]
    records = [under(on_curve[0], load), under(on_curve[1], load, again), under(confirmed[0], 0.0)]
    return analyse(spec, records, around=Around(goes_on=GOES_ON))


def test_a_headline_under_load_comes_first_though_another_loaded_one_agrees_with_it() -> None:
    found = disturbed(1.0)
    first = found.diagnosis[0]
    assert (first.name, first.severity) == (FindingName.MEASUREMENTS_DISAGREE, Severity.WARNING)
    assert "measured under load" in evidence(first)
    assert "python 1.00" in next_step(first)
    assert "--resume measures it again" in next_step(first)
    assert first.command == GOES_ON
    (apart,) = [each for each in found.disagreements if each.config.setting.precision == "fp32"]
    assert apart.agrees is not None
    assert not apart.is_settled  # so that a resume measures it again


def test_without_load_the_one_that_agrees_bears_it_out() -> None:
    found = disturbed(0.0)
    (told,) = [each for each in found.diagnosis if each.name is FindingName.MEASUREMENTS_DISAGREE]
    assert not told.comes_first
    assert "under load" not in evidence(told)
    assert next_step(told).startswith("nothing: the figure on the curve")


def test_what_was_measured_so_often_is_not_asked_for_again() -> None:
    first = disturbed(1.0, again=MOST_AGAIN).diagnosis[0]
    assert first.name is FindingName.MEASUREMENTS_DISAGREE
    assert first.command == ""
    assert "begin a new study" in next_step(first)


def test_trials_on_another_kind_of_device_are_named() -> None:
    """As on a cluster of two: what the settings differ by may be the devices."""
    spec = study(knobs={"batch_size": [64, 128]})
    records = [
        each.model_copy(update={"device_name": "NVIDIA H200"})
        for each in grid(spec, (1, 2), FakeRunner(noise=STEADY))[0]
    ]
    assert FindingName.SEVERAL_DEVICES not in {each.name for each in analyse(spec, records).diagnosis}
    *same, other, unknown = records
    moved = [
        *same,
        other.model_copy(update={"device_name": "NVIDIA A100"}),
        unknown.model_copy(update={"device_name": None}),
    ]
    (told,) = [e for e in analyse(spec, moved).diagnosis if e.name is FindingName.SEVERAL_DEVICES]
    assert told.severity is Severity.WARNING
    assert told.trial_id == other.trial_id
    assert "ran on NVIDIA H200, 1 trial on NVIDIA A100 (first: batch " in evidence(told)
    assert told.values == {"trials": 1}
    assert "measure all of them on NVIDIA H200" in next_step(told)
