"""What measured points cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.prediction.points import MeasuredPoint, Question
from raybench.analysis.prediction.sweep import SweptLines
from raybench.spec.counted import counted

FEWEST_SIZES = 3
FARTHEST = 8  # times the largest measured world size


@dataclass(frozen=True)
class Reach:
    """How far the measured points, and a sweep of the network, reach."""

    sizes: tuple[int, ...]  # world sizes, the smallest first
    crosses_nodes: bool

    @staticmethod
    def of(points: Sequence[MeasuredPoint], swept: SweptLines | None) -> Reach:
        """What was measured."""
        crosses = any(each.shape.nodes > 1 for each in points) or (swept is not None and swept.crosses_nodes)
        return Reach(tuple(sorted({each.shape.world_size for each in points})), crosses)

    @property
    def largest(self) -> int:
        """The largest measured world size."""
        return self.sizes[-1]

    def refusal(self, question: Question) -> str:
        """Why there is no answer; empty where there is one."""
        shape = question.shape
        if len(self.sizes) < FEWEST_SIZES:
            measured = ", ".join(map(str, self.sizes))
            return (
                f"measured at {counted(len(self.sizes), 'world size')} ({measured}): "
                f"a prediction needs {FEWEST_SIZES}"
            )
        if shape.world_size > FARTHEST * self.largest:
            return (
                f"{shape.world_size} devices are more than {FARTHEST} times the largest measured world size, "
                f"{self.largest}"
            )
        if shape.nodes > 1 and not self.crosses_nodes:
            return (
                f"asked for {shape.nodes} nodes, but all points are from one node: the network between nodes "
                "was never crossed, and no sweep of it is given"
            )
        return ""
