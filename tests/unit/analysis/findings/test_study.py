"""What the verdict on the best setting says in a study's diagnosis."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.findings.finding import Finding, FindingName
from raybench.analysis.stats.verdict import Verdict
from raybench.report.finding_texts import evidence, next_step
from tests.unit.studies import exactly, planted

NO_GAIN = {Verdict.AS_GOOD: FindingName.AS_GOOD, Verdict.UNKNOWN: FindingName.NOT_KNOWN_YET}


def no_gain(faster: float, *, minimum_gain: float = 0.02, **search: Any) -> tuple[Verdict, list[Finding]]:
    """The verdict on a winner that is so many times as fast as the default, and what is said of it."""
    costs = {("fp32",): exactly(0.9), ("bf16",): exactly(0.9, 0.01 / faster)}
    results = planted(costs, "precision", search={"minimum_gain": minimum_gain, **search})
    (gain,) = results.gains.values()
    return gain.verdict, [each for each in results.findings if each.name in NO_GAIN.values()]


@pytest.mark.parametrize(
    ("faster", "minimum_gain", "verdict"),
    [(1.001, 0.10, Verdict.AS_GOOD), (1.01, 0.001, Verdict.UNKNOWN), (1.5, 0.02, Verdict.BETTER)],
)
def test_no_gain_is_a_finding_with_the_name_of_its_verdict(
    faster: float, minimum_gain: float, verdict: Verdict
) -> None:
    found, findings = no_gain(faster, minimum_gain=minimum_gain)
    assert found is verdict
    assert [each.name for each in findings] == ([NO_GAIN[verdict]] if verdict in NO_GAIN else [])
    for each in findings:
        assert each.values["gain_ratio"] == pytest.approx(faster - 1, abs=0.005)
        assert ("times_to_tell" in each.values) is (verdict is Verdict.UNKNOWN)
        assert evidence(each)
        assert next_step(each)


def test_what_was_chosen_for_more_than_speed_is_not_advised_against() -> None:
    objectives = {"method": "optuna", "objectives": ["throughput", "peak_memory"]}
    assert no_gain(1.001, minimum_gain=0.10, **objectives)[1] == []
