"""Rounds of many trials as matrices are the rounds of each, whichever blocks they have."""

from __future__ import annotations

from functools import cache
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.analysis.estimates.rounds import mean_rank_s, series, slowest_rank_s, slowest_step_s
from raybench.analysis.estimates.stacked import stacked
from raybench.records.measurements import StepsResult
from raybench.records.requests import Variant
from tests.support.planted import Noise, StepCosts
from tests.unit.studies import measured

VARIANTS: tuple[Variant, ...] = get_args(Variant)
VALUES = {"slowest_rank": slowest_rank_s, "mean_rank": mean_rank_s, "slowest_step": slowest_step_s}
COSTS = StepCosts(plain_s=0.010, base_s=0.02, exposed_s=0.002, offset_s=(0.0, 0.002))


@cache
def all_measured() -> list[StepsResult]:
    noise = Noise(block=0.05, step=0.01)
    found = [measured(COSTS, noise, seed=seed, world_size=2, scaling="strong").steps for seed in range(4)]
    return [each for each in found if each is not None]


@st.composite
def several(draw: st.DrawFn) -> list[StepsResult]:
    """Measurements of which each lacks some rounds, and some blocks of those that it has."""
    found = []
    for steps in all_measured():
        rounds = []
        for each in steps.rounds[: draw(st.sampled_from([2, 3, len(steps.rounds)]))]:
            lacks = draw(st.sampled_from([(), (), ("plain",), ("synced",), ("base", "local")]))
            kept = tuple(block for block in each.blocks if block.variant not in lacks)
            rounds.append(each.model_copy(update={"blocks": kept}))
        found.append(steps.model_copy(update={"rounds": tuple(rounds)}))
    return found


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(several())
def test_each_row_is_the_series_of_its_trial(measurements: list[StepsResult]) -> None:
    seen = []
    for places, rows in stacked(measurements):
        seen += places
        for variant in VARIANTS:
            for name, value in VALUES.items():
                matrix = rows.series(variant, name)  # type: ignore[arg-type]
                for row, place in enumerate(places):
                    alone = series(measurements[place], variant, value)
                    assert (matrix is None) == (alone is None)
                    if matrix is not None and alone is not None:
                        np.testing.assert_allclose(matrix[row], alone, rtol=1e-12)
    assert sorted(seen) == list(range(len(measurements)))
