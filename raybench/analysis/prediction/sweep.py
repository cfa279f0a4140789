"""What a sweep of collectives says of the network, as rows of the fit, in the place of beliefs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.prediction.parameters import MEANS
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.points import Question, Shape
from raybench.analysis.prediction.step_model import Variant, all_reduce_line

Floats = NDArray[np.float64]
LEAST_ERROR = 0.10  # of a logarithm: a training's messages are not alone on the network, as a sweep's are
STEP = 1e-5


@dataclass(frozen=True)
class SweptLines:
    """Latency and time for a byte of all-reduces at some places; errors are those of logarithms.

    An error is infinite where the sweep does not tell.
    """

    places: Places
    log_latency: Floats
    latency_error: Floats
    log_s_per_byte: Floats
    rate_error: Floats

    @property
    def crosses_nodes(self) -> bool:
        """Whether it says something of the network between nodes."""
        return bool((np.isfinite(self.rate_error) & (self.places.nodes > 1)).any())

    def residuals(self, values: Floats, variant: Variant) -> Floats:
        """Measured less model, in standard deviations: latencies, then times for a byte."""
        return self._residuals(values[: len(MEANS)], variant)

    def slopes(self, values: Floats, variant: Variant, columns: int) -> Floats:
        """The model's derivatives, shape ``(rows, columns)``, in the same unit."""
        parameters = values[: len(MEANS)]
        center = self._residuals(parameters, variant)
        moved = self._residuals(parameters + STEP * np.eye(len(MEANS)), variant)
        found = np.zeros((len(center), columns))
        found[:, : len(MEANS)] = (center - moved).T / STEP
        return found

    def _residuals(self, parameters: Floats, variant: Variant) -> Floats:
        latency_s, s_per_byte = all_reduce_line(parameters, self.places, variant)
        told = latency_s > 0  # a variant without latency is not held against one
        log_latency_s = np.log(np.where(told, latency_s, 1.0))
        return np.concatenate(
            [
                np.where(told, (self.log_latency - log_latency_s) / self.latency_error, 0.0),
                (self.log_s_per_byte - np.log(s_per_byte)) / self.rate_error,
            ],
            axis=-1,
        )


def swept_lines(link: Mapping[LinkKey, Link] | None) -> SweptLines | None:
    """The all-reduces of a sweep; None where there are none on two devices or more whose nodes are known."""
    found = {
        Shape.even(key.world_size, key.nodes): line
        for key, line in (link or {}).items()
        if key.collective == "all_reduce" and key.world_size > 1 and key.nodes is not None
    }
    if not found:
        return None
    latency = [_log(line.latency_s) for line in found.values()]
    rate = [_log(line.algorithm_bandwidth_bytes_per_s) for line in found.values()]
    return SweptLines(
        Places.of([Question(shape, 1) for shape in found]),
        np.array([value for value, _ in latency]),
        np.array([error for _, error in latency]),
        np.array([-value for value, _ in rate]),
        np.array([error for _, error in rate]),
    )


def _log(estimate: Estimate | None) -> tuple[float, float]:
    """The logarithm and its error."""
    if estimate is None:
        return 0.0, float("inf")
    return float(np.log(estimate.value)), float(np.hypot(LEAST_ERROR, estimate.log_half_width / 1.96))
