"""Which node is slow, told by all-reduces between pairs of nodes."""

from __future__ import annotations

import random

import pytest

from raybench.launch.cluster_checks import PairTimes, pairs, slow_nodes
from raybench.launch.nodes import Node

USUAL_S, TIMES = 0.3, 20


def nodes(number: int) -> list[Node]:
    return [Node(f"id-{each}", f"node-{each}", f"10.0.0.{each}", 4.0, 0.0) for each in range(number)]


def named(number: int, slow: dict[int, float], seed: int = 0) -> list[str]:
    """The nodes that are told, where the links of ``slow`` take so many times as long as the others."""
    draw, everyone = random.Random(seed), nodes(number)
    measured = []
    for one, other in pairs(everyone):
        factor = max(slow.get(everyone.index(node), 1.0) for node in (one, other))
        times_s = tuple(USUAL_S * factor * draw.lognormvariate(0, 0.05) for _ in range(TIMES))
        measured.append(PairTimes(one, other, times_s))
    return [each.found.split(":")[0] for each in slow_nodes(measured)]


def test_every_node_is_in_two_pairs() -> None:
    assert pairs(nodes(1)) == []
    one, other = nodes(2)
    assert pairs([one, other]) == [(one, other)]
    several = pairs(nodes(5))
    assert len(several) == 5
    assert all(sum(node in pair for pair in several) == 2 for node in nodes(5))


@pytest.mark.parametrize("number", [3, 4, 8])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_node_with_a_slower_link_is_named_and_no_other(number: int, which: int) -> None:
    place = which % number
    assert named(number, {place: 3.0}) == [f"node-{place}"]


def test_two_slow_nodes_of_eight_are_both_named() -> None:
    assert sorted(named(8, {2: 3.0, 5: 2.0})) == ["node-2", "node-5"]


def test_of_two_nodes_none_can_be_told() -> None:
    assert named(2, {1: 3.0}) == []


def test_nothing_is_named_where_links_are_alike() -> None:
    assert sum(bool(named(8, {}, seed)) for seed in range(200)) == 0
