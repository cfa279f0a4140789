"""Which kinds of findings on steadiness and evenness are surely not there, of many trials at once.

Their conditions say what is found. Here the numbers on which they decide are worked out, by the same
functions, for all trials whose rounds are alike together: a condition is asked only where it may be met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.diagnosis.case import OfTrial
from raybench.analysis.diagnosis.evenness import UNEVEN_LEAST, UnevenDevices
from raybench.analysis.diagnosis.steadiness import DRIFT_SIGNIFICANCE, Drift, OutlierRounds
from raybench.analysis.estimates.device_spread import device_spreads
from raybench.analysis.estimates.many import Floats, measured
from raybench.analysis.estimates.stacked import Stacked, stacked
from raybench.analysis.estimates.trends import mann_kendall, outlying
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


def _steps(rows: Stacked) -> Floats | None:
    """The step times of the rounds."""
    values = rows.series("synced")
    values = rows.series("plain") if values is None else values
    return None if values is None else measured(values)


def _outlying(rows: Stacked) -> Mask:
    values = _steps(rows)
    return _none(rows) if values is None else np.asarray(outlying(values, BORDER).any(axis=1))


def _drifting(rows: Stacked) -> Mask:
    values = _steps(rows)
    return _none(rows) if values is None else mann_kendall(np.log(values)) < DRIFT_SIGNIFICANCE


def _uneven(rows: Stacked) -> Mask:
    """Where the slowest device is 2% slower than the fastest one, and certainly slower."""
    values, devices = rows.alone("plain")
    found = device_spreads(np.log(measured(values)), devices)
    if found is None:
        return _none(rows)
    is_much = np.expm1(found.apart) >= UNEVEN_LEAST * (1 - BORDER)
    return np.asarray(is_much & (found.apart - found.half >= -BORDER))


def _none(rows: Stacked) -> Mask:
    return np.zeros(len(rows), dtype=np.bool_)


_SCREENED: tuple[tuple[type[OfTrial], Callable[[Stacked], Mask]], ...] = (
    (OutlierRounds, _outlying),
    (Drift, _drifting),
    (UnevenDevices, _uneven),
)
