from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from raybench.analysis.findings.evenness import slowest_rank
from raybench.analysis.laws import serial_fraction
from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.spec.knobs import Setting
from tests.support.alone import waterfall
from tests.support.planted import QUIET, Noise, StepCosts, truth
from tests.unit.studies import measured

PLAIN = StepCosts(plain_s=0.010)
ALL = StepCosts(
    plain_s=0.010,
    contention_s=0.0012,
    wrapper_s=0.0009,
    exposed_s=0.0025,
    replay_s=0.004,
    offset_s=(0.0, 0.0, 0.0, 0.0015),
    jitter_s=0.002,
)
NOISE = Noise(block=0.01, step=0.005, preemption=0.04)


def parts_of(record: TrialRecord) -> Waterfall:
    found = waterfall(record)
    assert found is not None
    return found


def covered(costs: StepCosts, noise: Noise = NOISE, trials: int = 20, **fields: Any) -> dict[str, float]:
    """The share of trials in which each part's 95% interval holds what was planted."""
    hits: Counter[str] = Counter()
    for seed in range(trials):
        record = measured(costs, noise, seed=seed, **fields)
        found, planted = parts_of(record), truth(costs, record.config)
        intervals = found.parts.present() | {"step_time": found.step_time_s}
        if found.hidden_communication_s is not None:
            intervals["hidden"] = found.hidden_communication_s
            planted["hidden_s"] = planted["replay_s"] - planted["exposed_communication_s"]
        for name, part in intervals.items():
            # The skew that the tests plant without jitter has no noise: rounding must not decide.
            hits[name] += part.low - 1e-9 <= planted[f"{name}_s"] <= part.high + 1e-9
    return {name: number / trials for name, number in hits.items()}


def test_parts_add_up_exactly() -> None:
    found = parts_of(measured(ALL, Noise(block=0.1, preemption=0.2), world_size=4))
    total = math.fsum(part.value for part in found.parts.present().values())
    assert total == pytest.approx(found.step_time_s.value, rel=1e-12)


@pytest.mark.parametrize(
    "costs",
    [
        PLAIN,
        replace(PLAIN, contention_s=0.002),
        replace(PLAIN, wrapper_s=0.002),
        replace(PLAIN, offset_s=(0.0, 0.002)),
        replace(PLAIN, jitter_s=0.004),
        replace(PLAIN, exposed_s=0.003, replay_s=0.003),
        replace(PLAIN, exposed_s=0.001, replay_s=0.005),
    ],
    ids=["nothing", "contention", "wrapper", "straggler", "jitter", "exposed", "hidden"],
)
def test_each_part_alone_is_recovered(costs: StepCosts) -> None:
    shares = covered(costs)
    assert min(shares.values()) >= 0.85, shares


@pytest.mark.parametrize("world_size", [2, 4])
def test_all_parts_together_are_recovered(world_size: int) -> None:
    shares = covered(ALL, world_size=world_size)
    assert len(shares) == 7
    assert min(shares.values()) >= 0.85, shares


def test_a_constant_straggler_is_named_with_its_delay() -> None:
    record = measured(replace(PLAIN, offset_s=(0.0, 0.0, 0.0015)), NOISE, world_size=3)
    assert record.steps is not None
    found = slowest_rank([record.steps], 0.0)
    assert found is not None
    rank, ratio, excess_s = found
    assert rank == 2
    assert excess_s.low <= 0.0015 <= excess_s.high
    assert ratio.excludes(1)


def test_interference_makes_hidden_negative() -> None:
    found = parts_of(measured(replace(PLAIN, exposed_s=0.004, replay_s=0.003), QUIET))
    assert found.hidden_communication_s is not None
    assert found.hidden_communication_s.value == pytest.approx(-0.001)


@pytest.mark.parametrize("scaling_mode", ["weak", "strong"])
def test_the_ideal_part_is_the_one_device_of_the_speed_up(scaling_mode: str) -> None:
    """One step of one device has one value and one interval, in the waterfall and beside the speed-up."""
    costs = StepCosts(plain_s=0.010, base_s=0.018, exposed_s=0.002)
    record = measured(costs, Noise(block=0.05, step=0.02), scaling=scaling_mode)
    ideal, one = parts_of(record).parts.ideal, scaling(record).one_device
    assert ideal is not None
    assert one is not None
    over = record.config.world_size if scaling_mode == "strong" else 1
    assert ideal.value == pytest.approx(one.step_time_s.value / over, rel=1e-9)
    assert ideal.low < ideal.value < ideal.high


def test_strong_scaling_has_a_small_batch_part() -> None:
    costs = StepCosts(plain_s=0.006, base_s=0.020, contention_s=0.0005, exposed_s=0.001, replay_s=0.001)
    fields: dict[str, Any] = {"world_size": 4, "scaling": "strong", "setting": Setting(batch_size=64)}
    shares = covered(costs, **fields)
    assert min(shares.values()) >= 0.85, shares
    exact = parts_of(measured(costs, QUIET, **fields)).parts
    assert isinstance(exact.ideal, Estimate)
    assert isinstance(exact.small_batch, Estimate)
    assert exact.ideal.value == pytest.approx(0.005)
    assert exact.small_batch.value == pytest.approx(0.001)


def test_weak_scaling_has_no_small_batch_part() -> None:
    assert parts_of(measured(ALL, QUIET)).parts.small_batch is None


