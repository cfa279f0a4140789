"""Which rank makes the others wait, and that none does by chance."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from raybench.analysis.findings.evenness import slow_in_step, slowest_rank
from raybench.analysis.findings.finding import Reason
from raybench.analysis.scaling import Fit
from raybench.records.record import TrialRecord
from raybench.spec.study import MeasureSpec
from tests.support.alone import case_of
from tests.support.planted import QUIET, Noise, StepCosts
from tests.unit.studies import measured


def with_local_times(record: TrialRecord, times_s: NDArray[np.float64]) -> TrialRecord:
    """The record with these times of ``local``, of shape (rounds, ranks)."""
    assert record.steps is not None
    rounds = []
    for each, row in zip(record.steps.rounds, times_s.tolist(), strict=True):
        blocks = (
            block.model_copy(update={"step_time_s": tuple(row), "slowest_s": max(row)})
            if block.variant == "local"
            else block
            for block in each.blocks
        )
        rounds.append(each.model_copy(update={"blocks": tuple(blocks)}))
    result = record.steps.model_copy(update={"rounds": tuple(rounds)})
    return record.model_copy(update={"result": result})


def test_ranks_that_are_alike_have_no_straggler() -> None:
    """Each rank's noise is its own: the slowest of eight is slow by more than one interval of 95% often."""
    assert claims_of(8, 60) <= 0.13 * 60  # a rate of 5% has more in one of 200 such tests


@pytest.mark.parametrize(("unit", "least", "most"), [(0.0, 30, 200), (0.012, 0, 12)])
def test_a_rank_that_differs_from_trial_to_trial_is_no_straggler(unit: float, least: int, most: int) -> None:
    """Two alike, in three visits, in each of which one may be slower by 1.2% throughout."""
    record, random, claims = (
        measured(StepCosts(plain_s=0.01), QUIET, world_size=2),
        np.random.default_rng(1),
        0,
    )
    assert record.steps is not None
    shape = (len(record.steps.rounds), 2)
    for _ in range(200):
        logs = [0.012 * random.standard_normal(2) + 0.005 * random.standard_normal(shape) for _ in range(3)]
        visits = [with_local_times(record, 0.01 * np.exp(each)).steps for each in logs]
        found = slowest_rank([each for each in visits if each is not None], unit)
        assert found is not None
        claims += found[1].low > 1
    assert least <= claims <= most


def claims_of(ranks: int, trials: int) -> int:
    """In how many trials of ranks that are alike one is called slow."""
    record = measured(StepCosts(plain_s=0.01), QUIET, world_size=ranks)
    assert record.steps is not None
    shape, random = (len(record.steps.rounds), ranks), np.random.default_rng(ranks)
    claims = 0
    for _ in range(trials):
        noisy = with_local_times(record, 0.01 * np.exp(0.06 * random.standard_normal(shape)))
        assert noisy.steps is not None
        claims += slow_in_step(case_of(noisy)) is not None
    return claims


def test_a_rank_that_is_slow_alone_too_is_a_slow_device() -> None:
    record = measured(StepCosts(plain_s=0.01, offset_s=(0.0, 0.0006)), Noise(block=0.004, step=0.0))
    finding = case_of(record).finding(slow_in_step)
    assert finding is not None
    assert finding.reason is Reason.DEVICE


@pytest.mark.parametrize(("visits", "reason"), [((0, 2), None), ((0, 1, 2), Reason.DEVICE)])
def test_nothing_is_said_of_a_device_that_did_not_run_alone(
    visits: tuple[int, ...], reason: Reason | None
) -> None:
    """Four rounds of eight devices, of which the seventh is 6% slower."""
    costs = StepCosts(plain_s=0.01, offset_s=(0.0,) * 6 + (0.0006, 0.0))
    measure = MeasureSpec(half_width=0.5, min_rounds=4)
    noise = Noise(block=0.002, step=0.0)
    records = [measured(costs, noise, visit, world_size=8, visit=visit, measure=measure) for visit in visits]
    assert {len(each.steps.rounds) for each in records if each.steps} == {4}
    finding = case_of(records[0], Fit(records)).finding(slow_in_step)
    assert finding is not None
    assert (finding.values["rank"], finding.reason) == (6, reason)
