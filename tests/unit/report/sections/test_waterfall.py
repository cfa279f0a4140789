"""Parts of a step, and words for its communication."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.answer import answer_of
from raybench.report.sections.waterfall import COMPUTE, seen_words, shares_drawn, waterfall_table
from tests.support.analysis import analyse
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import measured, study


def test_without_one_device_the_step_begins_at_what_all_compute() -> None:
    missing = {"plain": "out of memory", "concurrent": "out of memory"}
    record = measured(StepCosts(plain_s=0.010, exposed_s=0.010, missing=missing), QUIET)
    found = analyse(study(), [record])
    assert found.waterfall is not None
    assert [row[0] for row in waterfall_table(found).rows][:3] == [COMPUTE, "skew", "communication"]
    bar = shares_drawn(found.waterfall)
    assert next(iter(bar)) == COMPUTE
    assert (bar[COMPUTE], bar["communication"]) == pytest.approx((0.5, 0.5))
    assert seen_words([bar], "here") == "Computing takes 50% of a step here, communication 50%"
    assert "50% of each step is lost" in answer_of(found)


def test_parts_and_communication(results: StudyResults) -> None:
    assert [row[0] for row in waterfall_table(results).rows] == [
        "ideal",
        "contention",
        "wrapper",
        "skew",
        "communication",
        "step time",
        "transfers alone",
        "hidden by overlap",
    ]
    assert "Compute over transfers alone: " in waterfall_table(results).caption
