"""Shapes and batches as columns, so that the model answers for many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from raybench.analysis.prediction.points import MeasuredPoint, Question

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """One row for each question: every column has shape ``(rows,)``."""

    batch: Floats  # per device
    world_size: Floats
    nodes: Floats
    most: Floats  # workers on the fullest node
    slowest_device: Floats  # expected maximum of so many standard normal values
    slowest_link: Floats

    @staticmethod
    def of(asked: Sequence[Question] | Sequence[MeasuredPoint]) -> Places:
        """The columns of the questions, or of what was measured."""
        world_size = np.array([each.shape.world_size for each in asked], dtype=np.float64)
        nodes = np.array([each.shape.nodes for each in asked], dtype=np.float64)
        return Places(
            np.array([each.batch_size for each in asked], dtype=np.float64),
            world_size,
            nodes,
            np.array([max(each.shape.workers) for each in asked], dtype=np.float64),
            expected_maximum(world_size),
            expected_maximum(nodes),
        )

    def __len__(self) -> int:
        return len(self.batch)


def expected_maximum(count: Floats) -> Floats:
    """The largest of so many standard normal values, in the mean: 0 for one, 1.03 for 4, 2.35 for 64.

    Blom (1958), "Statistical estimates and transformed beta-variables": the quantile at (n - 3/8) / (n +
    1/4), within 5% of the exact values. It grows as the root of 2 log n, as extreme value theory says.
    """
    return np.asarray(ndtri((count - 0.375) / (count + 0.25)), dtype=np.float64)
