"""More devices: as if measured, simulated, and what a network must bring; the truth is planted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.simulate.as_if import HELD_ERROR, MoreDevices, as_if_on, more_devices
from raybench.analysis.simulate.what_if import step_models
from raybench.analysis.stats.pool import Array
from raybench.records.record import TrialRecord
from raybench.records.requests import AS_IF, AsIf
from raybench.records.results import Block, HeldSteps
from raybench.spec.network import Network
from tests.unit.analysis.simulate.planted import (
    AFTER_S,
    BEFORE_S,
    BYTES,
    READY_S,
    S_PER_BYTE,
    exposed_s,
    trial,
)
from tests.unit.studies import slowed, study

LOCAL_S = BEFORE_S + READY_S[-1] + AFTER_S
WAITED_S = 0.003
FACTOR = 1.4  # of the step as if on more devices, to the real one


def with_as_if(
    record: TrialRecord, asked: AsIf, factor: float = FACTOR, held_s: float = 0.01, shorter_s: float = 0.0
) -> TrialRecord:
    """The record, had it been measured as if too: ``factor`` times its steps."""
    steps, request = record.steps, record.request
    assert steps is not None
    assert request.kind == "steps"

    def slower(block: Block) -> Block:
        return scaled(block, factor).model_copy(update={"variant": AS_IF[0]})

    rounds = []
    for each in steps.rounds:
        real = each.block("ddp")
        assert real is not None
        rounds.append(each.model_copy(update={"blocks": (*each.blocks, slower(real))}))
    more = {"waited_s": WAITED_S, "shorter_s": shorter_s}
    held = (HeldSteps(held_s=held_s, slow_held_s=0.03, fast_held_s=0.005, **more),)
    return record.model_copy(
        update={
            "request": request.model_copy(update={"as_if": (asked,)}),
            "result": steps.model_copy(update={"rounds": tuple(rounds), "held": held}),
        }
    )


def scaled(block: Block, factor: float) -> Block:
    times = tuple(factor * each for each in block.step_time_s)
    return block.model_copy(update={"step_time_s": times, "slowest_s": factor * block.slowest_s})


def changed(record: TrialRecord, how: Mapping[str, Callable[[Block], Block]]) -> TrialRecord:
    """The record, had the blocks of some variants been others."""
    steps = record.steps
    assert steps is not None
    rounds = []
    for each in steps.rounds:
        blocks = (how[one.variant](one) if one.variant in how else one for one in each.blocks)
        rounds.append(each.model_copy(update={"blocks": tuple(blocks)}))
    return record.model_copy(update={"result": steps.model_copy(update={"rounds": tuple(rounds)})})


def facts(record: TrialRecord) -> Facts:
    return resolve(study(knobs={"batch_size": [record.config.setting.batch_size]}), [record])


def found(
    record: TrialRecord, network: Network | None = None, sizes: tuple[int, ...] | None = None
) -> MoreDevices:
    more = more_devices(facts(record), network, sizes)
    assert more is not None
    return more


def exact(bytes_per_s: float, **more: object) -> Network:
    given = {"name": "exact", "devices_per_node": 1, "bytes_per_s": bytes_per_s, "latency_s": 1e-9}
    return Network.model_validate(given | more)


def test_measured_as_if_the_step_is_the_variants_and_the_efficiency_is_over_one_device() -> None:
    record = trial()
    (point,) = found(with_as_if(record, AsIf(world_size=8))).points
    step_s = FACTOR * (LOCAL_S + exposed_s("default"))
    assert point.how == "as if"
    assert point.step_time_s.value == pytest.approx(step_s, rel=1e-3)
    assert point.efficiency is not None
    assert point.speedup is not None
    assert point.efficiency.value == pytest.approx(LOCAL_S / step_s, rel=1e-3)
    assert point.speedup.value == pytest.approx(8 * point.efficiency.value)


def test_what_is_held_without_a_network_has_an_error_of_its_own() -> None:
    """A quarter of it: 95% lie within 1.96 times that."""
    (point,), (sure,) = (
        found(with_as_if(trial(), AsIf(world_size=8), held_s=held_s)).points for held_s in (0.05, 0.0)
    )
    held = 1.96 * HELD_ERROR * 0.05 / point.step_time_s.value
    widths = [each.step_time_s.log_half_width for each in (point, sure)]
    assert widths[0] == pytest.approx(math.hypot(held, widths[1]), rel=0.05)
    assert dict(point.shares)["held"] > 0.0


def test_points_are_of_the_sizes_that_were_asked_for() -> None:
    assert found(with_as_if(trial(), AsIf(world_size=8)), None, (16,)).points == ()


def test_a_law_stands_next_to_what_was_measured() -> None:
    """Gustafson's, under weak scaling: n - f (n - 1), with f by the speed-up of two devices."""
    more = found(with_as_if(trial(), AsIf(world_size=8)))
    f = 2 - 2 * LOCAL_S / (LOCAL_S + exposed_s("default"))
    assert [each.how for each in more.points] == ["as if"]
    assert more.law is not None
    ((size, speedup),) = more.law.speedups
    assert (size, speedup.value) == (8, pytest.approx(8 - 7 * f, rel=1e-3))


