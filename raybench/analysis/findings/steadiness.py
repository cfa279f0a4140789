"""Are a trial's rounds steady? Their noise, rounds apart from the rest, and drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np

from raybench.analysis.findings.case import Case, OfTrial, programs_words, stoppable
from raybench.analysis.findings.finding import Evidence, FindingName, NextStep, Severity
from raybench.analysis.stats.rounds import level, mann_kendall, outlying, step_series, theil_sen
from raybench.analysis.stats.statistics import TRIM
from raybench.analysis.stats.stopping import asked_half_width, reached_half_width
from raybench.analysis.strategies import ParityVerdict, loss_parity
from raybench.records.results import Beside, StepsResult
from raybench.spec.counted import counted

MOST_TIMES = 10.0  # what the rounds were given: to ask for more of it is no advice
DRIFT_SIGNIFICANCE = 0.01
DRIFT_LEAST = 0.02  # relative, from the first round to the last


@dataclass(frozen=True)
class NoisyMeasurement(OfTrial):
    """The asked half-width was not reached in time."""

    name = FindingName.NOISY_MEASUREMENT
    severity = Severity.WARNING  # the numbers are less sure than was asked
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
    severity = Severity.NOTE  # in ratios within rounds it cancels
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

    def evidence(self) -> Evidence:
        return Evidence(
            f"the step time changed by {self.change:+.1%} over {self.over_s:.1f} s ({self.num_rounds} "
            f"rounds, Theil-Sen; Mann-Kendall p = {self.significance:.1g})",
            {"change_ratio": self.change, "significance": self.significance, "rounds": self.num_rounds},
        )

    def next_step(self) -> NextStep:
        return NextStep(
            "efficiency is made of ratios within rounds, in which drift cancels; for the step time itself, "
            "warm up longer (measure.warmup_steps) or look at clocks and temperature"
        )


def _rounded_up(seconds: float) -> int:
    digits: int = 10 ** max(len(str(int(seconds))) - 2, 0)
    return int(math.ceil(seconds / digits) * digits)


CLOCK_DROP = 0.10  # relative, from the fastest round


class Oversubscribed(OfTrial):
    """More workers than cores."""

    name = FindingName.OVERSUBSCRIBED
    severity = Severity.PROBLEM  # no number of it says how fast the workers are

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """As the record says."""
        return cls(case) if case.config.oversubscribed else None

    def evidence(self) -> Evidence:
        size = self.case.config.world_size
        return Evidence(
            f"{size} workers shared fewer cores; step time {_milliseconds(self.case.steps)}",
            {"world_size": size},
        )

    def next_step(self) -> NextStep:
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
    severity = Severity.WARNING  # the numbers are of a slower device
    slowed_rounds: int  # in which a device said so
    clock_drop: float  # relative

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Said in a round, or a clock that fell by a tenth."""
        slowed = sum(any(each.throttled) for each in case.steps.rounds)
        found = cls(case, slowed, _clock_drop(case.steps))
        return found if slowed or found.clock_drop >= CLOCK_DROP else None

    def evidence(self) -> Evidence:
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


_BESIDE: tuple[Beside, ...] = get_args(Beside)


@dataclass(frozen=True)
class LossesDisagree(OfTrial):
    """The strategy's first losses or gradient are not one device's."""

    name = FindingName.LOSSES_DISAGREE
    verdict: ParityVerdict

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Beyond the tolerance."""
        verdict = loss_parity(case.record)
        return cls(case, verdict) if verdict is not None and not verdict.agrees else None

    @property
    def severity(self) -> Severity:
        """A problem unless something in the model explains it."""
        return Severity.NOTE if self.verdict.may_differ else Severity.PROBLEM

    def evidence(self) -> Evidence:
        verdict, gradient = self.verdict, ""
        if verdict.gradient_difference is not None:
            gradient = (
                f", its first gradient by {verdict.gradient_difference:.2g} "
                f"(tolerance {verdict.gradient_tolerance:g})"
            )
        words = (
            f"{self.case.config.setting.strategy}'s losses of the first {verdict.steps} steps differ from "
            f"one device's on the same samples by up to {verdict.relative_difference:.2g} (relative, "
            f"tolerance {verdict.tolerance:g}){gradient}"
        )
        explained = f": {'; '.join(verdict.may_differ)}" if verdict.may_differ else ""
        values = {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance}
        return Evidence(f"{words}{explained}", values)

    def next_step(self) -> NextStep:
        if self.verdict.may_differ:
            return NextStep("compare accuracies, not losses step by step")
        return NextStep("find out what the strategy computes otherwise before its speed is used")


@dataclass(frozen=True)
class NotAllMeasured(OfTrial):
    """What failed when the rounds were done: they stand, and what belongs beside them is not there."""

    name = FindingName.NOT_ALL_MEASURED
    severity = Severity.NOTE  # the rounds stand
    reasons: tuple[tuple[str, str], ...]  # what is missing, and why

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Something beside the rounds is missing."""
        missing = case.steps.missing
        reasons = tuple((name, missing[name]) for name in _BESIDE if name in missing)
        return cls(case, reasons) if reasons else None

    def evidence(self) -> Evidence:
        return Evidence("; ".join(f"{name.replace('_', ' ')}: {reason}" for name, reason in self.reasons), {})

    def next_step(self) -> NextStep:
        return NextStep("nothing for the step times; a smaller batch leaves more memory for the rest")
