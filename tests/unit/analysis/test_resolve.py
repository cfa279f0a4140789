"""A study's records resolved: which count, and that all visits of a setting have one figure."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import pytest

from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.stats.verdict import Verdict
from raybench.machine.environment import Spreads
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.spec.knobs import Setting
from tests.support.planted import QUIET, FakeHardware, FakeLearning, FakeRunner, StepCosts, run_all
from tests.unit.runs import run
from tests.unit.studies import MACHINE, asked, exactly, failed, grid, searched, study, trained, with_anchor

SPEC = study(knobs={"batch_size": [32, 64]}, scaling={"world_sizes": [1, 2, 4]})


def test_every_measured_trial_has_its_scaling_and_waterfall() -> None:
    records, _ = grid(SPEC, (1, 2, 4))
    results = resolve(SPEC, [*records, failed(asked(SPEC, "search", Setting(), 4))])
    assert results.target_world_size == 4
    assert len(results.measured) == len(records) == len(results.scalings)
    for record in results.measured:
        assert results.scaling(record) == results.fit.scaling(record)
        assert results.waterfalls[record.trial_id] == results.fit.waterfall(record)
    assert results.headline is not None
    assert results.headline_label == "batch 32"
    assert results.headline_scaling == results.scaling(results.headline)
    assert results.waterfall == results.waterfalls[results.headline.trial_id]
    assert [record.state for record in results.failed] == ["oom"]


def test_where_the_default_failed_in_one_placement_settings_are_compared_in_the_headlines() -> None:
    """A setting was advised by its figures in the one, beside the default's in the other."""
    spec = study(
        knobs={"precision": ["fp32", "bf16"]},
        scaling={"world_sizes": [1, 4], "placement": ["pack", "spread"]},
        search={"method": "grid"},
    )
    plan = make_plan(spec, Resources("cpu", 4, "a CPU", num_nodes=2))

    def fail(request: Any) -> tuple[str, str] | None:
        config = request.config
        is_first = config.placement == "pack" and config.setting.precision == "fp32"
        return ("crashed", "boom") if is_first and config.world_size == 4 else None

    _, store, _ = run(plan, FakeRunner(noise=QUIET, fail=fail))
    found = resolve(plan.study, store.records)
    assert found.headline is not None
    assert found.default is found.headline
    assert {(each.config.placement, each.config.setting.precision) for each in found.rivals} == {
        ("spread", "fp32"),
        ("spread", "bf16"),
    }


# --- one figure


SEARCHED = study(knobs={"batch_size": [32, 64, 128]}, search={"method": "optuna", "trials": 3})
WINNER = Setting(batch_size=128)


@pytest.fixture(scope="module")
def visited() -> Facts:
    """Default and winner are visited three times, and the default is an anchor beside the others."""
    return resolve(SEARCHED, searched(SEARCHED, (1, 2, 4), WINNER))


def test_all_visits_of_a_setting_have_one_figure(visited: Facts) -> None:
    by_setting: dict[object, set[object]] = {}
    for record in visited.measured:
        key = visited.fit.buckets.key(record.config)
        by_setting.setdefault(key, set()).add(
            (visited.scaling(record), repr(visited.waterfalls[record.trial_id]))
        )
    assert any(len(visited.fit.visits(record)) >= 3 for record in visited.measured)
    assert all(len(figures) == 1 for figures in by_setting.values())


def test_an_anchor_is_a_visit_of_the_default(visited: Facts) -> None:
    default = visited.default
    assert default is not None
    anchored = [each for each in visited.measured if each.request.kind == "steps" and each.request.anchor]
    assert anchored
    assert visited.scaling(default).step_time_s.visits == len(visited.fit.visits(default)) + len(anchored)


def test_figures_of_a_setting_hold_the_relations_that_define_them(visited: Facts) -> None:
    """Exactly: speed-up = base step / step x n, efficiency = speed-up / n, throughput = samples / step."""
    for record in visited.measured:
        found, size = visited.scaling(record), record.config.world_size
        assert record.steps is not None
        rate = record.steps.samples_per_step / found.step_time_s.value
        assert found.throughput_samples_per_s.value == pytest.approx(rate, rel=1e-12)
        if size == 1:
            continue
        assert found.baseline is not None
        assert found.speedup is not None
        assert found.efficiency is not None
        over = found.baseline.step_time_s.value / found.step_time_s.value * size
        assert found.speedup.value == pytest.approx(over, rel=1e-9)
        assert found.efficiency.value == pytest.approx(found.speedup.value / size, rel=1e-12)


