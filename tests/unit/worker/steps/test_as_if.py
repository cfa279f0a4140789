"""What is added to a step to make it one on more devices."""

from __future__ import annotations

import numpy as np
import pytest

from raybench.records.requests import AsIf
from raybench.worker.steps.as_if import DRAWS, Alone, longer_s, waits_s

ALONE = Alone(np.array([4096.0, 1e6]), np.array([1e-3, 11e-3]))  # 1 ms, and 10 ms for a megabyte
STEP_S = 0.1


def test_over_a_named_network_it_lasts_as_long_as_there() -> None:
    asked = AsIf(world_size=64, nodes=8, network="n", lines=((2e-3, 20e-9), (30e-3, 1e-9)))
    assert longer_s(asked, ALONE, 1e6, 8, "nccl") == pytest.approx(0.022 - 0.011)
    assert longer_s(asked, ALONE, 1e6, 8, "nccl", ((30e-3, 0.0),)) == pytest.approx(0.030 - 0.011)


def test_over_a_free_network_it_takes_less_by_all_that_it_takes_here() -> None:
    assert longer_s(AsIf(world_size=64, lines=((0.0, 0.0),)), ALONE, 1e6, 8, "nccl") == pytest.approx(-0.011)


@pytest.mark.parametrize(("backend", "steps"), [("gloo", 7.0), ("nccl", 3.0)])
def test_without_a_network_steps_and_bytes_grow_as_the_algorithm_has_them(backend: str, steps: float) -> None:
    found_s = longer_s(AsIf(world_size=8), ALONE, 1e6, 2, backend)
    assert found_s == pytest.approx(1e-3 * (steps - 1) + 10e-3 * (1.75 - 1))


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_as_many_as_there_are_take_nothing_more(backend: str) -> None:
    assert longer_s(AsIf(world_size=4), ALONE, 1e6, 4, backend) == 0.0


def test_the_wait_is_for_the_largest_of_so_many_draws_beyond_those_that_are_there() -> None:
    random = np.random.default_rng(1)
    found = waits_s([STEP_S * (1 + random.exponential(0.05, 4000)) for _ in range(2)], 16, 0)
    # the mean of the largest of n exponential draws is the n-th harmonic number
    harmonic = sum(1 / n for n in range(3, 17))
    assert len(found) == DRAWS
    assert found.min() >= 0
    assert found.mean() == pytest.approx(STEP_S * 0.05 * harmonic, rel=0.05)
    assert found[:20].mean() == pytest.approx(found.mean(), rel=0.12)  # of the steps that a trial has


def test_the_slowest_of_many_is_found_from_few_steps() -> None:
    """Of 24 steps of each rank, in the mean of 60 trials: exponential delays are all of the tail's form."""
    random = np.random.default_rng(1)
    found = [
        waits_s([STEP_S * (1 + random.exponential(0.05, 24)) for _ in range(2)], 256, seed).mean()
        for seed in range(60)
    ]
    harmonic = sum(1 / n for n in range(3, 257))
    assert np.mean(found) == pytest.approx(STEP_S * 0.05 * harmonic, rel=0.15)


def test_ranks_draw_alike_and_as_many_as_there_are_wait_for_nobody() -> None:
    ranks = [STEP_S + np.array([0.0, 0.01, -0.01]), STEP_S + np.array([0.02, -0.02])]
    assert (waits_s(ranks, 8, 3) == waits_s(ranks, 8, 3)).all()
    assert (waits_s(ranks, 2, 3) == 0).all()


def test_a_slow_device_is_not_multiplied() -> None:
    """Only what a rank's steps differ by among themselves is drawn: steady ranks wait for nobody."""
    assert (waits_s([np.full(5, 0.1), np.full(5, 0.15)], 64, 0) == 0).all()


def test_what_is_hidden_behind_a_slow_device_is_not_waited_for() -> None:
    """Of exponential delays of 4 ms those above its 6 ms count: 2.1 ms with eight devices, by simulation."""
    random = np.random.default_rng(2)
    ranks = [STEP_S + slow_s + random.exponential(0.004, 20_000) for slow_s in (0.0, 0.006)]
    late, here = random.exponential(0.004, (7, 20_000)), 0.006 + random.exponential(0.004, 20_000)
    here = np.maximum(here, late[0])
    truth_s = (np.maximum(here, late.max(axis=0)) - here).mean()
    assert waits_s(ranks, 8, 0).mean() == pytest.approx(truth_s, rel=0.1)
