"""How long trials will take."""

import pytest

from raybench.driver import time_budget
from raybench.driver.time_budget import LEAST_ROUNDS_S, Cost, TimeBudget
from raybench.plan.training import training_requests
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import grid, measured, planned_training, request


def test_a_training_takes_its_steps():
    plan = planned_training(knobs={"batch_size": [32]})
    costs = StepCosts(plain_s=0.01)
    records, _ = grid(plan.study, (1, 2), FakeRunner(lambda config, setting: costs, QUIET))
    expected = {
        request.config.world_size: TimeBudget(epoch_samples=6_400).training_cost(request, records)
        for request in training_requests(plan)
    }
    assert expected == pytest.approx({1: 4 * 200 * 0.01, 2: 4 * 100 * 0.01})


SLOW, FAST = Setting(batch_size=4096), Setting(batch_size=32)


def took(
    budget: TimeBudget, setting: Setting, wall_time_s: float, measure_s: float, rounds: int, group: int = 1
) -> StepsRequest:
    """Let the budget see a trial of a worker group on two devices, of which so much were its rounds."""
    asked = request(setting=setting, measure=MeasureSpec(max_seconds=20.0), role="search")
    steps = measured(StepCosts(plain_s=0.01), setting=setting).steps
    assert steps is not None
    seen = {"rounds": steps.rounds[:rounds], "measure_s": measure_s, "stopped_by": "max_seconds"}
    budget.took(asked, wall_time_s, steps.model_copy(update=seen), 20.0, group)
    return asked


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> TimeBudget:
    """With 60 s left, on a clock that stands still."""
    monkeypatch.setattr(time_budget, "monotonic", lambda: 1000.0)
    return TimeBudget(deadline=1060.0)


def others(*costs: tuple[float, float, float]) -> Cost:
    """Of what is measured afterwards: overhead, rounds and the least of these."""
    return sum((Cost(*each) for each in costs), Cost())


def test_a_slow_setting_says_nothing_of_how_short_a_fast_one_may_be(limited: TimeBudget) -> None:
    """Three rounds of the slow one took 20 s; the fast one's trial may be cut."""
    slow = took(limited, SLOW, 25.0, 20.0, 3)
    fast = request(setting=FAST, measure=MeasureSpec(max_seconds=20.0), role="search")
    took(limited, FAST, 25.0, 20.0, 10)
    assert limited.cost(slow).least_s == pytest.approx(25.0)
    assert limited.cost(fast).least_s == pytest.approx(5.0 + LEAST_ROUNDS_S)
    cut = limited.fit(fast, others((5.0, 20.0, 2.0), (5.0, 20.0, 2.0)), 60.0)
    assert cut is not None
    assert LEAST_ROUNDS_S < cut.measure.max_seconds < 20.0
    assert limited.fit(slow, others(), 20.0) is None


def test_rounds_are_cut_by_one_share(limited: TimeBudget) -> None:
    """Three trials of 5 s and 20 s of rounds in 45 s: 30 s are for rounds, of which 6 s are not shared."""
    fast = took(limited, FAST, 25.0, 20.0, 10)
    cut = limited.fit(fast, others((5.0, 20.0, 2.0), (5.0, 20.0, 2.0)), 45.0)
    assert cut is not None
    assert cut.measure.max_seconds == pytest.approx(10.0)
    assert limited.fit(fast, others((5.0, 20.0, 2.0)), 50.0) == fast
    shortest = limited.fit(fast, others((5.0, 20.0, 20.0)), 25.0)
    assert shortest is not None
    assert shortest.measure.max_seconds == LEAST_ROUNDS_S


def test_a_fixed_number_of_rounds_is_not_cut(limited: TimeBudget) -> None:
    took(limited, FAST, 25.0, 20.0, 10)
    fixed = request(setting=FAST, measure=MeasureSpec(max_seconds=20.0, steps=10), role="search")
    assert limited.fit(fixed, others(), 20.0) is None


def test_what_the_first_trial_of_a_group_makes_is_not_expected_of_those_after_it(limited: TimeBudget) -> None:
    """It compiled for 70 s beside 20 s of rounds; those after it have 5 s beside theirs."""
    first = took(limited, FAST, 90.0, 20.0, 10)
    assert limited.cost(first).overhead_s == pytest.approx(70.0)  # alone it looks as if all did
    took(limited, FAST, 25.0, 20.0, 10)
    took(limited, FAST, 90.0, 20.0, 10, group=2)
    assert limited.cost(first).overhead_s == pytest.approx(5.0)


def test_more_variants_take_more_rounds(limited: TimeBudget) -> None:
    seen = took(limited, FAST, 25.0, 20.0, 10)
    whole = request(setting=FAST, measure=MeasureSpec(max_seconds=20.0), role="scaling")
    ratio = len(whole.variants) / len(seen.variants)
    assert limited.cost(whole).rounds_s == pytest.approx(20.0 * ratio)
