"""Trends over rounds that outliers do not sway, and the outliers themselves."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from raybench.analysis.estimates.rounds import Series

OUTLIER_SCORE = 3.5  # modified z-score
OUTLIER_LEAST = 0.10  # relative; less is no outlier, however quiet the other rounds


def outlier_rounds(values: Series) -> NDArray[np.intp]:
    """The rounds whose logarithm has a modified z-score over 3.5 and that are 10% off the median at least.

    Iglewicz and Hoaglin (1993), "How to detect and handle outliers": 0.6745 (x - median) / MAD.
    """
    logs = np.log(values)
    off = np.abs(logs - np.nanmedian(logs))
    spread = float(np.nanmedian(off)) / 0.6745
    return np.flatnonzero((off > OUTLIER_SCORE * spread) & (off > OUTLIER_LEAST))


def mann_kendall(values: Series) -> float:
    """The two-sided significance of a monotone trend, normal approximation with continuity correction.

    Mann (1945), "Nonparametric tests against trend", Econometrica 13. Outliers do not sway it.
    """
    n = len(values)
    later = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(mann_kendall_of_score(later.sum(), n))


def mann_kendall_of_score(score: Series | float, n: int) -> Series:
    """The significance of scores, each how many of all pairs of ``n`` values rise, less those that fall."""
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    found: Series = 2 * ndtr(-np.maximum((np.abs(score) - 1) / deviation, 0.0))
    return found


def theil_sen(at: Series, values: Series) -> float:
    """The median slope over all pairs of points: Sen (1968), J. Am. Stat. Assoc. 63."""
    i, j = np.triu_indices(len(values), 1)
    apart = at[j] - at[i]
    slopes = (values[j] - values[i])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) if len(slopes) else 0.0
