"""What computing side by side costs, and how much of that is other processes'."""

from __future__ import annotations

import pytest

from raybench.analysis.diagnosis.findings import Finding, FindingName
from raybench.analysis.diagnosis.stability import findings
from raybench.spec import Setting
from raybench.testing import QUIET, StepCosts
from tests.unit.studies import measured


def found(contention_s: float, others: float) -> dict[FindingName, Finding]:
    """Of a step of 40 ms and contention on two cores, of which other processes take a share."""
    record = measured(StepCosts(plain_s=0.040, contention_s=contention_s), QUIET)
    assert record.steps is not None
    rounds = [each.model_copy(update={"other_cores": (others,) * 2}) for each in record.steps.rounds]
    told = {"rounds": tuple(rounds), "hosts": (0, 0), "host_cores": (2, 2)}
    return {
        each.name: each
        for each in findings(record.model_copy(update={"result": record.steps.model_copy(update=told)}))
    }


@pytest.mark.parametrize("theirs_s", [0.004, 0.0051, 0.006])
def test_contention_is_told_without_what_other_processes_explain_of_it(theirs_s: float) -> None:
    """10 ms of a step of 50: the rest of it is the devices' own, however much of it is others'."""
    named = found(0.010, 2 * theirs_s / 0.050)
    others, own = named[FindingName.OTHER_PROCESSES].explains, named[FindingName.CONTENTION].explains
    assert others is not None
    assert own is not None
    assert others.value == pytest.approx(theirs_s)
    assert own.value == pytest.approx(0.010 - theirs_s)
    assert "10.0 ms" in named[FindingName.CONTENTION].evidence
    assert named[FindingName.CONTENTION].values["contention_s"] == pytest.approx(0.010)


def test_a_rest_that_is_not_worth_telling_is_none() -> None:
    named = found(0.010, 2 * 0.009 / 0.050)  # 1 ms of 50 is left
    assert FindingName.OTHER_PROCESSES in named
    assert FindingName.CONTENTION not in named


def test_contention_without_other_processes_is_whole() -> None:
    named = found(0.010, 0.0)
    assert FindingName.OTHER_PROCESSES not in named
    own = named[FindingName.CONTENTION].explains
    assert own is not None
    assert own.value == pytest.approx(0.010)


def test_threads_beyond_the_cores_are_told_with_how_many_fit() -> None:
    record = measured(
        StepCosts(plain_s=0.040, contention_s=0.020), QUIET, cpus_per_worker=1, setting=Setting(num_threads=4)
    )
    assert record.steps is not None
    told = record.steps.model_copy(update={"hosts": (0, 0), "host_cores": (4, 4)})
    (finding,) = (each for each in findings(record.model_copy(update={"result": told})) if each.explains)
    assert finding.name is FindingName.CONTENTION
    assert "2 workers of 4 threads share 4 cores" in finding.evidence
    assert finding.change == {"num_threads": 2}
