"""Which places of the cluster's nodes trials under way have, and which are free for a next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle


@dataclass(frozen=True)
class Taken:
    """What a trial was given."""

    nodes: tuple[str, ...]  # of each worker
    places: Mapping[str, int]  # that nobody else has meanwhile, by node


class Places:
    """The places of a cluster: how many workers fit on each node."""

    def __init__(self, of_node: Mapping[str, int]) -> None:
        self._all = {node: places for node, places in of_node.items() if places > 0}
        self._free = dict(self._all)

    @property
    def num_nodes(self) -> int:
        """The nodes that have any."""
        return len(self._all)

    def most(self, world_size: int, *, alone: bool) -> int:
        """How many trials of this size fit side by side, at least 1; see ``take`` for ``alone``."""
        places, number = Places(self._all), 0
        while places.take(world_size, alone=alone) is not None:
            number += 1
        return max(number, 1)

    def take(self, world_size: int, *, alone: bool, spread: bool = False) -> Taken | None:
        """Places for a trial, on few nodes or ``spread`` over many; None where there are not enough.

        ``alone``: on nodes that no other trial has, and that no other gets until it gives them back.
        """
        free = {n: p for n, p in self._free.items() if p and (p == self._all[n] or not alone)}
        if sum(free.values()) < world_size:
            return None
        nodes = list[str]()
        if spread:
            for node in cycle(free):
                if len(nodes) == world_size:
                    break
                if nodes.count(node) < free[node]:
                    nodes.append(node)
        else:
            fullest = sorted(free, key=lambda node: free[node], reverse=True)
            enough = [node for node in fullest if free[node] >= world_size]
            for node in enough[-1:] or fullest:  # the smallest that has room for all of it
                nodes += [node] * min(free[node], world_size - len(nodes))
        used = Counter(nodes)
        places = {node: free[node] if alone else number for node, number in used.items()}
        for node, number in places.items():
            self._free[node] -= number
        return Taken(tuple(sorted(nodes)), places)

    def give_back(self, taken: Taken) -> None:
        """What ``take`` gave."""
        for node, number in taken.places.items():
            self._free[node] += number
