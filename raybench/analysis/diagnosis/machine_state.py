"""What the machine did while a trial ran: clocks held down, fewer cores than workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from raybench.analysis.diagnosis.case import Case, OfTrial
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.estimates.rounds import level, step_series
from raybench.records.measurements import StepsResult

CLOCK_DROP = 0.10  # relative, from the fastest round


class Oversubscribed(OfTrial):
    """More workers than cores."""

    name = FindingName.OVERSUBSCRIBED

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """As the record says."""
        return cls(case) if case.config.oversubscribed else None

    @property
    def severity(self) -> Severity:
        """No number of it says how fast the workers are."""
        return Severity.PROBLEM

    def evidence(self) -> Evidence:
        """How many workers, and their step."""
        size = self.case.config.world_size
        return Evidence(
            f"{size} workers shared fewer cores; step time {_milliseconds(self.case.steps)}",
            {"world_size": size},
        )

    def next_step(self) -> NextStep:
        """As many cores."""
        return NextStep(
            "use it to see that a study works, not for its numbers: run on as many cores as workers"
        )


def _milliseconds(measurement: StepsResult) -> str:
    values = step_series(measurement)
    if values is None:
        return "unknown"
    step_ms = level(values).scaled(1e3)
    return f"{step_ms.value:.1f} ms [{step_ms.low:.1f}, {step_ms.high:.1f}], {step_ms.n} rounds"


@dataclass(frozen=True)
class Throttling(OfTrial):
    """A device held its clock down, or says so."""

    name = FindingName.THROTTLING
    slowed_rounds: int  # in which a device said so
    clock_drop: float  # relative

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Said in a round, or a clock that fell by a tenth."""
        slowed = sum(any(each.throttled) for each in case.steps.rounds)
        found = cls(case, slowed, _clock_drop(case.steps))
        return found if slowed or found.clock_drop >= CLOCK_DROP else None

    @property
    def severity(self) -> Severity:
        """The numbers are of a slower device."""
        return Severity.WARNING

    def evidence(self) -> Evidence:
        """In how many rounds on which ranks, by how much."""
        num_rounds, said = len(self.case.steps.rounds), list[str]()
        if self.slowed_rounds:
            of_ranks = ", ".join(map(str, self._ranks()))
            said.append(
                f"the device said so in {self.slowed_rounds} of {num_rounds} rounds (rank {of_ranks})"
            )
        if self.clock_drop >= CLOCK_DROP:
            said.append(f"a clock fell by {self.clock_drop:.0%} between rounds")
        values = {
            "throttled_rounds": self.slowed_rounds,
            "rounds": num_rounds,
            "clock_drop_ratio": self.clock_drop,
        }
        return Evidence("; ".join(said), values)

    def next_step(self) -> NextStep:
        """Where limits are told."""
        return NextStep(
            "look at temperature and power limit (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE), and at the "
            "governor"
        )

    def _ranks(self) -> list[int]:
        ranks = self.case.record.ranks
        flagged = {
            place for each in self.case.steps.rounds for place, flag in enumerate(each.throttled) if flag
        }
        return sorted({ranks[place] if place < len(ranks) else place for place in flagged})


def _clock_drop(measurement: StepsResult) -> float:
    """The largest fall of any device's clock below its fastest round, relative."""
    drops = [0.0]
    for place in range(max((len(each.clock_mhz) for each in measurement.rounds), default=0)):
        clocks = [
            clock
            for each in measurement.rounds
            if place < len(each.clock_mhz) and (clock := each.clock_mhz[place]) is not None
        ]
        # GPUs only change their mind for long; one low reading may be an idle moment, so the median counts.
        if len(clocks) >= 4:
            half = len(clocks) // 2
            drops.append(1 - float(np.median(clocks[half:])) / max(float(np.median(clocks[:half])), 1.0))
    return max(drops)
