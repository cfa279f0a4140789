"""Which unit each block of a trial is of: one device, levels, the anchor; and devices that differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from raybench.analysis.reference import KnownBuckets, known_buckets
from raybench.analysis.scaling import Fit, scaling
from raybench.analysis.stats.rounds import device_effects
from raybench.analysis.units import baseline_unit, level_unit, plain_unit, pool_visits, step_unit
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from tests.support.planted import QUIET, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import MIB, asked, config, failed, grid, measured, request, study, with_anchor

NONE = KnownBuckets(())
COSTS = StepCosts(plain_s=0.010, contention_s=0.001, wrapper_s=0.0005, exposed_s=0.0015, replay_s=0.003)
DEFAULT = Setting(batch_size=64)
OTHER = Setting(batch_size=64, precision="bf16")


def recorded(setting: Setting, size: int = 2, **fields: object) -> TrialRecord:
    runner = FakeRunner(lambda config, setting: COSTS, QUIET)
    return run_all(runner, [request(setting=setting, world_size=size, **fields)])[0][0]


def test_a_full_trial_says_something_of_every_level() -> None:
    record = recorded(DEFAULT)
    (visit,) = pool_visits([record], NONE)
    config = record.config
    levels = ("concurrent", "local", "local slowest", "replay", "ddp")
    named = {level_unit(config, NONE, name) for name in levels}
    assert set(visit.logs) == {plain_unit(config, 64), *named}
    assert math.exp(visit.logs[step_unit(config, NONE)].mean()) == pytest.approx(0.013)
    assert math.exp(visit.logs[level_unit(config, NONE, "replay")].mean()) == pytest.approx(0.003)


def test_what_is_not_complete_says_nothing() -> None:
    assert pool_visits([failed(request())], NONE) == []


def test_a_variant_with_fewer_than_two_blocks_is_no_unit() -> None:
    record = recorded(DEFAULT)
    assert record.steps is not None
    first, *rest = record.steps.rounds
    kept = [
        each.model_copy(update={"blocks": tuple(b for b in each.blocks if b.variant != "plain")})
        for each in rest
    ]
    steps = record.steps.model_copy(update={"rounds": (first, *kept)})
    (visit,) = pool_visits([record.model_copy(update={"result": steps})], NONE)
    assert plain_unit(record.config, 64) not in visit.logs
    assert step_unit(record.config, NONE) in visit.logs


def test_the_anchor_is_the_defaults_real_step() -> None:
    """So a suggestion's trial is a visit of the default as well."""
    default = recorded(DEFAULT)
    with_it = with_anchor(request(setting=OTHER, role="search", variants=("plain", "ddp")), DEFAULT)
    (suggested,) = run_all(FakeRunner(lambda config, setting: COSTS, QUIET), [with_it])[0]
    unit = step_unit(default.config, NONE)
    (visit,) = pool_visits([suggested], NONE)
    assert unit in visit.logs
    assert step_unit(suggested.config, NONE) in visit.logs
    assert unit != step_unit(suggested.config, NONE)
    pool = Fit([default, suggested]).pool
    assert pool.time(unit).visits == 2
    assert pool.time(step_unit(suggested.config, NONE)).visits == 1


def test_one_device_of_a_group_is_that_of_a_trial_of_its_own() -> None:
    """Whatever matters between devices alone, such as buckets, tells none apart there."""
    two, one = recorded(DEFAULT), recorded(DEFAULT.at(1), 1)
    small = recorded(Setting(batch_size=64, bucket_cap_mb=1), 4)
    assert step_unit(one.config, NONE) == baseline_unit(two.config) == baseline_unit(small.config)
    assert baseline_unit(recorded(OTHER).config) != baseline_unit(two.config)
    assert baseline_unit(recorded(Setting(batch_size=32)).config) != baseline_unit(two.config)
    assert Fit([two, one, small]).pool.time(baseline_unit(two.config)).visits == 3


def test_a_named_device_is_another_than_whichever() -> None:
    anywhere, named = (config(setting=DEFAULT.at(1), world_size=1, placement=p) for p in ("pack", (3,)))
    assert step_unit(anywhere, NONE) != step_unit(named, NONE)


def test_a_named_device_keeps_what_it_is_slower_by() -> None:
    slower = StepCosts(plain_s=0.012)

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return slower if config.placement == (1,) else StepCosts(plain_s=0.010, offset_s=(0.0, 0.002))

    requests = [
        request(setting=DEFAULT.at(len(place)), world_size=len(place), placement=place)
        for place in ((0,), (1,), (0, 1))
    ]
    runner = FakeRunner(costs, QUIET)
    runner.start(2, {})
    records = run_all(runner, requests)[0]
    fit = Fit(records)
    fast_s, slow_s = (fit.scaling(record).step_time_s.value for record in records[:2])
    assert slow_s / fast_s == pytest.approx(1.2, rel=0.01)


def test_under_strong_scaling_the_base_is_one_device_at_the_global_batch() -> None:
    two = config(setting=DEFAULT, scaling="strong")
    one = config(setting=DEFAULT.at(1), scaling="strong", world_size=1)
    assert baseline_unit(two) == step_unit(one, NONE)
    assert baseline_unit(two) != plain_unit(two, two.micro_batch(two.setting))
    record = measured(StepCosts(plain_s=0.006, base_s=0.010), QUIET, scaling="strong", setting=DEFAULT)
    (visit,) = pool_visits([record], NONE)
    assert math.exp(visit.logs[baseline_unit(two)].mean()) == pytest.approx(0.010)
    assert math.exp(visit.logs[plain_unit(two, 32)].mean()) == pytest.approx(0.006)


