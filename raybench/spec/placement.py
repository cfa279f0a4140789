"""Where the workers of a trial stand among the nodes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from raybench.spec.base import NonNegativeInt

Placement = Literal["pack", "spread"] | tuple[NonNegativeInt, ...]


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
