"""What each knob does to the efficiency, alone and together, in a winner, and what another workload does."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.attribution import attribution, between
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import BETWEEN_STARTS
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.report.answer import answer_of
from raybench.report.code import use_it
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import exactly, grid, planted, searched, study


def test_knobs_one_at_a_time_and_together() -> None:
    costs = {
        (8, 1): exactly(0.4),
        (8, 4): exactly(0.5),
        (128, 1): exactly(0.6),
        (128, 4): exactly(0.9),
    }
    found = planted(costs, "batch_size", "gradient_accumulation").attribution
    assert found is not None
    assert found.default_efficiency.value == pytest.approx(0.4)
    assert [(e.label, e.efficiency_ratio.value) for e in found.singles] == [
        ("batch 128", pytest.approx(1.5)),
        ("accumulation 4", pytest.approx(1.25)),
    ]
    (both,) = found.together
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
    found = attribution(
        analyse(spec, run_all(FakeRunner(seed=3), [trial.request for trial in plan.trials()])[0])
    )
    assert found is not None
    assert sorted(effect.label for effect in found.singles) == ["batch 32", "batch 32, accumulation 4"]
    (both,) = found.together
    assert both.changes == {"batch_size": 128, "gradient_accumulation": 4}
    assert both.label == "batch 128, accumulation 4"
    assert both.interaction is not None


def test_an_interaction_holds_the_uncertainty_of_all_its_trials() -> None:
    spec = study(knobs={"batch_size": [32, 64], "gradient_accumulation": [1, 2]})
    found = attribution(analyse(spec, grid(spec, (2,), FakeRunner(seed=3))[0]))
    assert found is not None
    (both,) = found.together
    assert both.interaction is not None
    assert both.interaction.relative_half_width > both.efficiency_ratio.relative_half_width


def test_two_studies_tell_the_model_from_the_settings() -> None:
    before = planted({(8,): exactly(0.2), (128,): exactly(0.4)}, "batch_size")
    after = planted({(128,): exactly(0.8), (8,): exactly(0.3)}, "batch_size")
    found = between(before, after)
    assert found is not None
    assert found.total.value == pytest.approx(4)
    assert found.workload is not None
    assert found.settings is not None
    assert found.interaction is not None
    assert (found.workload.value, found.settings.value) == pytest.approx((1.5, 2))
    assert found.interaction.value == pytest.approx(4 / (1.5 * 2))
    assert found.same_setting == "batch 8"
    apart = between(before, planted({(64,): exactly(0.8), (256,): exactly(0.3)}, "batch_size"))
    assert apart is not None
    assert apart.workload is apart.settings is apart.interaction is None


def test_an_interaction_of_several_starts_has_their_degrees_of_freedom() -> None:
    spec = study(knobs={"batch_size": [32, 64], "gradient_accumulation": [1, 2]}, measure={"starts": 2})
    found = attribution(analyse(spec, grid(spec, (2,), FakeRunner(seed=3))[0]))
    assert found is not None
    (both,) = found.together
    assert both.interaction is not None
    assert both.interaction.starts == 2


def test_settings_with_other_variables_are_of_other_workers() -> None:
    """Exact rounds: what is left between two worker groups is what starts differ by, as assumed."""
    spec = study(
        knobs={"batch_size": [32, 64]},
        environment={"OMP_NUM_THREADS": ["1", "2"]},
        search={"method": "ablation"},
    )
    requests = [t.request for t in make_plan(spec, Resources("cpu", 2, "a cpu")).trials()]
    costs = FakeRunner(lambda config, setting: exactly(0.8), QUIET)
    found = attribution(analyse(spec, run_all(costs, requests)[0]))
    assert found is not None
    halves = {effect.label: effect.efficiency_ratio.log_half_width for effect in found.singles}
    assert halves["batch 64"] == pytest.approx(0.0, abs=1e-9)
    assert halves["OMP_NUM_THREADS=2"] > 1.96 * BETWEEN_STARTS * 2**0.5


SPEC = study(knobs={"batch_size": [32, 128], "bucket_cap_mb": ["default", 5]})
WINNER = Setting(batch_size=128, bucket_cap_mb=5)


def results(of_buckets: float) -> StudyResults:
    """A batch of 128 is half as fast again; the buckets divide a step by so much."""

    def costs(config: object, setting: Setting) -> StepCosts:
        faster = of_buckets if setting.bucket_cap_mb == 5 else 1.0
        return StepCosts(0.01 * setting.batch_size / 32 / (1.5 if setting.batch_size == 128 else 1) / faster)

    return analyse(SPEC, searched(SPEC, (1, 2), WINNER, runner=FakeRunner(costs, Noise(block=0.01))))


@pytest.mark.parametrize(("of_buckets", "is_named"), [(1.0, True), (1.3, False)])
def test_the_knob_that_brings_nothing_is_named(of_buckets: float, is_named: bool) -> None:
    found = results(of_buckets)
    assert found.best is not None
    assert found.best.record.config.setting.differences(WINNER) == {}
    assert [knob.label for knob in found.marginal_effects] == (["5 MiB buckets"] if is_named else [])
    for knob in found.marginal_effects:
        assert knob.ratio.low <= 1 <= knob.ratio.high
    words = "not shown to add to that: 5 MiB buckets ("
    assert (words in answer_of(found)) is is_named
    code = use_it(found, {})
    assert code is not None
    assert ("Not shown to add to that: 5 MiB buckets (" in " ".join(code.sentences)) is is_named


def test_a_winner_of_one_knob_needs_no_word() -> None:
    one = Setting(batch_size=128)
    runner = FakeRunner(lambda config, setting: StepCosts(0.01 * setting.batch_size**0.5), Noise(block=0.01))
    assert analyse(SPEC, searched(SPEC, (1, 2), one, runner=runner)).marginal_effects == ()