def test_bucket_sizes_that_give_the_same_buckets_are_one_unit() -> None:
    spec = study(knobs={"bucket_cap_mb": ["default", 1, 25, 50]})
    costs = StepCosts(plain_s=0.01, exposed_s=0.002, parameter_bytes=(2 * MIB, 3 * MIB, 3 * MIB))
    records = grid(spec, (2,), FakeRunner(lambda config, setting: costs, QUIET))[0]
    buckets = known_buckets(spec, records)
    default, one, large, larger = (step_unit(record.config, buckets) for record in records)
    assert large == larger
    assert len({default, one, large}) == 3
    fit = Fit(records, buckets)
    assert fit.pool.time(large).visits == 2
    assert [each.trial_id for each in fit.visits(records[3])] == [each.trial_id for each in records[2:]]


# --- devices that differ


def slow_device(size: int, factor: float, **measure: int) -> TrialRecord:
    """The last of so many devices computes ``factor`` times as long as the others' 10 ms."""
    offsets = (*(0.0,) * (size - 1), 0.010 * (factor - 1))
    costs = StepCosts(plain_s=0.010, offset_s=offsets)
    return measured(costs, Noise(block=0.003, step=0.0), world_size=size, seed=5, **measure)


def test_a_slow_device_is_known_from_the_rounds_in_which_all_compute() -> None:
    record = slow_device(4, 1.2)
    assert record.steps is not None
    effects = device_effects([(record.group, record.steps.rounds)])
    assert set(effects) == {(record.group, rank) for rank in range(4)}
    assert sum(effects.values()) == pytest.approx(0.0, abs=1e-9)
    assert effects[record.group, 3] - effects[record.group, 0] == pytest.approx(math.log(1.2), abs=0.01)


@pytest.mark.parametrize("devices", [(0, 1), (2, 3), (3,)])
def test_a_baseline_on_some_devices_is_that_of_the_mean_of_all(devices: tuple[int, ...]) -> None:
    """Plain blocks that visit only some devices are set right by what the devices differ by."""
    found = scaling(only_on(slow_device(4, 1.2), devices)).baseline
    assert found is not None
    mean_s = 0.010 * math.exp(math.log(1.2) / 4)
    assert found.step_time_s.value == pytest.approx(mean_s, rel=0.01)


def only_on(record: TrialRecord, devices: tuple[int, ...]) -> TrialRecord:
    """The trial, had its plain blocks been on these devices alone."""
    assert record.steps is not None
    listed = [block for each in record.steps.rounds if (block := each.block("plain")) is not None]
    plain = {block.ranks[0]: block for block in listed}
    rounds = [
        each.model_copy(
            update={
                "blocks": tuple(
                    plain[devices[place % len(devices)]] if block.variant == "plain" else block
                    for block in each.blocks
                )
            }
        )
        for place, each in enumerate(record.steps.rounds)
    ]
    return record.model_copy(update={"result": record.steps.model_copy(update={"rounds": tuple(rounds)})})


def test_devices_that_differ_only_when_crowded_are_left_as_they_are_alone() -> None:
    record = slow_device(2, 1.0)
    assert record.steps is not None
    rounds = [
        each.model_copy(
            update={
                "blocks": tuple(
                    block.model_copy(update={"step_time_s": (0.010, 0.013)})
                    if block.variant == "concurrent"
                    else block
                    for block in each.blocks
                )
            }
        )
        for each in record.steps.rounds
    ]
    steps = record.steps.model_copy(update={"rounds": tuple(rounds)})
    effects = device_effects([(0, steps.rounds)])
    assert np.abs(list(effects.values())).max() < 0.01


def test_without_concurrent_blocks_no_device_is_told_from_another() -> None:
    record = recorded(DEFAULT, variants=("plain", "ddp"))
    assert record.steps is not None
    assert device_effects([(record.group, record.steps.rounds)]) == {}


def test_the_same_trial_asked_twice_has_one_name_for_what_it_measures() -> None:
    spec = study(knobs={"batch_size": [64]})
    runner = FakeRunner(lambda config, setting: COSTS, QUIET)
    records = run_all(runner, [asked(spec, "scaling", DEFAULT, 2, visit=visit) for visit in range(3)])[0]
    assert len({record.trial_id for record in records}) == 3
    assert Fit(records).pool.time(step_unit(records[0].config, NONE)).visits == 3


def test_each_visit_of_a_script_is_a_start() -> None:
    """Its processes are new, in workers that go on."""
    spec = study(workload={"script": "train.py"})
    records = [recorded(DEFAULT, workload=spec.workload, variants=("ddp",), visit=visit) for visit in (0, 1)]
    assert len({record.group for record in records}) == 1
    assert len({visit.group for visit in pool_visits(records, NONE)}) == 2
    alike = [recorded(DEFAULT, visit=visit) for visit in (0, 1)]
    assert len({visit.group for visit in pool_visits(alike, NONE)}) == 1


def test_a_start_is_planned_where_nothing_ended_the_workers() -> None:
    """Two groups of one planned start, as after a resume; where each trial has its own, each is planned."""
    first, other = recorded(DEFAULT), recorded(OTHER)
    resumed = [first, other.model_copy(update={"group": 1}), other.model_copy(update={"group": 2})]
    assert [each.group for each in pool_visits(resumed, NONE)] == [1, 1, 2]
    assert len({each.planned for each in pool_visits(resumed, NONE)}) == 1
    alone = [first, other.model_copy(update={"group": 2})]
    assert len({each.planned for each in pool_visits(alone, NONE)}) == 2