def test_totals_are_of_the_mean_step_as_those_of_what_was_measured() -> None:
    """Of rounds that take twice as long the typical step is free, the time of a run is not."""
    record = with_as_if(trial(), AsIf(world_size=8))
    assert record.steps is not None
    late = slowed(record, (0,), 2.0, "ddp")
    typical = facts(late).scaling(late)
    (point,) = found(late).points
    assert typical.mean_step_s.value > typical.step_time_s.value
    assert point.total_step_s is not None
    ratio = point.total_step_s.value / point.step_time_s.value
    assert ratio == pytest.approx(typical.mean_step_s.value / typical.step_time_s.value)


def test_the_interval_holds_the_network_from_slow_to_fast() -> None:
    network = exact(0.0 + 50e6).model_copy(update={"bytes_per_s": (25e6, 100e6)})
    asked = as_if_on(network, 8, "cpu")
    (certain,) = found(
        with_as_if(trial(), asked.model_copy(update={"slow_lines": (), "fast_lines": ()}))
    ).points
    (unsure,) = found(with_as_if(trial(), asked)).points
    assert unsure.step_time_s.value == pytest.approx(certain.step_time_s.value)
    assert unsure.step_time_s.low < certain.step_time_s.low
    assert unsure.step_time_s.high > certain.step_time_s.high
    assert dict(unsure.shares)["bandwidth"] > 0.9


def test_the_interval_goes_from_the_step_over_the_slowest_network_to_that_over_the_fastest() -> None:
    slow, fast = 25e6, 200e6
    network = exact(1.0).model_copy(update={"bytes_per_s": (slow, fast)})
    (point,) = found(trial(), network, (8,)).points
    ends = [LOCAL_S + exposed_s("default", 2 * 7 / 8 / rate) for rate in (fast, slow)]
    assert [point.step_time_s.low, point.step_time_s.high] == pytest.approx(ends, rel=0.05)


@pytest.mark.parametrize("latency_s", [(0.05, 0.0005), (0.0011, 0.0009)])
def test_what_carries_the_width_is_what_is_least_known(latency_s: tuple[float, float]) -> None:
    network = exact(1.0).model_copy(update={"bytes_per_s": (140e6, 160e6), "latency_s": latency_s})
    (point,) = found(trial(), network, (8,)).points
    assert (dict(point.shares)["latency"] > 0.5) == (latency_s[0] > 10 * latency_s[1])
    assert sum(share for _, share in point.shares) == pytest.approx(1.0)


LATE_S = 0.004


