"""Where the workers of a trial stand among the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from raybench.spec.base import Ascending, NonNegativeInt, no_repeats

# Ranks ascend, as torch orders them: [1, 0] are the devices of [0, 1].
Ranks = Annotated[
    tuple[NonNegativeInt, ...],
    Field(min_length=1),
    AfterValidator(no_repeats),
    Ascending,
]
Placement = Literal["pack", "spread"] | Ranks
Node = TypeVar("Node", bound=Hashable)


def placement_text(placement: Placement) -> str:
    """pack, spread, or the ranks with spaces between them."""
    return placement if isinstance(placement, str) else " ".join(map(str, placement))


def placement_words(placement: Placement) -> str:
    """pack, spread, ranks 0 3."""
    return placement if isinstance(placement, str) else f"ranks {placement_text(placement)}"


def alternating(nodes: Sequence[Hashable]) -> list[int]:
    """The places in ``nodes`` in another order: one of each node, then a second one of each, and so on."""
    by_node: dict[Hashable, list[int]] = {}
    for place, node in enumerate(nodes):
        by_node.setdefault(node, []).append(place)
    longest = max(map(len, by_node.values()), default=0)
    return [places[i] for i in range(longest) for places in by_node.values() if i < len(places)]


def workers_on(places: Mapping[Node, int], world_size: int, *, spread: bool) -> Counter[Node]:
    """How many workers stand on each node, of nodes that have ``places`` for ``world_size`` and more.

    ``spread``: one on each node in turn. Else on as few nodes as can be: the smallest that holds all that are
    left, or the largest, and again.
    """
    if spread:
        every = [node for node, number in places.items() for _ in range(number)]
        return Counter(every[place] for place in alternating(every)[:world_size])
    left, found = dict(places), Counter[Node]()
    while (wanted := world_size - found.total()) > 0:
        enough = [node for node, number in left.items() if number >= wanted]
        node = min(enough, key=left.__getitem__) if enough else max(left, key=left.__getitem__)
        found[node] = min(left.pop(node), wanted)
    return found