def test_parts_add_up_exactly_to_the_step_of_all_visits(visited: Facts) -> None:
    for record in visited.measured:
        found = visited.waterfalls[record.trial_id]
        assert found is not None
        total = math.fsum(part.value for part in found.parts.present().values())
        assert total == pytest.approx(visited.scaling(record).step_time_s.value, rel=1e-12)


def test_a_strong_scaling_speed_up_is_over_the_one_device_trial() -> None:
    """The step of one device at the global batch: in the rounds of two, and in a trial of its own."""
    spec = study(knobs={"batch_size": 64}, scaling={"mode": "strong", "world_sizes": [1, 2, 4]})
    facts = resolve(spec, grid(spec, (1, 2, 4))[0])
    one, two, four = sorted(facts.measured, key=lambda each: each.config.world_size)
    bases = [facts.scaling(each).baseline for each in (two, four)]
    for base in bases:
        assert base is not None
        assert base.step_time_s == facts.scaling(one).step_time_s
        assert base.step_time_s.visits == 3


def test_more_visits_make_a_figure_surer() -> None:
    records = searched(SEARCHED, (1, 2), WINNER)
    first = [each for each in records if not (each.request.kind == "steps" and each.request.visit)]
    once, thrice = resolve(SEARCHED, first), resolve(SEARCHED, records)
    assert once.headline is not None
    before, after = (facts.scaling(once.headline) for facts in (once, thrice))
    assert after.step_time_s.visits > before.step_time_s.visits
    assert after.step_time_s.half_width < before.step_time_s.half_width
    assert before.efficiency is not None
    assert after.efficiency is not None
    assert after.efficiency.half_width < before.efficiency.half_width


# --- the best


def test_the_best_is_not_the_default(visited: Facts) -> None:
    best = visited.best
    assert best is not None
    assert best.config.setting.batch_size == 128
    assert best is not visited.default
    assert len(visited.rivals) == 3


def test_of_equal_settings_none_is_known_to_be_better() -> None:
    spec = study(knobs={"precision": ["fp32", "bf16", "fp16", "tf32"]})
    equal = FakeRunner(lambda config, setting: StepCosts(plain_s=0.01, exposed_s=0.002), seed=5)
    facts = resolve(spec, grid(spec, (2,), equal)[0])
    assert {each.verdict for each in facts.gains.values()} == {Verdict.UNKNOWN}


def test_the_chance_to_be_the_fastest_and_the_regret_are_those_of_the_gain() -> None:
    """Of two settings: by the normal distribution of the logarithm of their ratio."""
    spec = study(knobs={"precision": ["fp32", "bf16"]})
    near = FakeRunner(lambda config, setting: StepCosts(plain_s=0.01, exposed_s=0.002), seed=5)
    facts = resolve(spec, grid(spec, (2,), near)[0])
    default = facts.default
    assert default is not None
    other = next(each for each in facts.rivals if each is not default)
    (ratio,) = facts.fit.rate_ratios([(other, default)])
    log = NormalDist(
        math.log(ratio.value), math.log(ratio.high / ratio.low) / (2 * NormalDist().inv_cdf(0.975))
    )
    assert 0.02 < facts.chances[other.trial_id] < 0.98
    assert facts.chances[other.trial_id] == pytest.approx(1 - log.cdf(0), abs=0.03)
    assert sum(facts.chances.values()) == pytest.approx(1)
    regret = facts.regret(default)
    assert regret is not None
    assert regret.high == pytest.approx(max(0.0, math.expm1(log.inv_cdf(0.95))), rel=0.1)
    standard = NormalDist(log.mean / log.stdev, 1)
    lost = log.stdev * NormalDist().pdf(standard.mean) + log.mean * (1 - standard.cdf(0))
    assert regret.value == pytest.approx(lost, rel=0.1)  # E[max(x, 0)]; of small x exp(x) - 1


def test_what_may_not_be_advised_has_no_chance_and_no_regret(visited: Facts) -> None:
    best = visited.best
    assert best is not None
    assert visited.chances == pytest.approx({each.trial_id: float(each is best) for each in visited.sound})
    assert visited.regret(best) is not None
    elsewhere = next(each for each in visited.references if each.config.world_size < 4)
    assert visited.regret(elsewhere) is None


def test_gains_are_over_the_default_and_of_every_rival(visited: Facts) -> None:
    default = visited.default
    assert default is not None
    others = [each for each in visited.rivals if each is not default]
    assert set(visited.gains) == {each.trial_id for each in others}
    rate = visited.scaling(default).throughput_samples_per_s.value
    for record in others:
        found = visited.gain(record)
        assert found is not None
        mine = visited.scaling(record).throughput_samples_per_s.value
        assert found.gain.value == pytest.approx(mine / rate - 1, rel=1e-9)
        assert found.verdict is Verdict.BETTER
    assert visited.gain(default) is None


