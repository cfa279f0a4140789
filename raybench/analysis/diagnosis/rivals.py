"""Which settings may be better than one, of very many: found in columns, so that few pairs are looked at."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.estimates.simultaneous import degrees_of, widening
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.speaking import InSameRounds
from raybench.records.record import TrialRecord

Floats = NDArray[np.float64]
BORDER = 1e-9  # of a logarithm: what is so close to a limit is looked at


class Rivals:
    """The candidates of a study, one trial a setting, as columns; ``num_pairs`` are compared in all."""

    def __init__(
        self,
        results: MeasuredStudy,
        candidates: Sequence[TrialRecord],
        num_pairs: int,
        in_same_rounds: InSameRounds,
    ) -> None:
        self._places = {record.trial_id: place for place, record in enumerate(candidates)}
        self._candidates, self._in_same_rounds = candidates, in_same_rounds
        scalings = [results.scaling(record) for record in candidates]
        self._efficiency, self._width = _columns([each.efficiency for each in scalings])
        self._rate, self._rate_width = _columns([each.throughput_samples_per_s for each in scalings])
        most = max((degrees_of(each.throughput_samples_per_s) for each in scalings), default=1)
        # Welch's degrees of freedom are at most the sum of both sides'; fewer make an interval wider
        self._widening = widening(2 * max(most, 1), max(num_pairs, 1))
        self._knobs = _codes([_asked(record) for record in candidates])

    def ahead_of(self, record: TrialRecord) -> list[list[TrialRecord]]:
        """Those that may be more efficient and faster, whole intervals apart: by what is changed.

        Each group changes the same, the most efficient first. None is left out that ``simultaneous_ratio``
        calls better in both.
        """
        own = self._places[record.trial_id]
        with np.errstate(invalid="ignore"):  # without an efficiency
            more = self._efficiency - self._efficiency[own]
            faster = self._rate - self._rate[own]
            ahead = more >= self._widening * np.hypot(self._width, self._width[own]) - BORDER
            is_faster = faster >= self._widening * np.hypot(self._rate_width, self._rate_width[own]) - BORDER
        if self._in_same_rounds:  # what shared rounds is told apart by these
            for place in np.flatnonzero(ahead & ~is_faster).tolist():
                other = self._candidates[place]
                is_faster[place] = self._in_same_rounds.ratio(other.config, record.config) is not None
        ahead &= is_faster
        ahead[own] = False
        places = np.flatnonzero(ahead)
        places = places[np.argsort(-self._efficiency[places], kind="stable")]
        changed = self._knobs[places] != self._knobs[own]
        groups: dict[bytes, list[TrialRecord]] = {}
        for place, row in zip(places.tolist(), np.packbits(changed, axis=1), strict=True):
            groups.setdefault(row.tobytes(), []).append(self._candidates[place])
        return list(groups.values())


def _columns(estimates: Sequence[Estimate | None]) -> tuple[Floats, Floats]:
    """Logarithms of the values, and of half the intervals; NaN where there is none, or it holds 0."""
    known = [None if each is None or each.low <= 0 else each for each in estimates]
    values = np.array([np.nan if each is None else each.value for each in known])
    widths = np.array([np.nan if each is None else each.log_half_width for each in known])
    return np.log(values), widths


def _asked(record: TrialRecord) -> dict[str, Hashable]:
    """All in which one configuration may differ from another, and what makes two changes one."""
    config = record.config
    placement = config.placement if isinstance(config.placement, str) else tuple(config.placement)
    variables = {f"${name}": each for name, each in config.environment.items()}
    beside = {"placement": placement, "samples per pass": config.samples_per_pass}
    return {**vars(config.setting), **variables, **beside}


def _codes(asked: Sequence[dict[str, Hashable]]) -> NDArray[np.unsignedinteger]:
    """Equal numbers for equal values, shape ``(settings, what may differ)``."""
    names = sorted({name for each in asked for name in each})
    columns = []
    for name in names:
        numbers: dict[Hashable, int] = {}
        columns.append([numbers.setdefault(each.get(name), len(numbers)) for each in asked])
    most = max((max(column, default=0) for column in columns), default=0)
    small = np.min_scalar_type(most)  # they are compared with every setting's
    return np.ascontiguousarray(np.array(columns, dtype=small).reshape(len(names), len(asked)).T)
