"""In which order nodes take turns, and how many workers each gets."""

import pytest

from raybench.spec.placement import alternating, workers_on


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        ("", []),
        ("aaa", [0, 1, 2]),
        ("aabb", [0, 2, 1, 3]),
        ("aaab", [0, 3, 1, 2]),  # a partly filled node
        ("abab", [0, 1, 2, 3]),
    ],
)
def test_one_of_each_node_before_a_second_of_any(nodes, order):
    assert alternating(nodes) == order


@pytest.mark.parametrize(
    ("places", "world_size", "packed", "spread"),
    [
        ({"a": 2, "b": 4}, 4, {"b": 4}, {"a": 2, "b": 2}),  # in whichever order Ray has them
        ({"a": 4, "b": 2}, 2, {"b": 2}, {"a": 1, "b": 1}),
        ({"a": 8, "b": 2, "c": 4}, 9, {"a": 8, "b": 1}, {"a": 4, "b": 2, "c": 3}),
        ({"a": 2, "b": 2}, 3, {"a": 2, "b": 1}, {"a": 2, "b": 1}),
        ({"a": 1, "b": 2, "c": 3}, 6, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2, "c": 3}),
    ],
)
def test_packed_on_the_fewest_nodes_or_spread_over_all(places, world_size, packed, spread):
    assert workers_on(places, world_size, spread=False) == packed
    assert workers_on(places, world_size, spread=True) == spread