def test_settings_with_other_variables_are_of_other_workers() -> None:
    """Exact rounds: between two worker groups is what starts differ by, within one it is not."""
    spec = study(
        knobs={"batch_size": [32, 64]},
        environment={"OMP_NUM_THREADS": ["1", "2"]},
        search={"method": "ablation"},
    )
    requests = make_plan(spec, Resources("cpu", 2, "a cpu")).trials()
    costs = FakeRunner(lambda config, setting: exactly(0.8), QUIET)
    results = resolve(spec, run_all(costs, requests)[0])
    assert results.default is not None
    halves = {
        tuple(each.config.differences(results.default.config)): results.gains[each.trial_id].gain.half_width
        for each in results.rivals
        if each is not results.default
    }
    assert halves["OMP_NUM_THREADS",] > halves["batch_size",] > 0


@pytest.mark.parametrize("is_anchored", [True, False])
def test_an_anchor_tells_settings_apart_that_trials_on_their_own_leave_open(is_anchored: bool) -> None:
    """A tenth is more than rounds leave open, and less than what trials differ by."""
    costs = {cap: StepCosts(plain_s=0.01, exposed_s=exposed) for cap, exposed in ((25, 0.004), (1, 0.0027))}
    spec = study(knobs={"bucket_cap_mb": [25, 1]})
    slow, fast = (Setting(batch_size=32, bucket_cap_mb=cap) for cap in (25, 1))
    runner = FakeRunner(lambda config, setting: costs[setting.bucket_cap_mb], QUIET)
    measuring = [asked(spec, "scaling", setting, 2, variants=("ddp",)) for setting in (slow, fast)]
    measuring[1] = with_anchor(measuring[1], slow) if is_anchored else measuring[1]
    spreads = Spreads(trial=0.10, unit=0.01, start=0.10, start_unit=0.01)
    machine = MACHINE.model_copy(update={"spreads": spreads})
    (gain,) = resolve(spec, run_all(runner, measuring, spec.name)[0], machine).gains.values()
    assert (gain.verdict is Verdict.BETTER) is is_anchored


def test_the_gain_of_a_visit_is_that_of_its_setting(visited: Facts) -> None:
    best = visited.best
    assert best is not None
    visits = visited.fit.visits(best)
    assert len(visits) >= 3
    assert len({id(visited.gain(each)) for each in visits}) == 1


def test_without_the_default_there_are_no_gains() -> None:
    spec = study(knobs={"batch_size": [32, 64, 128]})
    kept = [each for each in grid(spec, (2,))[0] if each.config.setting.batch_size > 32]
    facts = resolve(spec, kept)
    assert facts.default is None
    assert facts.gains == {}
    assert facts.best is not None
    assert facts.gain(facts.best) is None


def test_of_records_with_one_id_the_last_counts() -> None:
    records, _ = grid(SPEC, (1, 2))
    first = failed(asked(SPEC, "scaling", Setting(batch_size=64), 2))
    assert first.trial_id in {record.trial_id for record in records}
    results = resolve(SPEC, [first, *records])
    assert len(results.records) == len(records)
    assert results.failed == ()


def test_training_has_no_scaling_and_counts_as_complete() -> None:
    spec = study(workload={"name": "vision", "input": "real"}, training={"epochs": 2})
    records, _ = grid(spec, (1, 2))
    results = resolve(spec, [*records, *trained(spec, (1, 2), FakeLearning(num_train=77))])
    assert len(results.complete) == len(records) + 2
    assert len(results.measured) == len(records)
    assert set(results.scalings) == {record.trial_id for record in records}
    assert results.epoch_samples == 77


def test_probes_say_what_max_stands_for_and_are_not_among_the_records() -> None:
    spec = study(knobs={"batch_size": "max"}, resources={"device": "cuda"}, scaling={"world_sizes": [1, 2]})
    plan = make_plan(spec, Resources("cuda", 2, "a GPU"))
    hardware = FakeHardware(memory_fixed_bytes=0, memory_sample_bytes=1 << 20)
    runner = FakeRunner(hardware.costs, memory_limit_bytes=10 << 30)
    (combination,) = plan.combinations()
    requests = [plan.probe(combination, batch) for batch in (1024, 2048)]
    results = resolve(spec, run_all(runner, requests)[0])
    assert results.records == ()
    assert results.headline is None
    (found,) = results.largest
    assert found.batch_size == 2048
    assert results.study.knobs.batch_size == (2048,)
    assert spec.knobs.batch_size == ("max",)


def test_nothing_is_nothing() -> None:
    results = resolve(SPEC, [])
    assert (results.headline, results.waterfall, results.headline_scaling) == (None, None, None)
    assert results.headline_label == ""
    assert results.epoch_samples is None
