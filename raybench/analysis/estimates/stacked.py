"""The rounds of many trials as matrices, a row a trial: those whose rounds have the same blocks together."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np

from raybench.analysis.estimates.many import Floats
from raybench.analysis.estimates.rounds import ALONE
from raybench.analysis.estimates.statistics import device_factors
from raybench.records.measurements import StepsResult
from raybench.records.packed_rounds import PlainRound, plain_rounds
from raybench.records.requests import Variant

Value = Literal["slowest_rank", "mean_rank", "slowest_step"]  # as the functions of ``rounds`` are called
VALUES: tuple[Value, ...] = get_args(Value)
VARIANTS: tuple[Variant, ...] = get_args(Variant)
# of each round its blocks: the variant, and the first rank of one that is alone
Pattern = tuple[tuple[tuple[Variant, int], ...], ...]


class Stacked:
    """Trials whose rounds have the same blocks, of variants that run on one device on the same ones."""

    def __init__(self, pattern: Pattern, numbers: Floats) -> None:
        self._pattern = pattern
        self._numbers = numbers  # (trials, blocks * values)
        self._known: dict[tuple[Variant, Value], Floats | None] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def rows(self, places: Sequence[int]) -> Stacked:
        """Some of the trials."""
        return Stacked(self._pattern, self._numbers[np.asarray(places, dtype=np.intp)])

    def series(self, variant: Variant, value: Value = "slowest_rank") -> Floats | None:
        """``rounds.series`` of each trial, shape ``(trials, rounds)``; None without two such blocks.

        A round without such a block is NaN, in all rows.
        """
        key = variant, value
        if key not in self._known:
            self._known[key] = self._series(variant, value)
        return self._known[key]

    def alone(self, variant: Variant) -> tuple[Floats, list[int]]:
        """Times of blocks on one device as they were measured, NaN where there is none, and the devices."""
        return self._blocks(variant, "slowest_rank")

    def _series(self, variant: Variant, value: Value) -> Floats | None:
        values, devices = self._blocks(variant, value)
        present = np.isfinite(values[0])
        if int(present.sum()) < 2:
            return None
        if variant in ALONE:
            beside, _ = self._blocks("synced", "slowest_rank")
            ratios = values / beside if np.isfinite(beside[0][present]).all() else values
            values[:, present] *= device_factors(ratios[:, present], devices)
        return values

    def _blocks(self, variant: Variant, value: Value) -> tuple[Floats, list[int]]:
        """The values as they were measured, and the first device of each block that there is."""
        values = np.full((len(self), len(self._pattern)), np.nan)
        devices, column = list[int](), VALUES.index(value)
        for number, blocks in enumerate(self._pattern):
            for name, device in blocks:
                if name == variant:
                    values[:, number] = self._numbers[:, column]
                    devices.append(device)
                column += len(VALUES)
        return values, devices


def stacked(measurements: Sequence[StepsResult]) -> Iterator[tuple[list[int], Stacked]]:
    """The measurements in groups of alike: their places in the sequence, and their rounds."""
    groups: dict[Pattern, tuple[list[int], array[float]]] = {}
    for place, measurement in enumerate(measurements):
        pattern, numbers = _row(plain_rounds(measurement.rounds))
        places, rows = groups.setdefault(pattern, ([], array("d")))
        places.append(place)
        rows.extend(numbers)
    for pattern, (places, rows) in groups.items():
        yield places, Stacked(pattern, np.frombuffer(rows).reshape(len(places), -1))


def _row(rounds: Sequence[PlainRound]) -> tuple[Pattern, list[float]]:
    """The pattern of one trial's rounds, and its values in the pattern's order."""
    pattern, numbers = [], list[float]()
    for each in rounds:
        found = {block[0]: block for block in reversed(each[0])}  # of several the first counts
        blocks = []
        for name in VARIANTS:
            if name in found:
                _, ranks, times_s, slowest_s, _ = found[name]
                blocks.append((name, ranks[0] if name in ALONE else 0))
                numbers += (max(times_s), sum(times_s) / len(times_s), slowest_s)
        pattern.append(tuple(blocks))
    return tuple(pattern), numbers
