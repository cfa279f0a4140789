"""What a sweep of collectives says of the network, as rows of the fit: its lines take the place of beliefs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.prediction.parameters import MEANS
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.points import Question, Shape
from raybench.analysis.prediction.step_model import Algorithm, all_reduce_line

Floats = NDArray[np.float64]
LEAST_ERROR = 0.10  # of a logarithm: a training's messages are not alone on the network, as a sweep's are
STEP = 1e-5


@dataclass(frozen=True)
class SweptLines:
    """Latency and time for a byte of all-reduces, at some places, with the errors of their logarithms."""

    places: Places
    log_latency: Floats
    latency_error: Floats  # infinite where the sweep does not tell
    log_s_per_byte: Floats
    rate_error: Floats
    nodes: frozenset[int]  # on which it was made

    def residuals(self, values: Floats, algorithm: Algorithm) -> Floats:
        """Measured less model, in standard deviations: latencies, then times for a byte."""
        latency_s, s_per_byte = all_reduce_line(values[: len(MEANS)], self.places, algorithm)
        return np.concatenate(
            [
                (self.log_latency - np.log(latency_s)) / self.latency_error,
                (self.log_s_per_byte - np.log(s_per_byte)) / self.rate_error,
            ]
        )

    def slopes(self, values: Floats, algorithm: Algorithm, columns: int) -> Floats:
        """The model's derivatives, shape ``(rows, columns)``, in the same unit."""
        center = self.residuals(values, algorithm)
        found = np.zeros((len(center), columns))
        for column in range(len(MEANS)):
            moved = values.copy()
            moved[column] += STEP
            found[:, column] = (center - self.residuals(moved, algorithm)) / STEP
        return found


def swept_lines(link: Mapping[LinkKey, Link] | None) -> SweptLines | None:
    """The all-reduces of a sweep; None where there are none on two devices or more whose nodes are known."""
    found = [
        (key, line)
        for key, line in (link or {}).items()
        if key.collective == "all_reduce" and key.world_size > 1 and key.nodes is not None
    ]
    if not found:
        return None
    shapes = [Shape.even(key.world_size, key.nodes or 1) for key, _ in found]
    latency = [_log(line.latency_s) for _, line in found]
    rate = [_log(line.algorithm_bandwidth_bytes_per_s) for _, line in found]
    return SweptLines(
        Places.of([Question(shape, 1) for shape in shapes]),
        np.array([value for value, _ in latency]),
        np.array([error for _, error in latency]),
        np.array([-value for value, _ in rate]),
        np.array([error for _, error in rate]),
        frozenset(shape.nodes for shape in shapes),
    )


def _log(estimate: object) -> tuple[float, float]:
    from raybench.analysis.estimates.statistics import Estimate

    if not isinstance(estimate, Estimate):
        return 0.0, float("inf")
    return float(np.log(estimate.value)), float(np.hypot(LEAST_ERROR, estimate.log_half_width / 1.96))
