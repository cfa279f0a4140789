"""A trial's value for each objective, and the Pareto front."""

from __future__ import annotations

import pytest

from raybench.analysis.objectives import Candidate, objective_value, pareto_front
from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.spec.study import Objective
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import failed, measured, request


def value(record: TrialRecord, objective: Objective, price: float | None = None) -> float:
    found = objective_value(record, objective, scaling(record), price)
    assert found is not None
    return found.value


def test_objectives() -> None:
    record = measured(StepCosts(plain_s=0.01, exposed_s=0.0025, memory_bytes=5 << 20), QUIET)
    assert value(record, "throughput") == pytest.approx(64 / 0.0125)
    assert value(record, "efficiency") == pytest.approx(0.8)
    assert value(record, "peak_memory") == 5 << 20
    assert value(record, "cost_per_sample") == pytest.approx(2 * 0.0125 / 64)
    assert value(record, "cost_per_sample", 3.6 / 3600) == pytest.approx(2 * 0.0125 / 64 / 1000)
    assert objective_value(failed(request()), "throughput", scaling(record)) is None


def near(value: float, half: float = 0.0) -> Estimate:
    return Estimate(value, value - half, value + half, 10)


def test_pareto_front_keeps_what_nothing_beats() -> None:
    record = measured(StepCosts(plain_s=0.01), QUIET)
    values = [(100.0, 5.0), (90.0, 3.0), (80.0, 4.0), (100.0, 6.0), (90.0, 3.0)]
    candidates = [Candidate(record, (near(rate), near(memory))) for rate, memory in values]
    front = pareto_front(candidates, ("throughput", "peak_memory"))
    found = [tuple(each.value for each in one.values) for one in front]
    assert found == [(100.0, 5.0), (90.0, 3.0), (90.0, 3.0)]


def test_what_is_faster_by_luck_alone_does_not_stand_beside_what_takes_less_memory() -> None:
    record = measured(StepCosts(plain_s=0.01), QUIET)
    lucky, small = Candidate(record, (near(101, 5), near(6))), Candidate(record, (near(100, 5), near(5)))
    surely = Candidate(record, (near(120, 5), near(6)))
    assert pareto_front([lucky, small], ("throughput", "peak_memory")) == [small]
    assert pareto_front([surely, small], ("throughput", "peak_memory")) == [surely, small]


def test_a_front_of_estimates() -> None:
    record = measured(StepCosts(plain_s=0.01), QUIET)

    def on_front(*options: tuple[Estimate, Estimate]) -> list[bool]:
        candidates = [Candidate(record, each) for each in options]
        front = pareto_front(candidates, ("cost_per_sample", "peak_memory"))
        return [each in front for each in candidates]

    sure = near(1, 0.1), near(4, 0.1)
    assert on_front(sure, (near(2, 0.1), near(5, 0.1))) == [True, False]
    assert on_front(sure, (near(2, 1.0), near(5, 0.1))) == [True, False]  # no faster, and surely dearer
    assert on_front(sure, (near(1.1, 0.2), near(4.1, 0.2))) == [True, True]  # noise can turn both around
    assert on_front(sure, (near(0.9, 0.3), near(5, 0.1))) == [
        True,
        False,
    ]  # faster by luck, and surely dearer