@pytest.mark.parametrize("delays", ["normal", "exponential"])
def test_the_wait_for_the_slowest_of_many_is_found_from_that_of_two(delays: str) -> None:
    """Steps of ranks are drawn: what the slowest of 32 takes longer than that of 2 is within the interval."""
    random = np.random.default_rng(5)

    def drawn(number: int, ranks: int) -> Array:
        return np.asarray(getattr(random, delays)(size=(number, ranks)) * LATE_S)

    def late(block: Block) -> Block:
        times = block.step_time_s[0] + drawn(400, 2)
        means = tuple(times.mean(axis=0).tolist())
        return block.model_copy(update={"step_time_s": means, "slowest_s": float(times.max(axis=1).mean())})

    record = changed(trial(), {"local": late})
    two, point = found(record, exact(1e12), (2, 32)).points
    two_s, many_s = (drawn(20_000, ranks).max(axis=1).mean() for ranks in (2, 32))
    free_s = two.step_time_s.value
    assert point.step_time_s.value - free_s == pytest.approx(many_s - two_s, rel=0.5)
    assert point.step_time_s.low < free_s + many_s - two_s < point.step_time_s.high
    assert dict(point.shares)["stragglers"] > 0.1


@pytest.mark.parametrize("bytes_per_s", [1e9, 300e6])
def test_simulated_over_a_known_network_it_is_the_step_in_closed_form(bytes_per_s: float) -> None:
    (point,) = found(trial(), exact(bytes_per_s), (8,)).points
    truth_s = LOCAL_S + exposed_s("default", 2 * 7 / 8 / bytes_per_s)
    assert point.how == "simulated"
    assert point.step_time_s.value == pytest.approx(truth_s, rel=0.03)
    assert point.step_time_s.low <= truth_s <= point.step_time_s.high


def test_the_required_bandwidth_reaches_the_efficiency() -> None:
    (required,) = found(trial(), None, (8,)).requirements
    assert required.ceiling.value == pytest.approx(1.0, rel=1e-3)
    needed = required.bus_bytes_per_s
    assert needed is not None
    assert needed.low < needed.value < needed.high
    step_s = LOCAL_S + exposed_s("default", 2 * 7 / 8 / needed.value)
    assert LOCAL_S / step_s == pytest.approx(0.95, rel=0.02)
    name, number = required.links[0]
    assert name == "tcp-25"
    assert number * 1.9e9 > needed.value > (number - 1) * 1.9e9
    bandwidths, efficiencies = zip(*required.curve, strict=True)
    assert list(bandwidths) == sorted(bandwidths)
    assert list(efficiencies) == sorted(efficiencies)


def test_of_a_noisy_ceiling_the_requirement_is_wide() -> None:
    signs = iter(range(1000))

    def noisy(block: Block) -> Block:
        return scaled(block, 1.3 ** (-1) ** next(signs))

    (exactly,), (required,) = (
        found(record, None, (8,)).requirements
        for record in (trial(), changed(trial(), {"local": noisy, "ddp": noisy}))
    )
    assert exactly.bus_bytes_per_s is not None
    assert required.bus_bytes_per_s is not None
    assert required.ceiling.log_half_width > 2 * exactly.ceiling.log_half_width
    assert required.bus_bytes_per_s.log_half_width > exactly.bus_bytes_per_s.log_half_width


def test_a_free_network_is_no_slower_than_the_one_here() -> None:
    """Other processes took the cores while transfers were left out: the step with them was faster."""
    record = changed(trial(), {"local": lambda block: scaled(block, 2.0)})
    (required,) = found(record, None, (8,)).requirements
    assert required.ceiling.value == pytest.approx(LOCAL_S / (LOCAL_S + exposed_s("default")), rel=1e-3)


def test_where_steps_without_transfers_are_longer_each_model_is_the_measured_step_all_the_same() -> None:
    """One that computed for longer than the step with transfers was slower on a faster network."""
    record = changed(trial(), {"local": lambda block: scaled(block, 2.0)})
    fit = facts(record).fit
    step_s = fit.scaling(record).step_time_s.value
    models = step_models(record, fit)
    assert [each.step_s("default") for each in models] == pytest.approx([step_s] * len(models), rel=1e-6)
    more = found(record, exact(1e12), (8,))
    (point,), (required,) = more.points, more.requirements
    assert point.efficiency is not None
    assert point.efficiency.value == pytest.approx(required.ceiling.value, rel=0.01)


