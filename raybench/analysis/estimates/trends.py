"""Trends over rounds that outliers do not sway, and the outliers themselves."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from raybench.analysis.estimates.rounds import Series

OUTLIER_SCORE = 3.5  # modified z-score
OUTLIER_LEAST = 0.10  # relative; less is no outlier, however quiet the other rounds


def outlying(values: Series, border: float = 0.0) -> NDArray[np.bool_]:
    """Whether a round's logarithm has a modified z-score over 3.5 and is 10% off the median at least.

    ``values``: times, shape ``(rounds,)`` or, of several trials, ``(trials, rounds)``, NaN where a round has
    none. Those that are so near to a limit, relative, are outlying too. Iglewicz and Hoaglin (1993), "How to
    detect and handle outliers": 0.6745 (x - median) / MAD.
    """
    logs = np.log(values)
    median = np.nanmedian if np.isnan(logs).any() else np.median
    off = np.abs(logs - median(logs, axis=-1, keepdims=True))
    spread = median(off, axis=-1, keepdims=True) / 0.6745
    return np.asarray(off > np.maximum(OUTLIER_SCORE * spread, OUTLIER_LEAST) * (1 - border))


def mann_kendall(values: Series) -> Series:
    """The two-sided significance of a monotone trend, normal approximation with continuity correction.

    ``values``: finite, shape ``(rounds,)`` or, of several trials, ``(trials, rounds)``: one for each trial.
    Mann (1945), "Nonparametric tests against trend", Econometrica 13. Outliers do not sway it.
    """
    n = values.shape[-1]
    # how many of all pairs of rounds rise, less those that fall
    scores = np.zeros(values.shape[:-1])
    for place in range(n - 1):
        scores += np.sign(values[..., place + 1 :] - values[..., place, None]).sum(axis=-1)
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    found: Series = 2 * ndtr(-np.maximum((np.abs(scores) - 1) / deviation, 0.0))
    return found


def theil_sen(at: Series, values: Series) -> float:
    """The median slope over all pairs of points: Sen (1968), J. Am. Stat. Assoc. 63."""
    i, j = np.triu_indices(len(values), 1)
    apart = at[j] - at[i]
    slopes = (values[j] - values[i])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) if len(slopes) else 0.0
