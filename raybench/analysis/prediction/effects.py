"""What the model misses of a batch, a shape, a number of nodes: an effect for each group of points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.prediction.points import MeasuredPoint, Question

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Kind = Literal["batch", "shape", "nodes"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # the first is of compute, the others are of communication
Asked = Sequence[MeasuredPoint] | Sequence[Question]


@dataclass(frozen=True)
class Groups:
    """Every group that has an effect, kind after kind: its place among all effects."""

    places: dict[tuple[Kind, object], int]

    @staticmethod
    def of(asked: Asked) -> Groups:
        """The groups of measured points, or of questions."""
        return Groups({}).with_those_of(asked)

    def with_those_of(self, asked: Asked) -> Groups:
        """The same groups in their places, and behind them those that are new."""
        places = dict(self.places)
        for each in asked:
            for group in _groups(each):
                if group is not None:
                    places.setdefault(group, len(places))
        return Groups(places)

    def columns(self, asked: Asked) -> Indices:
        """The effect of each kind that each row has, shape ``(rows, kinds)``; -1 where it has none."""
        rows = [[-1 if group is None else self.places[group] for group in _groups(each)] for each in asked]
        return np.array(rows, dtype=np.intp).reshape(len(rows), len(KINDS))

    def of_kind(self, kind: Kind) -> Indices:
        """The places of one kind's effects."""
        return np.array([place for group, place in self.places.items() if group[0] == kind], dtype=np.intp)

    def deviations(self, sizes: dict[Kind, float]) -> Floats:
        """The standard deviation of each effect, shape ``(groups,)``."""
        return np.array([sizes[kind] for kind, _ in self.places])

    def __len__(self) -> int:
        return len(self.places)


def _groups(each: MeasuredPoint | Question) -> list[tuple[Kind, object] | None]:
    """One for each kind; None where there is no such effect: one device has no communication."""
    workers = each.shape.workers
    return [
        ("batch", each.batch_size),
        ("shape", tuple(sorted(workers))) if sum(workers) > 1 else None,
        ("nodes", len(workers)) if len(workers) > 1 else None,
    ]