def test_without_local_wrapper_and_skew_are_in_exposed_and_it_is_said() -> None:
    costs = replace(ALL, offset_s=(), jitter_s=0.0, missing={"local": "no room for the twin"})
    found = parts_of(measured(costs, QUIET))
    assert found.parts.wrapper is None
    assert found.parts.skew is None
    assert found.parts.exposed_communication is not None
    assert found.parts.exposed_communication.value == pytest.approx(0.0009 + 0.0025)
    assert found.missing == {"local": "no room for the twin"}
    assert sum(part.value for part in found.parts.present().values()) == pytest.approx(
        found.step_time_s.value
    )


def test_with_plain_and_ddp_only_the_loss_is_not_divided() -> None:
    found = parts_of(measured(replace(ALL, offset_s=(), jitter_s=0.0), QUIET, variants=("plain", "ddp")))
    assert list(found.parts.present()) == ["ideal", "undivided"]
    assert found.parts.undivided is not None
    assert found.parts.undivided.value == pytest.approx(0.0012 + 0.0009 + 0.0025)
    assert found.communication_fraction is None
    assert found.hidden_communication_s is None


def test_where_ranks_wait_for_one_another_without_transfers_too_skew_is_not_divided() -> None:
    """As its own collectives have them in a script: 1.2 ms of contention and 0.9 of the wrapper."""
    record = measured(replace(ALL, offset_s=(), jitter_s=0.0), QUIET, variants=("plain", "local", "ddp"))
    assert record.steps is not None
    sends = record.steps.model_copy(update={"local_collectives": 1})
    found = parts_of(record.model_copy(update={"result": sends}))
    assert found.local_sends
    assert list(found.parts.present()) == ["ideal", "exposed_communication", "undivided"]
    assert found.parts.undivided is not None
    assert found.parts.exposed_communication is not None
    assert found.parts.undivided.value == pytest.approx(0.0012 + 0.0009)
    assert found.parts.exposed_communication.value == pytest.approx(0.0025)


def test_without_a_single_device_steps_that_keep_gradients_are_no_loss() -> None:
    """Whatever a script sends in them: nothing says what they would take without."""
    record = measured(replace(ALL, offset_s=(), jitter_s=0.0), QUIET, variants=("local", "ddp"))
    assert record.steps is not None
    sends = record.steps.model_copy(update={"local_collectives": 1})
    found = parts_of(record.model_copy(update={"result": sends}))
    assert list(found.parts.present()) == ["exposed_communication"]
    assert found.compute_s is not None


def test_without_a_single_device_it_begins_at_what_all_compute() -> None:
    """As of a model that no device holds alone: FSDP without transfers is the lowest level."""
    missing = {"plain": "out of memory", "concurrent": "out of memory"}
    found = parts_of(measured(replace(ALL, jitter_s=0.0, offset_s=(0.0, 0.002), missing=missing), QUIET))
    assert list(found.parts.present()) == ["skew", "exposed_communication"]
    assert found.compute_s is not None
    assert found.compute_s.value == pytest.approx(0.010 + 0.0012 + 0.0009 + 0.001)
    assert found.parts.exposed_communication is not None
    assert found.parts.exposed_communication.value == pytest.approx(0.0025)
    assert found.parts.skew is not None
    assert found.parts.skew.value == pytest.approx(0.001)
    assert found.t_comm_s is found.t_comm_fraction is None
    assert found.missing == missing


def test_without_any_level_there_is_no_waterfall() -> None:
    missing = dict.fromkeys(("plain", "concurrent", "local"), "out of memory")
    assert waterfall(measured(replace(PLAIN, missing=missing), QUIET)) is None


def test_one_device_is_all_ideal() -> None:
    found = parts_of(measured(PLAIN, world_size=1, setting=Setting().at(1)))
    assert list(found.parts.present()) == ["ideal"]
    assert found.parts.ideal == found.step_time_s


def test_strong_without_base_starts_at_plain_and_says_so() -> None:
    costs = StepCosts(plain_s=0.006, base_s=0.02, exposed_s=0.001, missing={"base": "out of memory"})
    found = parts_of(measured(costs, QUIET, scaling="strong", setting=Setting(batch_size=64)))
    assert list(found.parts.present()) == ["contention", "wrapper", "skew", "exposed_communication"]
    assert found.compute_s is not None
    assert found.compute_s.value == pytest.approx(0.006)
    every = [found.compute_s, *found.parts.present().values()]
    assert sum(each.value for each in every) == pytest.approx(found.step_time_s.value)
    assert found.t_comm_s is None  # what one device would need for the global batch is not known
    assert found.missing == {"base": "out of memory"}


def test_the_simple_words() -> None:
    costs = StepCosts(plain_s=0.010, exposed_s=0.0025, replay_s=0.005, gradient_bytes=8_000_000)
    found = parts_of(measured(costs, QUIET, world_size=4))
    assert found.t_comm_s is not None
    assert found.t_comm_s.value == pytest.approx(0.0025)
    assert found.t_comm_fraction is not None
    assert found.t_comm_fraction.value == pytest.approx(0.2)
    assert found.communication_fraction is not None
    assert found.communication_fraction.value == pytest.approx(0.2)
    assert found.bus_bandwidth_bytes_per_s is not None
    assert found.bus_bandwidth_bytes_per_s.value == pytest.approx(8_000_000 * 1.5 / 0.005)
    assert found.compute_to_communication is not None
    assert found.compute_to_communication.value == pytest.approx(2.0)


def test_karp_flatt_of_amdahls_own_speedup_is_f() -> None:
    f, n = 0.07, 16
    speedup = 1 / (f + (1 - f) / n)
    assert serial_fraction(Estimate(speedup, speedup, speedup, 1), n).value == pytest.approx(f)
