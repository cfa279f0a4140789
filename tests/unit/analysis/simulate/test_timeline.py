"""DDP's schedule against ones worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from raybench.analysis.simulate.timeline import (
    MEBIBYTE,
    Compute,
    StepModel,
    Wire,
    assign,
    best_caps,
    list_sizes_mb,
    simulate,
)
from tests.unit.analysis.simulate.planted import BURSTS


def test_a_bucket_takes_the_gradient_that_fills_it() -> None:
    kib = [each * 1024 for each in (512, 400, 200, 3000, 100, 100)]
    assert assign(kib, 1) == ((0, 1, 2), (3,), (4, 5))
    assert assign(kib, 100) == ((0, 1, 2, 3, 4, 5),)
    assert assign(kib, "default") == ((0, 1, 2), (3, 4, 5))  # 1 MiB first, then 25
    assert assign([MEBIBYTE, 1], 1) == ((0,), (1,))  # a bucket that is just full is sent
    assert assign([], 1) == ()


def test_messages_one_after_the_other_by_hand() -> None:
    # ready at 10, 20, 30 ms; each message 2 ms of latency and 13 ms of bytes, one at a time:
    # 10 to 25, 25 to 40, 40 to 55 ms; the pass ends at 30 ms
    compute = Compute(before_s=0.005, ready_s=(0.010, 0.020, 0.030), tail_s=0.0, after_s=0.001)
    wire = Wire(latency_s=0.002, s_per_byte=0.001, at_once=1)
    found = simulate(compute, [(0,), (1,), (2,)], [13.0, 13.0, 13.0], wire)
    assert found == pytest.approx(0.005 + 0.055 + 0.001)


def test_two_at_once_share_the_bandwidth_and_hide_each_others_latency() -> None:
    # all ready at 0: two begin, both wait 2 ms, then send at half the rate: 40 bytes take 40 ms, until 42;
    # the third waits for one of them, 2 ms of latency, 10 ms of bytes: until 54
    compute = Compute(0.0, (0.0, 0.0, 0.0), 0.0, 0.0)
    wire = Wire(latency_s=0.002, s_per_byte=0.001, at_once=2)
    found = simulate(compute, [(0,), (1,), (2,)], [20.0, 20.0, 10.0], wire)
    assert found == pytest.approx(0.054)
    uneven = simulate(compute, [(0,), (1,), (2,)], [10.0, 20.0, 10.0], wire)
    # 10 and 20 share until 22 (10 bytes each); the second is alone while the third waits: 24; then both
    # share: 8 bytes of the second by 40, and the third has 2 left: 42
    assert uneven == pytest.approx(0.042)


def test_what_computing_hides_is_not_exposed_and_slows_it_where_they_share_cores() -> None:
    # 5 ms from 10 ms on, hidden behind a pass that ends at 30 ms; the last message of 1 ms is not
    compute = Compute(0.0, (0.010, 0.030), 0.0, 0.0)
    wire = Wire(latency_s=0.0, s_per_byte=0.001)
    assert simulate(compute, [(0,), (1,)], [5.0, 1.0], wire) == pytest.approx(0.031)
    # at half the speed for these 5 ms the pass is 2.5 ms longer
    slowed = simulate(compute, [(0,), (1,)], [5.0, 1.0], Wire(0.0, 0.001, slowdown=0.5))
    assert slowed == pytest.approx(0.0335)


def test_copies_back_are_hidden_behind_later_messages() -> None:
    # both ready at the end (10 ms); arrive at 20 and 30 ms; copies of 2 ms in all, half of each bucket:
    # the first is copied while the second travels, so only its 1 ms is seen
    compute = Compute(0.0, (0.010, 0.010), 0.002, 0.0)
    found = simulate(compute, [(0,), (1,)], [10.0, 10.0], Wire(0.0, 0.001))
    assert found == pytest.approx(0.031)


def test_no_transfers_no_time() -> None:
    compute = Compute(0.001, (0.002, 0.003), 0.001, 0.001)
    found = simulate(compute, [(0, 1)], [100.0], Wire(0.0, 0.0))
    assert found == pytest.approx(compute.step_s)


def test_each_message_takes_the_fastest_algorithm() -> None:
    # a ring of 10 ms and 1 ms a byte, a tree of 2 ms and 3 ms a byte: 1 byte by the tree, 20 by the ring
    compute = Compute(0.0, (0.0, 0.0), 0.0, 0.0)
    wire = Wire(latency_s=0.010, s_per_byte=0.001, others=((0.002, 0.003),))
    found = simulate(compute, [(0,), (1,)], [1.0, 20.0], wire)
    assert found == pytest.approx(0.035)


def test_a_bucket_list_goes_size_by_size_and_its_last_one_stays() -> None:
    kib = [each * 1024 for each in (300, 300, 300, 300, 300, 300, 300)]
    assert assign(kib, "0.25/0.5") == ((0,), (1, 2), (3, 4), (5, 6))
    assert assign(kib, "0.5/0.25/1") == ((0, 1), (2,), (3, 4, 5, 6))


SLOW_LINK = replace(BURSTS, wire=replace(BURSTS.wire, at_once=2, latency_s=0.005))


@pytest.mark.parametrize("model", [BURSTS, SLOW_LINK], ids=["one at a time", "two at once"])
def test_the_best_list_is_the_best_of_a_first_size_and_the_others(model: StepModel) -> None:
    sizes = list_sizes_mb(model.parameter_bytes)
    single, found = best_caps(model)
    assert model.simulated_s(single) == min(map(model.simulated_s, ["default", *sizes]))
    every = [f"{first:g}/{rest:g}" for first, rest in itertools.product(sizes, repeat=2)]
    assert model.simulated_s(found) <= min(map(model.simulated_s, every)) + 1e-9


def test_where_nothing_is_left_to_hide_no_list_is_better() -> None:
    free = replace(BURSTS, wire=Wire(latency_s=0.0, s_per_byte=0.0))
    single, found = best_caps(free)
    assert found == single
