"""In which order nodes take turns."""

import pytest

from raybench.spec.placement import alternating


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
