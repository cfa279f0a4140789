"""A trial's value for each objective, and the Pareto front."""

from __future__ import annotations

import pytest

from raybench.analysis.objectives import Candidate, Prices, objective_value, pareto_front
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import failed, measured, request


def test_objectives() -> None:
    record = measured(StepCosts(plain_s=0.01, exposed_s=0.0025, memory_bytes=5 << 20), QUIET)
    assert objective_value(record, "throughput") == pytest.approx(64 / 0.0125)
    assert objective_value(record, "efficiency") == pytest.approx(0.8)
    assert objective_value(record, "peak_memory") == 5 << 20
    assert objective_value(record, "cost_per_sample") == pytest.approx(2 * 0.0125 / 64)
    assert objective_value(record, "cost_per_sample", Prices(3.6)) == pytest.approx(2 * 0.0125 / 64 / 1000)
    assert objective_value(failed(request()), "throughput") is None


def test_pareto_front_keeps_what_nothing_beats() -> None:
    record = measured(StepCosts(plain_s=0.01), QUIET)
    values = [(100.0, 5.0), (90.0, 3.0), (80.0, 4.0), (100.0, 6.0), (90.0, 3.0)]
    front = pareto_front([Candidate(record, each) for each in values], ("throughput", "peak_memory"))
    assert [each.values for each in front] == [(100.0, 5.0), (90.0, 3.0), (90.0, 3.0)]