def test_nothing_is_required_for_fewer_devices_than_were_measured() -> None:
    """One alone had the ceiling of the two that were measured."""
    assert [each.world_size for each in found(trial(), exact(1e9), (1, 2, 8)).requirements] == [2, 8]


def test_a_network_is_required_between_nodes_alone() -> None:
    """Eight on one of its nodes had what its links must bring, which they do not take."""
    more = found(trial(), exact(1e9, devices_per_node=8, local_bytes_per_s=1e10), (4, 8, 16))
    assert [each.shape.world_size for each in more.points] == [4, 8, 16]
    assert [each.world_size for each in more.requirements] == [16]


def test_waiting_for_the_slowest_lowers_the_ceiling() -> None:
    """Steps without transfers differ by nothing, so that the wait is anything up to what was waited as if."""
    (required,) = found(with_as_if(trial(), AsIf(world_size=8))).requirements
    assert required.ceiling.value == pytest.approx(LOCAL_S / (LOCAL_S + WAITED_S / 2), rel=1e-3)
    assert required.ceiling.low < LOCAL_S / (LOCAL_S + WAITED_S) < 1 < required.ceiling.high


def test_a_visit_that_was_not_measured_as_if_says_nothing_of_the_step_as_if() -> None:
    """As one whose step would have taken too long: what it would have held widened the other's interval."""
    first = with_as_if(trial(), AsIf(world_size=8))
    assert first.steps is not None
    plain, held = trial().steps, first.steps.held[0].model_copy(update={"waited_s": 0.0, "held_s": 10.0})
    assert plain is not None
    second = first.model_copy(
        update={
            "trial_id": "later",
            "request": first.request.model_copy(update={"trial_id": "later", "visit": 1}),
            "result": plain.model_copy(update={"held": (held,), "missing": {AS_IF[0]: "too long"}}),
        }
    )
    both = more_devices(
        resolve(study(knobs={"batch_size": [first.config.setting.batch_size]}), [first, second])
    )
    assert both is not None
    (point,), (alone,) = both.points, found(first).points
    assert point.step_time_s.log_half_width <= alone.step_time_s.log_half_width


def test_a_free_network_is_no_slower_than_one_that_was_measured_as_if() -> None:
    record = changed(trial(), dict.fromkeys(("local", "ddp"), lambda block: scaled(block, 2.0)))
    more = found(with_as_if(record, AsIf(world_size=8), factor=0.6))
    (point,), (required,) = more.points, more.requirements
    assert point.efficiency is not None
    assert required.ceiling.value == pytest.approx(point.efficiency.value, rel=1e-3)


def test_a_simulated_step_and_the_ceiling_wait_alike() -> None:
    """Measured as if on one network, simulated over another one: a free network is no slower than that."""
    asked = as_if_on(exact(50e6), 8, "cpu")
    more = found(with_as_if(trial(), asked), exact(1e12), (8,))
    (point,), (required,) = more.points, more.requirements
    assert point.how == "simulated"
    assert point.efficiency is not None
    assert point.efficiency.value == pytest.approx(required.ceiling.value, rel=0.01)


@pytest.mark.parametrize(("share", "is_bound"), [(0.02, True), (0.005, False)])
def test_what_a_faster_network_would_save_makes_the_step_an_upper_bound(share: float, is_bound: bool) -> None:
    asked = as_if_on(exact(1e9), 8, "cpu")
    step_s = FACTOR * (LOCAL_S + exposed_s("default"))
    (point,) = found(with_as_if(trial(), asked, shorter_s=share * step_s)).points
    assert point.is_bound == is_bound


def test_without_a_timeline_nothing_is_simulated_or_required() -> None:
    record = trial()
    assert record.steps is not None
    bare = record.model_copy(update={"result": record.steps.model_copy(update={"gradient_timeline": None})})
    assert more_devices(facts(bare)) is None
    (point,) = found(with_as_if(bare, AsIf(world_size=8))).points
    assert math.isclose(point.step_time_s.value, FACTOR * (LOCAL_S + exposed_s("default")), rel_tol=1e-3)


