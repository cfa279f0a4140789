"""Which setting is recommended, and of which knobs a framework is told."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.analysis.recommendation import Basis, Recommendation
from raybench.spec import Setting
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.studies import QUIET, grid, searched, study

KNOBS = {"batch_size": 64, "bucket_cap_mb": ["default", 1, 50]}
SPEC = study(knobs=KNOBS, search={"method": "optuna", "trials": 3})
WINNER = Setting(batch_size=64, bucket_cap_mb=50)


def found(gain: float, *, confirm: bool = True, spec: Any = SPEC) -> Recommendation | None:
    """With 50 MiB buckets a step takes ``1 / (1 + gain)`` of the time; the search was lucky with them."""
    luck_of_trials = iter([1.0, 0.8])  # the search's come first

    def costs(request: Any, setting: Setting) -> StepCosts:
        luck = next(luck_of_trials, 1.0)
        faster = 1 + gain if setting.bucket_cap_mb == 50 else 1.0
        return StepCosts(plain_s=0.008 * luck / faster, exposed_s=0.002 * luck / faster)

    return analyse(spec, searched(spec, (1, 2), WINNER, FakeRunner(costs, QUIET), confirm)).recommendation


def test_the_winner_where_it_is_confirmed_and_else_the_default() -> None:
    confirmed, unproven, lucky = found(0.25), found(0.4, confirm=False), found(0.0)
    assert confirmed is not None
    assert unproven is not None
    assert lucky is not None
    assert (confirmed.basis, confirmed.config.setting) == (Basis.CONFIRMED, WINNER)
    assert confirmed.gain is not None
    assert confirmed.gain.gain.value == pytest.approx(0.25)
    assert (unproven.basis, unproven.config.setting) == (Basis.UNCONFIRMED, WINNER)
    assert unproven.gain is not None
    assert unproven.gain.gain.low > 0
    assert lucky.basis is Basis.NO_GAIN
    assert lucky.is_default
    assert lucky.config.setting.bucket_cap_mb == "default"


def test_a_best_that_nothing_confirmed_and_that_may_be_no_better_is_not_recommended() -> None:
    """As a search of a newcomer's: 1.01x [0.27, 3.74] by two trials apart, and its code was handed out."""
    unsure = found(0.0, confirm=False)
    assert unsure is not None
    assert (unsure.basis, unsure.is_default) == (Basis.NOT_SURE, True)
    assert unsure.config.setting.bucket_cap_mb == "default"
    assert unsure.gain is not None
    assert unsure.gain.gain.low <= 0 <= unsure.gain.gain.high


def test_without_a_choice_what_was_measured() -> None:
    spec = study(knobs={"batch_size": 64})
    one = analyse(spec, grid(spec, (1, 2))[0]).recommendation
    assert one is not None
    assert (one.basis, one.config.world_size, one.config.setting.batch_size) == (Basis.NO_CHOICE, 2, 64)
    assert analyse(spec, []).recommendation is None


def test_more_workers_than_cores_recommend_nothing() -> None:
    spec = study(knobs={"batch_size": 64})
    records = [
        each.model_copy(
            update={
                "request": each.request.model_copy(
                    update={"config": each.request.config.model_copy(update={"oversubscribed": True})}
                )
            }
        )
        for each in grid(spec, (2,))[0]
    ]
    assert analyse(spec, records).recommendation is None
