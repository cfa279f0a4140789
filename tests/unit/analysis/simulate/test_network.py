"""The network that a sweep has timed says of every swept place what the sweep did."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from raybench.analysis.collectives import Link, SweptPlace, bus_factor
from raybench.analysis.simulate.network import network_of
from raybench.analysis.stats.statistics import Estimate
from raybench.spec.network import all_reduce_s

NEAR_S, FAR_S = 1.1e-6, 18e-6  # of one step
NEAR_BUS, FAR_BUS = 400e9, 350e9  # bytes/s
WITHIN = 1.1  # a factor, of each


def known(value: float) -> Estimate:
    return Estimate(value, value / WITHIN, value * WITHIN, 10)


def swept(size: int, nodes: int, backend: str, latency_s: float) -> Link:
    rate = (FAR_BUS if nodes > 1 else NEAR_BUS) / bus_factor("all_reduce", size)
    place = SweptPlace(size, nodes, "pack", backend)
    return Link("all_reduce", place, known(latency_s), known(rate), (latency_s, 1 / rate))


def tree_s(size: int, nodes: int) -> float:
    return 2 * (size / nodes - 1) * NEAR_S + 2 * math.log2(nodes) * FAR_S


def ring_s(size: int, nodes: int) -> float:
    between = min(2 * nodes, 2 * (size - 1)) if nodes > 1 else 0
    return (2 * (size - 1) - between) * NEAR_S + between * FAR_S


PLACES = {
    "nodes of 8": ((2, 1), (8, 1), (16, 2), (64, 8)),
    "nodes of 2": ((2, 1), (4, 2), (8, 4)),
    "nodes of 1": ((2, 2), (8, 8)),
}


@pytest.mark.parametrize(("backend", "latency"), [("nccl", tree_s), ("gloo", ring_s)])
@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_every_swept_place_and_message_comes_back(
    backend: str, latency: Callable[[int, int], float], places: tuple[tuple[int, int], ...]
) -> None:
    sweep = [swept(size, nodes, backend, latency(size, nodes)) for size, nodes in places]
    network = network_of(sweep, "swept")
    assert network is not None
    for link, message in itertools.product(sweep, (4 * 2**10, 2**20, 25 * 2**20, 2**30)):
        worst, middle, best = (
            all_reduce_s(network.lines(link.place.world_size, towards), message)
            for towards in (0.0, 0.5, 1.0)
        )
        swept_s = all_reduce_s((link.line,), message)
        assert middle == pytest.approx(swept_s, rel=0.02)
        assert best < swept_s < worst


def test_the_less_a_step_within_a_node_may_take_the_more_one_between_nodes_may() -> None:
    """A latency within a node that is known to a factor of four, within one that is known better."""
    near = replace(swept(2, 1, "gloo", 600e-6), latency_s=Estimate(600e-6, 300e-6, 1200e-6, 10))
    far = replace(swept(4, 2, "gloo", 900e-6), latency_s=Estimate(900e-6, 850e-6, 950e-6, 10))
    network = network_of([near, far], "swept")
    assert network is not None
    worst_s, best_s = network.latency_s
    # 6 steps of a ring, of which 2 are within the nodes and take half of what the sweep of one took each
    assert worst_s == pytest.approx((950e-6 - 2 * 150e-6) / 4)
    assert best_s < worst_s


def test_the_other_algorithm_is_never_faster_than_what_was_swept() -> None:
    network = network_of([swept(*place, "nccl", tree_s(*place)) for place in ((8, 1), (64, 8))], "swept")
    assert network is not None
    assert network.algorithms == ("ring", "tree")
    ring, tree = (latency_s for latency_s, _ in network.lines(64))
    assert tree == pytest.approx(tree_s(64, 8), rel=0.01)
    assert ring > 2 * tree
