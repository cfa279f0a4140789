"""Which rank makes the others wait, and that none does by chance."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.evenness import Straggler
from raybench.records.record import TrialRecord
from raybench.testing import QUIET, StepCosts
from tests.unit.studies import measured

NUM_TRIALS = 300


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


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_that_are_alike_have_no_straggler(ranks: int) -> None:
    """Each rank's noise is its own: the slowest of eight is slow by more than one interval of 95% often."""
    record = measured(StepCosts(plain_s=0.01), QUIET, world_size=ranks)
    assert record.steps is not None
    shape, random = (len(record.steps.rounds), ranks), np.random.default_rng(ranks)
    claims = 0
    for _ in range(NUM_TRIALS):
        noisy = with_local_times(record, 0.01 * np.exp(0.06 * random.standard_normal(shape)))
        assert noisy.steps is not None
        claims += Straggler.condition(Case.of(noisy, noisy.steps)) is not None
    assert claims <= 0.05 * NUM_TRIALS
