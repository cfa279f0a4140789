"""What each knob does to the efficiency, alone and together, in a winner, and what another workload does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raybench.analysis import analyse
from raybench.analysis.attribution import Effect, effects
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import exactly, grid, planted, study


def together(found: Mapping[str, Effect]) -> Effect:
    """The one effect of several knobs."""
    (both,) = (each for each in found.values() if len(each.changes) > 1)
    return both


def test_knobs_one_at_a_time_and_together() -> None:
    costs = {
        (8, 1): exactly(0.4),
        (8, 4): exactly(0.5),
        (128, 1): exactly(0.6),
        (128, 4): exactly(0.9),
    }
    found = planted(costs, "batch_size", "gradient_accumulation").effects
    ratios = {tuple(each.changes): each.efficiency_ratio.value for each in found.values()}
    assert ratios["batch_size",] == pytest.approx(1.5)
    assert ratios["gradient_accumulation",] == pytest.approx(1.25)
    both = together(found)
    assert both.efficiency_ratio.value == pytest.approx(2.25)
    assert both.interaction is not None
    assert both.interaction.value == pytest.approx(0.9 * 0.4 / (0.6 * 0.5))


def test_accumulation_of_the_same_passes_is_one_change_under_strong_scaling() -> None:
    spec = study(
        knobs={"batch_size": [8, 32], "gradient_accumulation": [1, 4]},
        search={"method": "ablation"},
        scaling={"mode": "strong"},
    )
    plan = make_plan(spec, Resources("cpu", 2, "a cpu"))
    found = effects(analyse(spec, run_all(FakeRunner(seed=3), [trial.request for trial in plan.trials()])[0]))
    assert sorted(tuple(each.changes) for each in found.values()) == [
        ("batch_size",),
        ("batch_size", "gradient_accumulation"),
        ("gradient_accumulation",),
    ]
    both = together(found)
    assert both.changes == {"batch_size": 128, "gradient_accumulation": 4}
    assert both.interaction is not None


def test_an_interaction_holds_the_uncertainty_of_all_its_trials() -> None:
    spec = study(knobs={"batch_size": [32, 64], "gradient_accumulation": [1, 2]})
    both = together(effects(analyse(spec, grid(spec, (2,), FakeRunner(seed=3))[0])))
    assert both.interaction is not None
    assert both.interaction.relative_half_width > both.efficiency_ratio.relative_half_width


def test_an_interaction_of_several_starts_has_their_degrees_of_freedom() -> None:
    spec = study(knobs={"batch_size": [32, 64], "gradient_accumulation": [1, 2]}, measure={"starts": 2})
    both = together(effects(analyse(spec, grid(spec, (2,), FakeRunner(seed=3))[0])))
    assert both.interaction is not None
    assert both.interaction.starts == 2


def test_settings_with_other_variables_are_of_other_workers() -> None:
    """Exact rounds: between two worker groups is what starts differ by, within one it is not."""
    spec = study(
        knobs={"batch_size": [32, 64]},
        environment={"OMP_NUM_THREADS": ["1", "2"]},
        search={"method": "ablation"},
    )
    requests = [t.request for t in make_plan(spec, Resources("cpu", 2, "a cpu")).trials()]
    costs = FakeRunner(lambda config, setting: exactly(0.8), QUIET)
    results = analyse(spec, run_all(costs, requests)[0])
    halves = {
        tuple(each.changes): results.gains[name].gain.half_width for name, each in effects(results).items()
    }
    assert halves["OMP_NUM_THREADS",] > halves["batch_size",] > 0


def test_effects_are_ratios_of_the_figures_beside_them() -> None:
    spec = study(knobs={"batch_size": [32, 64], "gradient_accumulation": [1, 2]})
    results = analyse(spec, grid(spec, (2,), FakeRunner(seed=3))[0])
    assert results.default is not None
    default, found = results.scaling(results.default), effects(results)
    assert found
    for effect in found.values():
        mine = results.scaling(effect.record)
        assert mine.efficiency is not None
        assert default.efficiency is not None
        assert effect.efficiency_ratio.value == pytest.approx(
            mine.efficiency.value / default.efficiency.value, rel=1e-9
        )
        gain = results.gains[effect.record.trial_id].gain
        rate = mine.throughput_samples_per_s.value / default.throughput_samples_per_s.value
        assert 1 + gain.value == pytest.approx(rate, rel=1e-9)
