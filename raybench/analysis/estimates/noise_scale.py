"""The gradient noise scale, and what of a throughput is useful.

McCandlish et al. (2018), "An empirical model of large-batch training", appendix A.1: from the squared norms
of gradients at two batch sizes follow unbiased estimates of the squared length of the true gradient and of
the trace of the per-sample covariance, S; B_simple = S / |G|^2. Qiao et al. (2021), "Pollux" (OSDI),
section 3: statistical efficiency and goodput, as AdaptDL computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.records.trainings import Epoch, GradientNorms

DECAY = 0.9  # of the moving averages, from one big batch to the next


@dataclass(frozen=True)
class NoiseScale:
    """Estimates of |G|^2 and S; either may be negative, being unbiased."""

    squared_gradient: float
    variance: float

    @property
    def samples(self) -> float | None:
        """B_simple = S / |G|^2, in samples; None where noise hides the gradient or the variance."""
        if self.squared_gradient <= 0 or self.variance < 0:
            return None
        return self.variance / self.squared_gradient


def two_batch(norms: GradientNorms) -> NoiseScale:
    """The estimates from one pair of batch sizes (McCandlish et al., equations A.1 and A.2)."""
    small, big = norms.small_batch, norms.big_batch
    squared = (big * norms.big_square - small * norms.small_square) / (big - small)
    variance = (norms.small_square - norms.big_square) / (1 / small - 1 / big)
    return NoiseScale(squared, variance)


def by_epoch(epochs: Sequence[Epoch]) -> list[NoiseScale | None]:
    """The smoothed estimates after each epoch; None before there are any.

    Numerator and denominator are averaged apart, with exponentially falling weights that add up to 1: the
    ratio of single estimates would be biased.
    """
    squared = variance = weight = 0.0
    found: list[NoiseScale | None] = []
    for epoch in epochs:
        for norms in epoch.noise:
            one = two_batch(norms)
            squared = DECAY * squared + (1 - DECAY) * one.squared_gradient
            variance = DECAY * variance + (1 - DECAY) * one.variance
            weight = DECAY * weight + (1 - DECAY)
        found.append(NoiseScale(squared / weight, variance / weight) if weight else None)
    return found


def statistical_efficiency(noise_scale: float, reference_batch: float, batch: float) -> float:
    """Progress of a sample at ``batch`` over that of one at ``reference_batch``: (phi + B0) / (phi + B).

    All three in samples (Qiao et al. 2021, equation 6).
    """
    return (noise_scale + reference_batch) / (noise_scale + batch)
