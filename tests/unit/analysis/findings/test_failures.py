"""Failed trials as findings: counted by cause, with the place in the code and the command that goes on."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from raybench.analysis.findings.case import Around
from raybench.analysis.findings.diagnose import FAILED
from raybench.analysis.findings.diagnose import failed as failures_of
from raybench.analysis.findings.finding import Finding, FindingName, Reason, Severity
from raybench.analysis.resolve import resolve
from raybench.records.record import State, TrialRecord
from raybench.report.finding_texts import evidence, next_step
from raybench.report.terminal import print_summary
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner, run_all
from tests.unit.studies import asked, failed, study

SPEC = study(knobs={"batch_size": [32, 64, 128]}, search={"method": "grid"})
GOES_ON = "python -m raybench.study scaling --resume --output results/mine"
AROUND = Around(goes_on=GOES_ON)


def request(batch: int, size: int = 2):  # type: ignore[no-untyped-def]
    return asked(SPEC, "scaling", Setting(batch_size=batch), size)


def crashed(batch: int, size: int = 2, line: int = 7) -> TrialRecord:
    record = failed(request(batch, size), "crashed", f"rank {size - 1}: ValueError: {batch:,} samples")
    return record.model_copy(update={"frame": f"own.py:{line}, in loss: raise"})


def failures(*records: TrialRecord) -> list[Finding]:
    """The findings on the failed ones of these."""
    return failures_of(resolve(SPEC, records), GOES_ON)


COMPLETE = run_all(FakeRunner(), [request(32)])[0]


def test_failures_of_one_cause_are_one_finding_whatever_their_numbers() -> None:
    (found,) = failures(*COMPLETE, crashed(64), crashed(128), crashed(64, 1))
    assert (found.name, found.reason) == (FindingName.FAILED, Reason.CRASHED)
    assert found.severity == Severity.WARNING
    assert evidence(found) == (
        "2 devices, batch 64 and 2 more trials crashed: rank 1: ValueError: 64 samples"
    )
    assert found.frame == "own.py:7, in loss: raise"
    assert found.command == f"{GOES_ON} --retry crashed"


def test_another_place_is_another_cause() -> None:
    found = failures(*COMPLETE, crashed(64), crashed(128, line=9))
    assert [each.frame[:8] for each in found] == ["own.py:7", "own.py:9"]


@pytest.mark.parametrize("state", FAILED)
def test_every_state_is_a_finding_and_a_problem_where_nothing_else_is_there(state: State) -> None:
    record = failed(request(64), state, "planted")
    (alone,) = failures(record)
    (beside,) = failures(*COMPLETE, record)
    assert (alone.reason, alone.severity) == (Reason(state), Severity.PROBLEM)
    assert beside.severity == (Severity.NOTE if state == "oom" else Severity.WARNING)
    assert evidence(alone).startswith("2 devices, batch 64 ")
    assert evidence(alone).endswith(": planted")
    assert alone.command.startswith("" if state == "invalid" else f"{GOES_ON} --retry {state}")


@pytest.mark.parametrize("state", ["crashed", "invalid"])
def test_a_script_may_have_been_changed_or_need_other_arguments(state: State) -> None:
    """Which a study that goes on does not take."""
    spec = study(workload={"script": "train.py", "args": "--bs {batch_size}"}, knobs={"batch_size": [32]})
    record = failed(asked(spec, "scaling", Setting(batch_size=32), 2), state, "planted")
    (found,) = failures_of(resolve(spec, [record]), GOES_ON)
    assert found.command.startswith(f"{GOES_ON} --retry {state}")
    assert next_step(found).endswith("start again if its arguments are wrong") is (state == "crashed")


def test_one_command_that_can_be_pasted_goes_on_with_all_of_it() -> None:
    """What crashed, what took too long (with twice the time), and what was not reached."""
    late = failed(request(128), "timeout", "not done after 300 s")
    records = [*COMPLETE, crashed(64), late]
    command = f"{GOES_ON} --retry crashed,timeout --set measure.timeout_seconds=600"
    found = analyse(SPEC, records, around=replace(AROUND, left_out=("1 of 6 suggestions",)))
    *_, first, second, last = found.diagnosis
    assert [first.reason, second.reason, last.name] == [
        Reason.CRASHED,
        Reason.TIMEOUT,
        FindingName.NOT_REACHED,
    ]
    assert {first.command, second.command, last.command} == {command}
    shown = io.StringIO()
    print_summary(found, Console(file=shown, width=80))
    lines = shown.getvalue().splitlines()
    assert [line for line in lines if "--resume" in line] == [f"    {command}"]


def test_a_compiled_trial_is_given_twice_its_time_and_not_six_times() -> None:
    """Its limit is three times the study's."""
    late = asked(SPEC, "scaling", Setting(batch_size=128, compile=True), 2)
    late = late.model_copy(update={"measure": late.measure.model_copy(update={"timeout_seconds": 900.0})})
    (found,) = failures(failed(late, "timeout", "not done after 900 s"))
    assert found.command.endswith("--set measure.timeout_seconds=600")


def test_memory_that_was_not_enough_is_tried_again_where_asked_or_where_nothing_is_complete() -> None:
    full = failed(request(64), "oom", "out of memory")
    beside = {each.reason: each.command for each in failures(*COMPLETE, full, crashed(128))}
    assert beside[Reason.CRASHED] == f"{GOES_ON} --retry crashed"
    assert beside[Reason.OOM] == f"{GOES_ON} --retry crashed,oom"
    alone = {each.command for each in failures(full, crashed(128))}
    assert alone == {f"{GOES_ON} --retry crashed,oom"}


def test_what_was_not_reached_is_one() -> None:
    words = ("17 of 18 trials of the curves",)
    found, told = (analyse(SPEC, COMPLETE, around=replace(AROUND, left_out=each)) for each in ((), words))
    (late,) = (each for each in told.diagnosis if each not in found.diagnosis)
    assert (late.name, evidence(late), late.command) == (FindingName.NOT_REACHED, words[0], GOES_ON)


def test_a_study_without_failures_has_none() -> None:
    assert failures(*COMPLETE) == []
