"""Visits with planted step times and planted noise: of blocks, of rounds, of trials and of starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from raybench.analysis.stats.pool import Array, Pool, Unit, Visit, Weights
from raybench.machine.environment import Spreads

KNOWN = Spreads(trial=0.03, unit=0.012, start=0.065, start_unit=0.018)
ROUNDS = 20


class Machine:
    """Step times in s of units, and what hides them; every draw is of one seed."""

    def __init__(
        self,
        step_s: Mapping[str, float],
        spreads: Spreads = KNOWN,
        *,
        block: float = 0.01,
        shared: float = 0.02,
        seed: int = 0,
    ) -> None:
        self.logs = {unit: math.log(seconds) for unit, seconds in step_s.items()}
        self.spreads, self.block, self.shared = spreads, block, shared
        self.random = np.random.default_rng(seed)
        self._starts: dict[int, float] = {}
        self._of_starts: dict[tuple[int, str], float] = {}

    def visit(self, *units: str, group: int = 0, rounds: int = ROUNDS) -> Visit:
        """One trial that has these units in its rounds."""
        draw = self.random.standard_normal
        trial = self.spreads.trial * draw()
        start = self._starts.setdefault(group, self.spreads.start * draw())
        shared = self.shared * draw(rounds)
        logs = dict[Unit, Array]()
        for unit in units:
            of_start = self._of_starts.setdefault((group, unit), self.spreads.start_unit * draw())
            level = self.logs[unit] + trial + self.spreads.unit * draw() + start + of_start
            logs[unit] = level + shared + self.block * draw(rounds)
        return Visit(group, group, logs)

    def visits(self, *each: Iterable[str], group: int = 0) -> list[Visit]:
        """One for each of these lists of units."""
        return [self.visit(*units, group=group) for units in each]

    def in_run(self, weights: Weights, groups: Iterable[int]) -> float:
        """The truth of a contrast in the run of these starts."""
        listed = list(groups)
        return sum(
            weight
            * (
                self.logs[str(unit)]
                + float(
                    np.mean(
                        [
                            self._starts.get(group, 0.0) + self._of_starts.get((group, str(unit)), 0.0)
                            for group in listed
                        ]
                    )
                )
            )
            for unit, weight in weights.items()
        )


def pooled(visits: Iterable[Visit], known: Spreads = KNOWN, *, is_certain: bool = False) -> Pool:
    return Pool(list(visits), known, is_certain=is_certain)
