"""Which places trials get that are under way at once: never one twice, and never too few."""

from __future__ import annotations

import itertools

import pytest

from raybench.launch.tune_submission import Places, Taken


def test_trials_that_share_nodes_have_every_place_once() -> None:
    places = Places({"a": 3, "b": 3})
    taken = [places.take(2, alone=False) for _ in range(3)]
    nodes = list(itertools.chain.from_iterable(each.nodes for each in taken if each is not None))
    assert sorted(nodes) == ["a", "a", "a", "b", "b", "b"]
    assert places.take(1, alone=False) is None
    assert taken[0] is not None
    places.give_back(taken[0])
    assert places.take(2, alone=False) == taken[0]


def test_trials_alone_on_their_nodes() -> None:
    places = Places({"a": 4, "b": 4, "c": 4})
    first = places.take(1, alone=True)
    assert first == Taken((first.nodes[0],), {first.nodes[0]: 4}) if first else False
    second = places.take(8, alone=True)
    assert second is not None
    assert len(set(second.nodes)) == 2
    assert not {*second.nodes} & {*first.nodes}
    assert places.take(1, alone=True) is None
    places.give_back(second)
    assert places.take(1, alone=True) is not None


def test_a_trial_stands_on_one_node_where_it_can_the_smallest_that_has_room() -> None:
    places = Places({"a": 8, "b": 2, "c": 4})
    assert places.take(2, alone=False) == Taken(("b", "b"), {"b": 2})
    assert places.take(3, alone=False) == Taken(("c", "c", "c"), {"c": 3})
    assert places.take(9, alone=False) == Taken(("a",) * 8 + ("c",), {"a": 8, "c": 1})


def test_spread_over_as_many_nodes_as_there_are() -> None:
    places = Places({"a": 3, "b": 1, "c": 3})
    assert places.take(5, alone=True, spread=True) == Taken(
        ("a", "a", "b", "c", "c"), {"a": 3, "b": 1, "c": 3}
    )
    assert Places({"a": 2, "b": 2}).take(2, alone=False, spread=True) == Taken(("a", "b"), {"a": 1, "b": 1})


@pytest.mark.parametrize("alone", [False, True])
def test_what_is_spread_is_never_on_fewer_nodes_than_it_means(alone: bool) -> None:
    places = Places({"a": 2, "b": 2, "c": 2})
    first = places.take(2, alone=True, spread=True)
    assert first == Taken(("a", "b"), {"a": 2, "b": 2})
    assert places.take(2, alone=alone, spread=True) is None  # both on c: without the network
    assert places.most(2, alone=True, spread=True) == 1
    assert places.most(2, alone=True) == 3
    places.give_back(first)
    assert places.take(2, alone=alone, spread=True) is not None


def test_a_measured_trial_is_packed_on_the_fewest_nodes_of_the_cluster_or_waits() -> None:
    places = Places({"a": 2, "b": 2, "c": 4})
    first = places.take(4, alone=True)
    assert first == Taken(("c",) * 4, {"c": 4})
    assert places.take(4, alone=True) is None  # two and two: over the network
    assert places.take(4, alone=False) == Taken(("a", "a", "b", "b"), {"a": 2, "b": 2})  # learns the same


def test_a_node_that_is_gone_gives_no_places() -> None:
    places = Places({"a": 2, "b": 2, "c": 2})
    first, second = places.take(2, alone=True), places.take(2, alone=True)
    assert first is not None
    assert second is not None
    places.keep({"a": 2, "c": 2})
    for taken in (first, second):
        places.give_back(taken)
    assert places.most(2, alone=True) == 2
    assert {each.nodes[0] for _ in range(2) if (each := places.take(2, alone=True))} == {"a", "c"}
    assert places.take(2, alone=True) is None


def test_what_others_use_changes_no_trial() -> None:
    cluster = {"a": 2, "b": 2}
    assert Places({"b": 2}, cluster).take(2, alone=False, spread=True) is None
    assert Places({"a": 1, "b": 1}, cluster).take(2, alone=True) is None
    assert Places({"a": 1, "b": 1}, cluster).take(2, alone=True, spread=True) is not None
    assert Places({"b": 2}, cluster).num_nodes == 2


@pytest.mark.parametrize(
    ("of_node", "world_size", "sharing", "alone"),
    [
        ({"a": 2}, 1, 2, 1),
        ({"a": 2}, 2, 1, 1),
        ({"a": 8}, 2, 4, 1),
        ({"a": 4, "b": 4}, 2, 4, 2),
        ({"a": 4, "b": 4}, 8, 1, 1),
        ({"a": 4, "b": 4, "c": 4, "d": 4}, 8, 2, 2),
        ({"a": 4, "head": 0}, 2, 2, 1),
        ({"a": 2}, 5, 1, 1),  # refused elsewhere; never 0, or nothing would ever begin
    ],
)
def test_how_many_at_once(of_node: dict[str, int], world_size: int, sharing: int, alone: int) -> None:
    places = Places(of_node)
    assert places.most(world_size, alone=False) == sharing
    assert places.most(world_size, alone=True) == alone
    places.take(1, alone=False)
    assert places.most(world_size, alone=False) == sharing  # whatever is under way
