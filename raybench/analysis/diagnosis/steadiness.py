"""Are a trial's rounds steady? Their noise, rounds apart from the rest, and drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from raybench.analysis.diagnosis.case import Case, OfTrial
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.estimates.rounds import step_series
from raybench.analysis.estimates.statistics import TRIM
from raybench.analysis.estimates.stopping import asked_half_width, reached_half_width
from raybench.analysis.estimates.trends import mann_kendall, outlying, theil_sen

DRIFT_SIGNIFICANCE = 0.01
DRIFT_LEAST = 0.02  # relative, from the first round to the last


@dataclass(frozen=True)
class NoisyMeasurement(OfTrial):
    """The asked half-width was not reached in time."""

    name = FindingName.NOISY_MEASUREMENT
    reached: float  # half-widths, relative
    asked: float

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Time was up before."""
        if case.steps.stopped_by != "max_seconds":
            return None
        reached, request = reached_half_width(case.steps.rounds), case.record.request
        assert request.kind == "steps"  # it has a measurement of steps
        asked = asked_half_width(request.measure, request.config.device)
        return cls(case, reached, asked) if reached is not None and reached > asked else None

    @property
    def severity(self) -> Severity:
        """The numbers are less sure than was asked."""
        return Severity.WARNING

    @property
    def needed_s(self) -> float:
        """How long it would take: the half-width shrinks with the square root of time."""
        return self.case.steps.measure_s * (self.reached / self.asked) ** 2

    def evidence(self) -> Evidence:
        """What was reached in which time."""
        measurement = self.case.steps
        return Evidence(
            f"the half-width is {self.reached:.1%} after {len(measurement.rounds)} rounds in "
            f"{measurement.measure_s:.0f} s, {self.asked:.1%} was asked",
            {
                "half_width_ratio": self.reached,
                "asked_ratio": self.asked,
                "needed_s": self.needed_s,
                "rounds": len(measurement.rounds),
            },
        )

    def next_step(self) -> NextStep:
        """The time that it needs."""
        return NextStep(
            "it shrinks with the square root of time: --set "
            f"measure.max_seconds={_rounded_up(self.needed_s)}, or a quieter machine"
        )


@dataclass(frozen=True)
class OutlierRounds(OfTrial):
    """Rounds apart from the rest: a note while the trimmed mean leaves them all out."""

    name = FindingName.OUTLIER_ROUNDS
    outliers: tuple[int, ...]
    worst: float  # the furthest of them over the median

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """By a modified z-score, and by a tenth at least."""
        values = step_series(case.steps)
        if values is None:
            return None
        outliers = np.flatnonzero(outlying(values))
        if not len(outliers):
            return None
        furthest = outliers[np.argmax(np.abs(np.log(values[outliers] / np.nanmedian(values))))]
        worst = float(values[furthest] / np.nanmedian(values))
        return cls(case, tuple(int(each) for each in outliers), worst)

    @property
    def _too_many(self) -> bool:
        return len(self.outliers) > 2 * TRIM * len(self.case.steps.rounds)

    @property
    def severity(self) -> Severity:
        """A warning from there on where the trimmed mean keeps some."""
        return Severity.WARNING if self._too_many else Severity.NOTE

    def evidence(self) -> Evidence:
        """Which, and how far."""
        number, num_rounds = len(self.outliers), len(self.case.steps.rounds)
        named = f"{', '.join(map(str, self.outliers[:8]))}{', ...' if number > 8 else ''}"
        return Evidence(
            f"{number} of {num_rounds} rounds lie apart from the rest (rounds {named}); the furthest took "
            f"{self.worst:.2f} times the median",
            {"rounds": num_rounds, "outliers": number, "worst_ratio": self.worst},
        )

    def next_step(self) -> NextStep:
        """Nothing, unless they are many."""
        if self._too_many:
            return NextStep("something else used the machine: stop it and measure again")
        return NextStep("the trimmed mean leaves them out: nothing to do")


@dataclass(frozen=True)
class Drift(OfTrial):
    """The step time rises or falls over the rounds, significantly and by 2% at least."""

    name = FindingName.DRIFT
    change: float  # from the first round to the last, relative
    over_s: float
    significance: float
    num_rounds: int

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """By Mann and Kendall's test, and Sen's slope."""
        values = step_series(case.steps)
        if values is None:
            return None
        measured = np.isfinite(values)
        at_s = np.array([each.at_s for each in case.steps.rounds])[measured]
        logs, over_s = np.log(values[measured]), float(at_s[-1] - at_s[0])
        significance = float(mann_kendall(logs))
        change = math.expm1(theil_sen(at_s, logs) * over_s)
        if significance >= DRIFT_SIGNIFICANCE or abs(change) < DRIFT_LEAST:
            return None
        return cls(case, change, over_s, significance, len(logs))

    @property
    def severity(self) -> Severity:
        """In ratios within rounds it cancels."""
        return Severity.NOTE

    def evidence(self) -> Evidence:
        """By how much in which time."""
        return Evidence(
            f"the step time changed by {self.change:+.1%} over {self.over_s:.1f} s ({self.num_rounds} "
            f"rounds, Theil-Sen; Mann-Kendall p = {self.significance:.1g})",
            {"change_ratio": self.change, "significance": self.significance, "rounds": self.num_rounds},
        )

    def next_step(self) -> NextStep:
        """What it spoils, and how to have it without."""
        return NextStep(
            "efficiency is made of ratios within rounds, in which drift cancels; for the step time itself, "
            "warm up longer (measure.warmup_steps) or look at clocks and temperature"
        )


def _rounded_up(seconds: float) -> int:
    digits: int = 10 ** max(len(str(int(seconds))) - 2, 0)
    return int(math.ceil(seconds / digits) * digits)
