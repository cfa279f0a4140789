"""Which ranks stand for a placement, over one node and over several."""

import json

import pytest

from raybench.errors import LONGEST_LINE
from raybench.records.messages import GroupInfo, Member, Outcome
from raybench.records.record import TrialRecord
from tests.unit.studies import request


def group(*nodes: str) -> GroupInfo:
    """A group whose ranks stand on these nodes, in order."""
    return GroupInfo(tuple(Member(rank, node, node, 1, "a GPU") for rank, node in enumerate(nodes)), 0)


TWO_OF_FOUR = group("a", "a", "a", "a", "b", "b", "b", "b")
UNEVEN = group("a", "a", "a", "b", "c", "c")


@pytest.mark.parametrize(
    ("world_size", "placement", "expected"),
    [
        (1, "pack", (0,)),
        (2, "pack", (0, 1)),
        (4, "pack", (0, 1, 2, 3)),
        (6, "pack", (0, 1, 2, 3, 4, 5)),
        (1, "spread", (0,)),
        (2, "spread", (0, 4)),
        (3, "spread", (0, 1, 4)),
        (4, "spread", (0, 1, 4, 5)),
        (8, "spread", (0, 1, 2, 3, 4, 5, 6, 7)),
        (2, (3, 5), (3, 5)),
        (3, (7, 0, 2), (0, 2, 7)),  # in torch's order, so that a record's places are the team's
    ],
)
def test_two_nodes_of_four(world_size, placement, expected):
    assert TWO_OF_FOUR.ranks_for(world_size, placement) == expected


@pytest.mark.parametrize(
    ("world_size", "expected"),
    [(3, (0, 3, 4)), (4, (0, 1, 3, 4)), (5, (0, 1, 3, 4, 5)), (6, (0, 1, 2, 3, 4, 5))],
)
def test_spread_over_nodes_of_different_sizes_takes_turns(world_size, expected):
    assert UNEVEN.ranks_for(world_size, "spread") == expected


@pytest.mark.parametrize(("world_size", "expected"), [(2, (4, 5)), (3, (0, 1, 2)), (4, (0, 1, 2, 3))])
def test_packed_workers_stand_on_the_fewest_nodes_whichever_ray_began_with(world_size, expected):
    assert UNEVEN.ranks_for(world_size, "pack") == expected
    assert group("a", "a", "b", "b", "b", "b").ranks_for(4, "pack") == (2, 3, 4, 5)


def test_pack_and_spread_are_the_same_on_one_node():
    one = group("a", "a", "a", "a")
    assert one.ranks_for(3, "pack") == one.ranks_for(3, "spread") == (0, 1, 2)


def test_ranks_interleaved_over_nodes_are_spread_by_node_not_by_number():
    assert group("a", "b", "a", "b").ranks_for(2, "spread") == (0, 1)
    assert group("a", "a", "b", "a").ranks_for(2, "spread") == (0, 2)


def test_nodes_are_counted_by_where_the_ranks_stand():
    assert TWO_OF_FOUR.nodes_of((0, 1, 2)) == 1
    assert TWO_OF_FOUR.nodes_of((0, 4)) == 2
    assert UNEVEN.nodes_of((0, 3, 5)) == 3


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("no file a\udcff", r"no file a\udcff"),
        ("\x1b[2J\nline\u202e", r"\x1b[2J line\u202e"),
        ("a\U0001000c", r"a\U0001000c"),
        ("x" * 5_000_000, "x" * (LONGEST_LINE - 3) + "..."),
        ("", "crashed"),
        ("é 日本 👍", "é 日本 👍"),
    ],
)
def test_whatever_an_error_said_becomes_a_record_that_can_be_written_and_read(reason, kept):
    outcome = Outcome("crashed", 1.0, reason)
    made = outcome.to_record(request(), study="x", started_at="2026-01-01T00:00:00+00:00")
    assert made.reason == kept
    assert TrialRecord.model_validate(json.loads(made.model_dump_json().encode())) == made
