"""Are a trial's rounds steady? Their noise, rounds apart from the rest, and drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from raybench.analysis.diagnosis.case import Case, OfTrial
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.diagnosis.programs import programs_words, stoppable
from raybench.analysis.estimates.rounds import step_series
from raybench.analysis.estimates.statistics import TRIM
from raybench.analysis.estimates.stopping import asked_half_width, reached_half_width
from raybench.analysis.estimates.trends import mann_kendall, outlying, theil_sen
from raybench.spec.counted import counted

MOST_TIMES = 10.0  # what the rounds were given: to ask for more of it is no advice
DRIFT_SIGNIFICANCE = 0.01
DRIFT_LEAST = 0.02  # relative, from the first round to the last


@dataclass(frozen=True)
class NoisyMeasurement(OfTrial):
    """The asked half-width was not reached in time."""

    name = FindingName.NOISY_MEASUREMENT
    reached: float  # half-widths, relative
    asked: float
    max_seconds: float  # that the rounds were given

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Time was up before."""
        if case.steps.stopped_by != "max_seconds":
            return None
        reached, request = reached_half_width(case.steps.rounds), case.record.request
        assert request.kind == "steps"  # it has a measurement of steps
        asked = asked_half_width(request.measure, request.config.device)
        if reached is None or reached <= asked:
            return None
        return cls(case, reached, asked, request.measure.max_seconds)

    @property
    def severity(self) -> Severity:
        """The numbers are less sure than was asked."""
        return Severity.WARNING

    @property
    def needed_s(self) -> float:
        """How long it would take: the half-width shrinks with the square root of time."""
        return self.case.steps.measure_s * (self.reached / self.asked) ** 2

    @property
    def is_cut(self) -> bool:
        """Whether the time budget ended the rounds, and not ``measure.max_seconds`` of the study."""
        return self.max_seconds < self._asked_s

    @property
    def _asked_s(self) -> float:
        """What the study asks for; of a trial without its study what the rounds were given."""
        return self.case.around.max_seconds or self.max_seconds

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
        """The time that it needs; where that is absurd, what makes the noise."""
        needed_s = _rounded_up(self.needed_s)
        if self.needed_s > MOST_TIMES * self._asked_s:
            programs = stoppable(self.case.steps)
            named = f": {programs_words(programs)}" if programs else " (top)"
            return NextStep(
                "noise is the matter, not time: see what else uses the machine and stop it, or measure when "
                f"it is done{named}"
            )
        if self.is_cut:
            more = f" and --set measure.max_seconds={needed_s}" if needed_s > self._asked_s else ""
            return NextStep(
                f"the time budget left its rounds {self.max_seconds:.0f} s of {self._asked_s:g} s, about "
                f"{needed_s} s are needed: a study with a larger --time-budget{more}, or a quieter machine"
            )
        return NextStep(
            "it shrinks with the square root of time: --set "
            f"measure.max_seconds={needed_s}, or a quieter machine"
        )


@dataclass(frozen=True)
class OutlierRounds(OfTrial):
    """Rounds apart from the rest: a note while the trimmed mean leaves them all out."""

    name = FindingName.OUTLIER_ROUNDS
    outliers: tuple[int, ...]
    worst: float  # the furthest of them over the median
    num_slow: int  # of them

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
        num_slow = int(np.sum(values[outliers] > np.nanmedian(values)))
        return cls(case, tuple(int(each) for each in outliers), worst, num_slow)

    @property
    def _trimmed(self) -> int:
        """Rounds that the trimmed mean leaves out at each end."""
        return int(TRIM * len(self.case.steps.rounds))

    @property
    def _kept(self) -> int:
        """Rounds apart that it keeps: more on one side than it leaves out there."""
        sides = self.num_slow, len(self.outliers) - self.num_slow
        return sum(max(each - self._trimmed, 0) for each in sides)

    @property
    def severity(self) -> Severity:
        """A warning where they are more than the trimmed mean leaves out in all."""
        return Severity.WARNING if len(self.outliers) > 2 * self._trimmed else Severity.NOTE

    def evidence(self) -> Evidence:
        """Which, and how far."""
        number, num_rounds = len(self.outliers), len(self.case.steps.rounds)
        named = f"{', '.join(map(str, self.outliers[:8]))}{', ...' if number > 8 else ''}"
        lie = "lies" if number == 1 else "lie"
        rounds = "round" if number == 1 else "rounds"
        return Evidence(
            f"{number} of {num_rounds} rounds {lie} apart from the rest ({rounds} {named}); the furthest "
            f"took {self.worst:.2f} times the median",
            {"rounds": num_rounds, "outliers": number, "worst_ratio": self.worst},
        )

    def next_step(self) -> NextStep:
        """Nothing, unless they are many, or more on one side than the trimmed mean leaves out there."""
        if self.severity is Severity.WARNING:
            return NextStep("something else used the machine: stop it and measure again")
        if self._kept:
            return NextStep(
                f"the trimmed mean leaves out {counted(self._trimmed, 'round')} at each end, so "
                f"{self._kept} of them {'is' if self._kept == 1 else 'are'} in the figure and its interval: "
                "measure again if that is too wide"
            )
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
        significance = mann_kendall(logs)
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
