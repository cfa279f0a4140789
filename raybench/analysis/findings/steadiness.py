"""Are a trial's rounds steady? Their noise, rounds apart from the rest, and drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np

from raybench.analysis.findings.case import MUCH, Case, OfTrial
from raybench.analysis.findings.finding import FindingName, Need, Severity
from raybench.analysis.stats.rounds import level, mann_kendall, outlying, step_series, theil_sen
from raybench.analysis.stats.statistics import TRIM, Estimate
from raybench.analysis.stats.stopping import asked_half_width, reached_half_width
from raybench.analysis.strategies import ParityVerdict, loss_parity
from raybench.records.results import Beside, StepsResult

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
        return self.max_seconds < self.study_s

    @property
    def study_s(self) -> float:
        """What the study asks for; of a trial without its study what the rounds were given."""
        return self.case.around.max_seconds or self.max_seconds

    @property
    def values(self) -> dict[str, float]:
        return {
            "half_width_ratio": self.reached,
            "asked_ratio": self.asked,
            "needed_s": self.needed_s,
            "rounds": len(self.case.steps.rounds),
        }


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
    def trimmed(self) -> int:
        """Rounds that the trimmed mean leaves out at each end."""
        return int(TRIM * len(self.case.steps.rounds))

    @property
    def kept(self) -> int:
        """Rounds apart that it keeps: more on one side than it leaves out there."""
        sides = self.num_slow, len(self.outliers) - self.num_slow
        return sum(max(each - self.trimmed, 0) for each in sides)

    @property
    def severity(self) -> Severity:
        """A warning where they are more than the trimmed mean leaves out in all."""
        return Severity.WARNING if len(self.outliers) > 2 * self.trimmed else Severity.NOTE

    @property
    def values(self) -> dict[str, float]:
        rounds = len(self.case.steps.rounds)
        return {"rounds": rounds, "outliers": len(self.outliers), "worst_ratio": self.worst}


RARE_LEAST = 0.03  # of the typical step: a difference of less is not worth a word


@dataclass(frozen=True)
class RareSlowSteps(OfTrial):
    """The mean step, of which totals are made, is far above the typical one."""

    name = FindingName.RARE_SLOW_STEPS
    share: float  # of the typical step, that the mean one is above it

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """By more than 3%."""
        share = case.scaling.mean_step_s.value / case.step_s - 1
        return cls(case, share) if share > RARE_LEAST else None

    @property
    def severity(self) -> Severity:
        """A warning from a tenth of the step on."""
        return Severity.WARNING if self.share >= MUCH else Severity.NOTE

    @property
    def values(self) -> dict[str, float]:
        return {"share_ratio": self.share, "seconds_per_step": self.share * self.case.step_s}


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

    @property
    def values(self) -> dict[str, float]:
        return {"change_ratio": self.change, "significance": self.significance, "rounds": self.num_rounds}


CLOCK_DROP = 0.10  # relative, from the fastest round


class Oversubscribed(OfTrial):
    """More workers than cores."""

    name = FindingName.OVERSUBSCRIBED
    severity = Severity.PROBLEM  # no number of it says how fast the workers are

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """As the record says."""
        return cls(case) if case.config.oversubscribed else None

    @property
    def values(self) -> dict[str, float]:
        return {"world_size": self.case.config.world_size}

    @property
    def step_s(self) -> Estimate | None:
        """Its step time all the same, in s."""
        values = step_series(self.case.steps)
        return None if values is None else level(values)


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

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        has_clocks = any(clock for each in case.steps.rounds for clock in each.clock_mhz)
        return Need.CLOCKS if case.is_cuda and not has_clocks else None

    @property
    def values(self) -> dict[str, float]:
        return {
            "throttled_rounds": self.slowed_rounds,
            "rounds": len(self.case.steps.rounds),
            "clock_drop_ratio": self.clock_drop,
        }

    @property
    def ranks(self) -> list[int]:
        """The ranks whose device said so."""
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

    @property
    def values(self) -> dict[str, float]:
        verdict = self.verdict
        return {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance}


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

    @property
    def values(self) -> dict[str, float]:
        return {}
