"""Which places of the cluster's nodes trials under way have, and which are free for a next one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from raybench.spec.placement import workers_on


@dataclass(frozen=True)
class Taken:
    """What a trial was given."""

    nodes: tuple[str, ...]  # of each worker
    places: Mapping[str, int]  # that nobody else has meanwhile, by node


class Places:
    """The places of a cluster: how many workers fit on each node."""

    def __init__(self, of_node: Mapping[str, int], cluster: Mapping[str, int] | None = None) -> None:
        """``of_node``: those that others leave free; ``cluster``: all, where others may use some."""
        self._all = {node: places for node, places in of_node.items() if places > 0}
        self._cluster = {node: places for node, places in (cluster or of_node).items() if places > 0}
        self._free = dict(self._all)
        self._gone = frozenset[str]()

    @property
    def num_nodes(self) -> int:
        """The nodes of the cluster that have any."""
        return len(self._cluster)

    def untaken(self) -> Places:
        """The same while no trial has any."""
        return Places({n: p for n, p in self._all.items() if n not in self._gone}, self._cluster)

    def keep(self, there: Collection[str]) -> None:
        """Hand out places on these nodes alone: the others are gone."""
        self._gone = frozenset(self._cluster) - frozenset(there)

    def most(self, world_size: int, *, alone: bool, spread: bool = False) -> int:
        """How many trials of this size fit side by side, at least 1; see ``take``."""
        places, number = self.untaken(), 0
        while places.take(world_size, alone=alone, spread=spread) is not None:
            number += 1
        return max(number, 1)

    def take(self, world_size: int, *, alone: bool, spread: bool = False) -> Taken | None:
        """Places for a trial, on few nodes or ``spread`` over many; None where there are not enough.

        ``alone``: on nodes that no other trial has, and that no other gets until it gives them back. Such a
        trial, and one that is ``spread``, stands as it would with the cluster to itself, or not at all: over
        more or fewer nodes it would measure other links.
        """
        there = {node: places for node, places in self._free.items() if places and node not in self._gone}
        free = {node: places for node, places in there.items() if places == self._all[node] or not alone}
        if sum(free.values()) < world_size:
            return None
        used = workers_on(free, world_size, spread=spread)
        if alone or spread:
            meant = workers_on(self._cluster, world_size, spread=spread)
            if sorted(used.values()) != sorted(meant.values()):
                return None
        places = {node: free[node] if alone else number for node, number in used.items()}
        for node, number in places.items():
            self._free[node] -= number
        return Taken(tuple(sorted(used.elements())), places)

    def give_back(self, taken: Taken) -> None:
        """What ``take`` gave."""
        for node, number in taken.places.items():
            self._free[node] += number