def test_without_a_timeline_all_that_a_slow_network_holds_longer_may_be_in_the_step() -> None:
    record = trial()
    assert record.steps is not None
    bare = record.model_copy(update={"result": record.steps.model_copy(update={"gradient_timeline": None})})
    asked = as_if_on(exact(50e6), 8, "cpu")
    (point,) = found(with_as_if(bare, asked)).points
    assert point.step_time_s.high >= point.step_time_s.value + 0.02
    assert point.step_time_s.low <= point.step_time_s.value - 0.005


def test_on_one_node_whose_links_are_not_known_devices_are_joined_as_here() -> None:
    network = exact(50e6, devices_per_node=8)
    assert as_if_on(network, 8, "cpu") == AsIf(world_size=8)
    assert as_if_on(network, 16, "cpu").lines


def test_devices_that_share_nodes_are_no_faster_than_here() -> None:
    """More nodes of the same kind, over links that are faster than what joins the devices of a node."""
    (alone,), (shared,) = (
        found(trial(), exact(1e12, devices_per_node=each), (16,)).points for each in (1, 8)
    )
    truth_s = LOCAL_S + exposed_s("default", S_PER_BYTE * (15 / 16) / (1 / 2))
    assert alone.step_time_s.value == pytest.approx(LOCAL_S, rel=0.03)
    assert shared.step_time_s.value == pytest.approx(truth_s, rel=0.03)
    assert (alone.is_bound, shared.is_bound) == (False, True)


def test_between_nodes_another_network_may_be_faster_than_the_one_here() -> None:
    """What joined the trial's nodes says nothing of what joins the devices of one."""
    several = trial().model_copy(update={"nodes": 2})
    known = exact(1e12, devices_per_node=8, local_bytes_per_s=1e12, local_latency_s=1e-9)
    for record, network in ((several, exact(1e12, devices_per_node=8)), (trial(), known)):
        (point,) = found(record, network, (16,)).points
        assert point.step_time_s.value == pytest.approx(LOCAL_S, rel=0.03)
        assert not point.is_bound


def test_what_was_not_measured_as_if_is_simulated_and_says_why() -> None:
    network, record = exact(100e6), trial()
    asked = as_if_on(network, 8, "cpu")
    assert record.steps is not None
    late = record.model_copy(
        update={
            "request": record.request.model_copy(update={"as_if": (asked,)}),
            "result": record.steps.model_copy(update={"missing": {AS_IF[0]: "too long"}}),
        }
    )
    more = found(late, network, (8,))
    assert [each.how for each in more.points] == ["simulated"]
    assert more.missing == ((8, "too long"),)
    assert found(late, network, (16,)).missing == ()  # of what is asked
    request = record.request.model_copy(update={"visit": 1})
    again = with_as_if(record.model_copy(update={"request": request}), asked)
    again = again.model_copy(update={"trial_id": again.request.trial_id})
    batch = record.config.setting.batch_size
    more_than_once = more_devices(resolve(study(knobs={"batch_size": [batch]}), [late, again]))
    assert more_than_once is not None
    assert [each.how for each in more_than_once.points] == ["as if"]
    assert more_than_once.missing == ()  # in one visit it was


def test_of_a_network_of_one_node_the_sizes_are_those_that_fit() -> None:
    network = Network.model_validate(
        {"name": "one", "devices_per_node": 4, "local_bytes_per_s": 1e12, "local_latency_s": 1e-9}
    )
    assert [each.shape.world_size for each in found(trial(), network).points] == [4]


def test_messages_are_those_of_the_buckets() -> None:
    """A latency for each of nine buckets is nine times that of one, where nothing hides it."""
    network = exact(1e12, latency_s=0.02)
    few, many = (found(trial(cap), network, (8,)).points[0].step_time_s.value for cap in (25.0, 0.001))
    assert many > few + 0.1
    assert len(BYTES) == 9
