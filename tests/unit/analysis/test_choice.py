"""The default, the best and the headline: one answer, whoever asks, and the same before and after a curve."""

from __future__ import annotations

import pytest

from raybench.analysis import choice
from raybench.analysis.objectives import Candidate
from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import Fit, scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, StepsRequest, Variant
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import asked, config, failed, measured, request, searched, study

BATCHES = {"knobs": {"batch_size": [32, 64, 128]}}


def slow_when_spread(config: Configuration, setting: Setting) -> StepCosts:
    """Packed, batch 64 is the fastest; spread, batch 128 is, and faster than anything packed."""
    packed = {32: 0.010, 64: 0.012, 128: 0.040}
    spread = {32: 0.010, 64: 0.030, 128: 0.011}
    step_s = (packed if config.placement == "pack" else spread)[setting.batch_size]
    return StepCosts(plain_s=0.009, exposed_s=step_s - 0.009)  # one device stands nowhere


def placed(spec: Study, size: int = 2) -> list[StepsRequest]:
    """The grid at one world size, in every placement."""
    return [
        asked(spec, "scaling", setting, size, placement=placement)
        for setting in spec.knobs.grid()
        for placement in choice.placements(spec, size)
    ]


def batch(record: TrialRecord | None) -> int | None:
    return record.config.setting.batch_size if record else None


# --- the default


def test_the_default_has_the_first_value_of_every_list() -> None:
    spec = study(
        knobs={"batch_size": [64, 32], "precision": ["bf16", "fp32"]},
        environment={"OMP_PROC_BIND": ["false", "true"]},
    )
    assert choice.default_setting(spec) == Setting(batch_size=64, precision="bf16")
    assert choice.default_environment(spec) == {"OMP_PROC_BIND": "false"}
    first, other = ({"OMP_PROC_BIND": value} for value in ("false", "true"))
    default = choice.default_setting(spec)
    assert choice.is_default(spec, config(setting=default, environment=first))
    assert not choice.is_default(spec, config(setting=default, environment=other))
    assert not choice.is_default(spec, config(setting=Setting(batch_size=64), environment=first))


@pytest.mark.parametrize(("device", "strategy"), [("cpu", "ddp"), ("cuda", "dp"), ("auto", "dp")])
def test_the_default_strategy_is_one_that_runs_on_the_studys_device(device: str, strategy: str) -> None:
    """``dp`` needs GPUs; a study that is not resolved yet is taken to run on them."""
    spec = study(knobs={"strategy": ["dp", "ddp"]}, resources={"device": device})
    assert choice.default_setting(spec).strategy == strategy


def test_what_cannot_matter_on_one_device_makes_no_difference_to_the_default() -> None:
    spec = study(knobs={"batch_size": [32], "bucket_cap_mb": [25, 1]})
    other = Setting(batch_size=32, bucket_cap_mb=1)
    assert choice.is_default(spec, config(setting=other.at(1), world_size=1))
    assert not choice.is_default(spec, config(setting=other, world_size=2))


# --- target and placements


def test_the_target_is_as_the_study_says_else_the_largest() -> None:
    listed = {"world_sizes": [4, 1, 2]}
    assert choice.target_world_size(study(scaling=listed), [8]) == 4
    assert choice.target_world_size(study(), [1, 8, 2]) == 8
    assert choice.target_world_size(study(), []) == 1


def test_a_list_of_ranks_stands_for_its_own_length_and_one_device_is_packed() -> None:
    spec = study(scaling={"placement": ["spread", [0, 3], "pack"]})
    assert choice.placements(spec, 2) == ["spread", (0, 3), "pack"]
    assert choice.placements(spec, 4) == ["spread", "pack"]
    assert choice.placements(spec, 1) == ["pack"]
    assert choice.default_placement(spec, 4) == "spread"
    named = study(scaling={"placement": [[3], [0, 3]], "world_sizes": [1, 2, 4]})
    assert choice.placements(named, 1) == [(3,)]
    assert choice.placements(named, 4) == ["pack"]


# --- rivals, candidates, winners


def test_rivals_are_one_trial_of_each_setting_at_the_target() -> None:
    spec = study(**BATCHES, search={"method": "optuna", "trials": 3})
    records = searched(spec, (1, 2), Setting(batch_size=128))
    found = resolve(spec, records).rivals
    assert sorted(batch(record) or 0 for record in found) == [32, 64, 128]
    assert {record.config.world_size for record in found} == {2}
    assert len([record for record in records if record.config.world_size == 2]) > 3  # visits


