"""The gradient noise scale, and what of a throughput is useful.

McCandlish et al. (2018), "An empirical model of large-batch training", appendix A.1: from the squared norms
of gradients at two batch sizes follow unbiased estimates of the squared length of the true gradient and of
the trace of the per-sample covariance, S; B_simple = S / |G|^2. Qiao et al. (2021), "Pollux" (OSDI),
section 3: statistical efficiency and goodput, as AdaptDL computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from raybench.records.results import Epoch, GradientNorms


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


def mean_scale(measured: Sequence[GradientNorms]) -> NoiseScale | None:
    """The means of the estimates of one epoch; None where there are none.

    Numerator and denominator are averaged separately: the ratio of single estimates would be biased.
    """
    pairs = [two_batch(norms) for norms in measured]
    if not pairs:
        return None
    return NoiseScale(fmean(each.squared_gradient for each in pairs), fmean(each.variance for each in pairs))


def mean_efficiency(epochs: Sequence[Epoch], reference_batch: int, batch: int) -> float | None:
    """Statistical efficiency of one run, the mean over its epochs; None where none has a measurement.

    Progress of a sample at ``batch`` over that of one at ``reference_batch``: (phi + B0) / (phi + B) with the
    noise scale phi = S / |G|^2, all in samples (Qiao et al. 2021, equation 6), where the learning rate grows
    with the batch. It is 1 where noise hides the gradient (|G|^2 of 0 or less): leaving such epochs out would
    favour small batches.
    """
    found = list[float]()
    for scale in filter(None, (mean_scale(epoch.noise) for epoch in epochs)):
        squared, variance = max(scale.squared_gradient, 0.0), max(scale.variance, 0.0)
        if squared or variance:
            found.append((variance + reference_batch * squared) / (variance + batch * squared))
    return fmean(found) if found else None
