"""Which kinds of findings on steadiness and evenness are surely not there, of many trials at once.

Their conditions say what is found. Here the numbers on which they decide are worked out for all trials whose
rounds are alike together, so that a condition is asked only where it may be met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from raybench.analysis.diagnosis.case import OfTrial
from raybench.analysis.diagnosis.evenness import UNEVEN_LEAST, UNEVEN_SIGNIFICANCE, UnevenDevices
from raybench.analysis.diagnosis.steadiness import DRIFT_SIGNIFICANCE, Drift, OutlierRounds
from raybench.analysis.estimates.many import Floats, measured
from raybench.analysis.estimates.stacked import Stacked, stacked
from raybench.analysis.estimates.trends import OUTLIER_LEAST, OUTLIER_SCORE, mann_kendall_of_score
from raybench.records.record import TrialRecord

AT_ONCE = 5000  # trials
BORDER = 1e-9  # relative: what is so close to a limit is left to the condition
Mask = NDArray[np.bool_]


def without_findings(records: Iterable[TrialRecord]) -> dict[str, list[type[OfTrial]]]:
    """Of complete trials of steps, by trial id, the kinds of which there is surely none."""
    found: dict[str, list[type[OfTrial]]] = {}
    every = [(record, record.steps) for record in records if record.steps is not None]
    for first in range(0, len(every), AT_ONCE):
        some = every[first : first + AT_ONCE]
        for places, rows in stacked([steps for _, steps in some]):
            names = [some[place][0].trial_id for place in places]
            for kind, may_be_found in _SCREENED:
                for name, may in zip(names, may_be_found(rows).tolist(), strict=True):
                    if not may:
                        found.setdefault(name, []).append(kind)
    return found


def _log_steps(rows: Stacked) -> Floats | None:
    """Logarithms of the rounds' step times."""
    values = rows.series("synced")
    values = rows.series("plain") if values is None else values
    return None if values is None else np.log(measured(values))


def _outlying(rows: Stacked) -> Mask:
    logs = _log_steps(rows)
    if logs is None:
        return np.zeros(len(rows), dtype=np.bool_)
    off = np.abs(logs - np.median(logs, axis=1, keepdims=True))
    spread = np.median(off, axis=1, keepdims=True) / 0.6745
    least = np.maximum(OUTLIER_SCORE * spread, OUTLIER_LEAST) * (1 - BORDER)
    return np.asarray((off > least).any(axis=1))


def _drifting(rows: Stacked) -> Mask:
    logs = _log_steps(rows)
    if logs is None:
        return np.zeros(len(rows), dtype=np.bool_)
    n = logs.shape[1]
    scores = np.zeros(len(rows))
    for place in range(n - 1):
        scores += np.sign(logs[:, place + 1 :] - logs[:, place, None]).sum(axis=1)
    return np.asarray(mann_kendall_of_score(scores, n) < DRIFT_SIGNIFICANCE)


def _uneven(rows: Stacked) -> Mask:
    """Where the slowest device is 2% slower than the fastest one, and certainly slower."""
    values, devices = rows.alone("plain")
    ranks, turns = np.unique(np.asarray(devices, dtype=np.int64), return_inverse=True)
    degrees = len(devices) - len(ranks)
    if len(ranks) < 2 or degrees < 2:
        return np.zeros(len(rows), dtype=np.bool_)
    logs, counts = np.log(measured(values)), np.bincount(turns)
    means = np.column_stack([logs[:, turns == rank].mean(axis=1) for rank in range(len(ranks))])
    within = ((logs - means[:, turns]) ** 2).sum(axis=1)
    slow, fast = means.argmax(axis=1), means.argmin(axis=1)
    apart = means.max(axis=1) - means.min(axis=1)
    error = np.sqrt(within / degrees * (1 / counts[slow] + 1 / counts[fast]))
    num_pairs = len(ranks) * (len(ranks) - 1) / 2
    half = stdtrit(degrees, 1 - UNEVEN_SIGNIFICANCE / 2 / num_pairs) * error
    return np.asarray((np.expm1(apart) >= UNEVEN_LEAST * (1 - BORDER)) & (apart - half >= -BORDER))


_SCREENED: tuple[tuple[type[OfTrial], Callable[[Stacked], Mask]], ...] = (
    (OutlierRounds, _outlying),
    (Drift, _drifting),
    (UnevenDevices, _uneven),
)
