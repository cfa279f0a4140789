"""What a study's confirmations say in its diagnosis."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.findings.case import Around
from raybench.analysis.findings.diagnose import diagnose_study
from raybench.analysis.findings.finding import Finding, FindingName
from raybench.analysis.search import Confirmation
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Verdict, gain_of
from raybench.report.finding_texts import evidence
from tests.unit.studies import exactly, planted


def no_gain(ratio: Estimate, *, paired: bool = True, **search: Any) -> list[Finding]:
    """What is said of a winner with this ratio of samples/s to the default's."""
    costs = {("fp32",): exactly(0.9), ("bf16",): exactly(0.9)}
    results = planted(costs, "precision", **({"search": search} if search else {}))
    told = gain_of(ratio, results.study.search.minimum_gain)
    assert told.verdict is Verdict.NONE
    confirmation = Confirmation(results.measured[0], "bf16", told, paired)
    found = diagnose_study(results, [confirmation], Around()).first
    return [each for each in found if each.name is FindingName.NO_SIGNIFICANT_GAIN]


@pytest.mark.parametrize(
    ("ratio", "paired", "amount", "how"),
    [
        (Estimate(1.01, 0.98, 1.04, 10), True, "1% [-2, 4] more", "in the same rounds"),
        (Estimate(0.98, 0.95, 1.01, 10), True, "2% [-1, 5] fewer", "in the same rounds"),
        (Estimate(1.01, 0.80, 1.22, 10), False, "1% [-20, 22] more", "measured apart"),
    ],
)
def test_no_gain_is_told_with_its_sign_and_how_it_was_measured(
    ratio: Estimate, paired: bool, amount: str, how: str
) -> None:
    (finding,) = no_gain(ratio, paired=paired)
    assert evidence(finding).endswith(f" has {amount} samples/s than the default, {how}")


def test_what_was_chosen_for_more_than_speed_is_not_advised_against() -> None:
    search = {"method": "optuna", "objectives": ["throughput", "peak_memory"]}
    assert no_gain(Estimate(1.0, 0.98, 1.02, 10), **search) == []
