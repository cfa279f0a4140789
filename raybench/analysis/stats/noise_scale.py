"""The gradient noise scale, and what of a throughput is useful.

McCandlish et al. (2018), "An empirical model of large-batch training", appendix A.1: from the squared norms
of gradients at two batch sizes follow unbiased estimates of the squared length of the true gradient and of
the trace of the per-sample covariance, S; B_simple = S / |G|^2. Qiao et al. (2021), "Pollux" (OSDI),
section 3: statistical efficiency and goodput, as AdaptDL computes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from raybench.analysis.stats.statistics import LEAST_VALUES, Estimate, student, t_quantile, within
from raybench.records.results import Epoch, GradientNorms

MOST_GROUPS = 20  # of measurements that are left out in turn


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


def efficiency_over_runs(
    runs: Sequence[Sequence[Epoch]], reference_batch: int, batch: int, *, is_scaled: bool = True
) -> Estimate | None:
    """Statistical efficiency, mean over epochs and runs, as sure as the noise scale is known.

    Progress of a sample at ``batch`` over that of one at ``reference_batch``: (phi + B0) / (phi + B) with the
    noise scale phi, all in samples (Qiao et al. 2021, equation 6).

    ``is_scaled``: whether the learning rate grew with the batch, which the formula assumes. Where it did not,
    a step makes at least the progress of one at the reference batch in the limit of small steps: the interval
    goes from reference over batch to the formula's end, and the value is only its geometric middle.

    With three runs or more the interval is Student's over them; with fewer that of the jackknife within each
    (Tukey 1958: groups of the measurements are left out in turn), n counts these. It stays between 1 and
    reference over batch, the ends at an infinite and at no noise. Fewer than three measurements have no
    interval. None where no epoch has a measurement.
    """
    found = _by_formula(runs, reference_batch, batch)
    if found is None or is_scaled:
        return found
    ratio = reference_batch / batch
    low, high = min(found.low, ratio), max(found.high, ratio)
    return Estimate(math.sqrt(low * high), low, high, found.n, found.starts)


def _by_formula(runs: Sequence[Sequence[Epoch]], reference_batch: int, batch: int) -> Estimate | None:
    measured = [[epoch.noise for epoch in run] for run in runs]
    means = [_mean_efficiency(run, reference_batch, batch) for run in measured]
    known = [(run, mean) for run, mean in zip(measured, means, strict=True) if mean is not None]
    if not known:
        return None
    value, ratio = fmean(mean for _, mean in known), reference_batch / batch
    bounds = (min(1.0, ratio), max(1.0, ratio))
    if len(known) >= LEAST_VALUES:
        return within(student([mean for _, mean in known]), bounds)
    counts = [sum(map(len, run)) for run, _ in known]
    if min(counts) < LEAST_VALUES:
        return Estimate(value, value, value, min(counts))
    halves = [_jackknife_half_width(run, reference_batch, batch) for run, _ in known]
    half = math.hypot(*halves) / len(halves)
    return within(Estimate(value, value - half, value + half, sum(counts)), bounds)


def _mean_efficiency(
    of_epochs: Sequence[Sequence[GradientNorms]], reference_batch: int, batch: int
) -> float | None:
    """Over the epochs of one run: (S + B0 G) / (S + B G) of each, by the means of its measurements.

    It is 1 where noise hides the gradient (G = |G|^2 of 0 or less): leaving such epochs out would favour
    small batches.
    """
    found = list[float]()
    for scale in filter(None, map(mean_scale, of_epochs)):
        squared, variance = max(scale.squared_gradient, 0.0), max(scale.variance, 0.0)
        if squared or variance:
            found.append((variance + reference_batch * squared) / (variance + batch * squared))
    return fmean(found) if found else None


def _jackknife_half_width(
    of_epochs: Sequence[Sequence[GradientNorms]], reference_batch: int, batch: int
) -> float:
    """Of one run's mean efficiency; infinite where it hangs on one group of measurements."""
    places = [(epoch, place) for epoch, of_one in enumerate(of_epochs) for place in range(len(of_one))]
    groups = min(len(places), MOST_GROUPS)
    without = list[float]()
    for group in range(groups):
        left_out = set(places[group::groups])
        kept = [
            [norms for place, norms in enumerate(of_one) if (epoch, place) not in left_out]
            for epoch, of_one in enumerate(of_epochs)
        ]
        mean = _mean_efficiency(kept, reference_batch, batch)
        if mean is None:
            return math.inf
        without.append(mean)
    middle = fmean(without)
    squares = math.fsum((each - middle) ** 2 for each in without)
    return t_quantile(groups - 1) * math.sqrt((groups - 1) / groups * squares)