def test_failed_suggestions_count_but_are_no_candidates() -> None:
    spec = study(**BATCHES)
    asked_for = [asked(spec, "scaling", setting, 2) for setting in spec.knobs.grid()]
    records = [*run_all(FakeRunner(noise=QUIET), asked_for[:2])[0], failed(asked_for[2])]
    one, *others = run_all(FakeRunner(noise=QUIET), asked_for[:1])[0], failed(asked_for[1])
    assert len(resolve(spec, records).rivals) == 2
    assert resolve(spec, [*one, *others]).best is not None
    assert resolve(spec, one).best is None


def test_oversubscribed_trials_are_no_candidates() -> None:
    spec = study(**BATCHES)
    asked_for = [request(setting=setting, oversubscribed=True) for setting in spec.knobs.grid()]
    records = run_all(FakeRunner(noise=QUIET), asked_for)[0]
    assert len(resolve(spec, records).rivals) == 3
    assert resolve(spec, records).chosen == ()
    assert resolve(spec, records).best is None


def test_one_suggestion_is_nothing_to_choose_from() -> None:
    spec = study(knobs={"batch_size": [32]})
    records = run_all(FakeRunner(), [asked(spec, "scaling", Setting(batch_size=32), 2)])[0]
    assert resolve(spec, records).best is None


def test_a_candidate_has_a_value_for_every_objective_or_is_none() -> None:
    spec = study(**BATCHES, search={"objectives": ["efficiency", "peak_memory"]})
    gone: dict[Variant, str] = {"plain": "out of memory"}
    costs = (StepCosts(plain_s=0.01), StepCosts(plain_s=0.01, missing=gone))
    with_base, without = (measured(each, Noise(), role="search", variants=("plain", "ddp")) for each in costs)
    found = choice.objective_values(spec, with_base, scaling(with_base))
    assert found is not None
    efficiency, memory = found
    assert efficiency.value == pytest.approx(1.0, abs=0.05)
    assert memory.value == 1 << 30
    assert choice.objective_values(spec, without, scaling(without)) is None


def test_the_winner_has_most_of_what_is_to_be_most_and_least_of_what_is_to_be_least() -> None:
    records = run_all(FakeRunner(), [request()])[0]
    values = [Estimate(value, value - 5, value + 5, 10) for value in (2.0, 3.0, 1.0)]
    candidates = [Candidate(records[0], (value,)) for value in values]
    for objective, value in (("throughput", 3.0), ("efficiency", 3.0), ("cost_per_sample", 1.0)):
        (winner,) = choice.winners(study(search={"objectives": [objective]}), candidates, Fit(records))
        assert winner.values[0].value == value  # by what is expected, however sure it is
    assert choice.winners(study(), [], Fit([])) == []


def test_of_equal_values_of_the_first_objective_the_second_decides() -> None:
    (record,) = run_all(FakeRunner(), [request()])[0]
    candidates = [
        Candidate(record, tuple(Estimate(value, value, value, 10) for value in values))
        for values in ((3.0, 100.0), (2.0, 100.0), (2.0, 300.0), (2.0, 200.0))
    ]
    first = choice.first_by(candidates, ["peak_memory", "throughput"])
    assert first is candidates[2]
    assert choice.first_by([], ["throughput"]) is None


def test_of_several_objectives_the_front_wins_and_its_first_is_the_best() -> None:
    spec = study(**BATCHES, search={"objectives": ["throughput", "peak_memory"]})
    asked_for = [asked(spec, "scaling", setting, 2) for setting in spec.knobs.grid()]
    records = run_all(FakeRunner(noise=QUIET), asked_for)[0]
    facts = resolve(spec, records)
    assert [batch(each.record) for each in facts.chosen] == [32, 64, 128]
    assert facts.winners == [each.record for each in facts.chosen]
    assert facts.best is not None
    assert batch(facts.best) == 128


# --- where settings are compared


def test_with_two_placements_the_first_decides_whoever_asks() -> None:
    spec = study(**BATCHES, scaling={"placement": ["pack", "spread"]})
    records = run_all(FakeRunner(slow_when_spread, QUIET), placed(spec))[0]
    named = resolve(spec, records).best
    assert named is not None
    assert (batch(named), named.config.placement) == (64, "pack")


