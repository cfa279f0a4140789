"""What transfers and computing take from each other where they share cores, as a trial has measured it.

In a turn W s of steps and A s of transfers, each as alone, were begun at once; the steps ended after T s,
the transfers after R s. While both ran, for O = min(T, R), computing went at 1 - c of its speed and
transfers at 1 - d of theirs: O (1 - c) + T - O = W gives c = (T - W) / O, and d = (R - A) / O alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from raybench.analysis.estimates.statistics import Estimate, trimmed_mean
from raybench.records.measurements import Contention

MOST_TAKEN = 0.9  # of either's speed


@dataclass(frozen=True)
class SharedCores:
    """Shares of their speed that computing and transfers lose while both go on: 0 to 0.9."""

    computing: Estimate
    transfers: Estimate

    @property
    def words(self) -> str:
        """For a note: what was measured, and that it is in the simulation."""
        return (
            "transfers and computing share cores: timed side by side, computing goes "
            f"{self._said(self.computing)} slower and transfers {self._said(self.transfers)}; that is "
            "simulated, within these bounds"
        )

    @staticmethod
    def _said(share: Estimate) -> str:
        return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"


def shared_cores(measured: Contention) -> SharedCores | None:
    """From the turns of a trial; None where there are fewer than two."""
    if len(measured.turns) < 2:
        return None
    steps, replays = measured.steps_per_turn, measured.replays_per_turn
    computing, transfers = list[float](), list[float]()
    for turn in measured.turns:
        steps_end_s, replays_end_s = steps * turn.step_beside_s, replays * turn.replay_beside_s
        both_s = min(steps_end_s, replays_end_s)
        computing.append((steps_end_s - steps * turn.step_s) / both_s)
        transfers.append((replays_end_s - replays * turn.replay_s) / both_s)
    return SharedCores(_share(computing), _share(transfers))


def step_alone_s(measured: Contention) -> float:
    """A step of ``local`` in these turns, mean over ranks: the same as in the rounds, some time later."""
    return median(turn.step_s for turn in measured.turns)


def _share(values: Sequence[float]) -> Estimate:
    found = trimmed_mean(values)
    low, value, high = (min(max(each, 0.0), MOST_TAKEN) for each in (found.low, found.value, found.high))
    return Estimate(value, low, high, found.n)