def test_the_order_of_the_placements_decides() -> None:
    spec = study(**BATCHES, scaling={"placement": ["spread", "pack"]})
    records = run_all(FakeRunner(slow_when_spread, QUIET), placed(spec))[0]
    (chosen,) = resolve(spec, records).chosen
    assert (batch(chosen.record), chosen.record.config.placement) == (128, "spread")


def test_a_grid_may_compare_with_its_own_smallest_world_size() -> None:
    def model(config: Configuration, setting: Setting) -> StepCosts:
        exposed_s = 0.001 * config.world_size * 32 / setting.batch_size
        return StepCosts(plain_s=0.01, exposed_s=exposed_s, missing={"plain": "out of memory"})

    spec = study(**BATCHES, scaling={"world_sizes": [2, 4]}, search={"objectives": ["efficiency"]})
    asked_for = [asked(spec, "scaling", setting, size) for setting in spec.knobs.grid() for size in (2, 4)]
    records = run_all(FakeRunner(model, QUIET), asked_for)[0]
    (chosen,) = resolve(spec, records).chosen
    assert batch(chosen.record) == 128
    efficiency = resolve(spec, records).scaling(chosen.record).efficiency
    assert efficiency is not None
    assert efficiency.value == pytest.approx(0.011 / 0.0115 * 64 / 64, rel=0.05)


def test_an_efficiency_over_more_devices_is_no_candidate() -> None:
    """Batch 128 does not fit one device, so that its efficiency of 96% is over two of them."""

    def model(config: Configuration, setting: Setting) -> StepCosts:
        missing: dict[Variant, str] = {"plain": "out of memory"} if setting.batch_size == 128 else {}
        return StepCosts(plain_s=0.01, exposed_s=0.01 + 0.0002 * config.world_size, missing=missing)

    spec = study(**BATCHES, scaling={"world_sizes": [2, 4]}, search={"objectives": ["efficiency"]})
    asked_for = [asked(spec, "scaling", setting, size) for setting in spec.knobs.grid() for size in (2, 4)]
    facts = resolve(spec, run_all(FakeRunner(model, QUIET), asked_for)[0])
    sizes = {batch(each): facts.scaling(each).baseline for each in facts.rivals}
    assert {size: base and base.world_size for size, base in sizes.items()} == {32: 1, 64: 1, 128: 2}
    (chosen,) = facts.chosen
    assert batch(chosen.record) != 128


# --- the headline


def test_the_headline_is_the_defaults_scaling_trial_at_the_target() -> None:
    spec = study(**BATCHES, search={"method": "optuna", "trials": 3}, scaling={"world_sizes": [1, 2]})
    records = searched(spec, (1, 2), Setting(batch_size=128))
    found = choice.headline(spec, records, 2)
    assert found is not None
    assert (found.request.role, found.config.world_size, batch(found)) == ("scaling", 2, 32)
    without_curve = [record for record in records if record.request.role != "scaling"]
    found = choice.headline(spec, without_curve, 2)
    assert found is not None
    assert (found.request.role, found.config.world_size) == ("search", 2)


def test_a_trial_that_tests_a_claim_is_no_headline() -> None:
    spec = study(**BATCHES)
    checked = run_all(FakeRunner(seed=1), [asked(spec, "verification", Setting(batch_size=32), 2)])[0]
    curve = run_all(FakeRunner(seed=1), [asked(spec, "search", Setting(batch_size=64), 2)])[0]
    assert choice.headline(spec, checked, 2) is None
    assert choice.headline(spec, [*checked, *curve], 2) is curve[0]


def test_without_the_target_the_headline_is_the_largest_that_is_complete_and_none_without_any() -> None:
    spec = study(**BATCHES, scaling={"world_sizes": [1, 2, 4]})
    sizes = [asked(spec, "scaling", Setting(batch_size=64), size) for size in (1, 2, 4)]
    records = [*run_all(FakeRunner(), sizes[:2])[0], failed(sizes[2])]
    found = choice.headline(spec, records, 4)
    assert found is not None
    assert found.config.world_size == 2
    assert choice.headline(spec, [failed(sizes[2])], 4) is None
    assert choice.headline(spec, [], 4) is None


def test_the_headline_stands_in_the_first_placement() -> None:
    spec = study(**BATCHES, scaling={"placement": ["spread", "pack"]})
    records = run_all(FakeRunner(slow_when_spread, QUIET), placed(spec)[::-1])[0]
    found = choice.headline(spec, records, 2)
    assert found is not None
    assert (batch(found), found.config.placement) == (32, "spread")
