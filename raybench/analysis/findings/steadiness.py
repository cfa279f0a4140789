"""How sure a setting's figures are: noise, rare slow steps, clocks, more workers than cores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, get_args

import numpy as np

from raybench.analysis.findings.case import LEAST_SHARE, MUCH, Case, OfTrial
from raybench.analysis.findings.finding import FindingName, Need, Severity
from raybench.analysis.stats.rounds import level, step_series
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.stopping import asked_half_width
from raybench.analysis.strategies import ParityVerdict, loss_parity
from raybench.records.results import Beside, PCIeLink, StepsResult

MOST_TIMES = 10  # the visits that were asked for: to ask for more of them is no advice


@dataclass(frozen=True)
class NoisyMeasurement(OfTrial):
    """The half-width that was asked of so many visits was not reached."""

    name = FindingName.NOISY_MEASUREMENT
    severity = Severity.WARNING  # the numbers are less sure than was asked
    reached: float  # half-widths, relative
    asked: float  # of so many visits

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Of the efficiency, or of the step time of one device; not where nothing was asked but steps."""
        request = case.record.request
        assert request.kind == "steps"  # it has a measurement of steps
        measure, found = request.measure, case.scaling.efficiency
        estimate = found if found is not None and not case.scaling.is_baseline else case.scaling.step_time_s
        # one visit is asked for the study's half-width times the root of their number
        asked = asked_half_width(measure, request.config.device) / math.sqrt(len(case.visits))
        if measure.steps is not None or estimate.log_half_width <= asked:
            return None
        return cls(case, estimate.log_half_width, asked)

    @property
    def num_visits(self) -> int:
        """Of the setting."""
        return len(self.case.visits)

    @property
    def needed_visits(self) -> int:
        """How many it would take: the half-width shrinks with the square root of their number."""
        return math.ceil(self.num_visits * (self.reached / self.asked) ** 2)

    @property
    def values(self) -> dict[str, float]:
        return {
            "half_width_ratio": self.reached,
            "asked_ratio": self.asked,
            "visits": self.num_visits,
            "needed_visits": self.needed_visits,
        }


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
        ranks, rounds = self.case.record.ranks, self.case.steps.rounds
        told = (zip(ranks, each.throttled, strict=False) for each in rounds)
        return sorted({rank for flags in told for rank, flag in flags if flag})


@dataclass(frozen=True)
class QuotaUsedUp(OfTrial):
    """The container's processes stood still as their quota of CPU time was used up."""

    name = FindingName.CPU_QUOTA
    severity = Severity.WARNING  # the numbers are of fewer cores than there seem to be
    share: float  # of the scheduler's periods, on the rank that met it most often

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """In 5% of the periods."""
        share = max((each for each in case.steps.quota_used_up if each is not None), default=0.0)
        return cls(case, share) if share >= LEAST_SHARE else None

    @property
    def values(self) -> dict[str, float]:
        return {"used_up_share": self.share}


@dataclass(frozen=True)
class NarrowPCIe(OfTrial):
    """A link to the host that could be faster."""

    name = FindingName.NARROW_PCIE
    severity = Severity.WARNING  # of that GPU's copies, and of transfers between GPUs without NVLink
    links: Mapping[int, PCIeLink]  # the narrow ones, by rank

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """As the driver says of a GPU that works."""
        links = zip(case.record.ranks, case.steps.pcie_links, strict=False)
        narrow = {rank: link for rank, link in links if link is not None and link.is_narrow}
        return cls(case, narrow) if narrow else None

    @property
    def values(self) -> dict[str, float]:
        rank, link = next(iter(self.links.items()))
        return {"ranks": len(self.links), "rank": rank, "lanes": link.lanes, "most_lanes": link.most_lanes}


def _clock_drop(measurement: StepsResult) -> float:
    """The largest fall of any device's clock below its fastest round, relative."""
    drops = [0.0]
    for of_rank in zip(*(each.clock_mhz for each in measurement.rounds), strict=False):
        clocks = [clock for clock in of_rank if clock is not None]
        # GPUs only change their mind for long; one low reading may be an idle moment, so the median counts.
        if len(clocks) >= 4:
            half = len(clocks) // 2
            drops.append(1 - float(np.median(clocks[half:])) / max(float(np.median(clocks[:half])), 1.0))
    return max(drops)


@dataclass(frozen=True)
class LittleMemory(OfTrial):
    """Torch's allocator found a GPU full, and emptied its cache to go on."""

    name = FindingName.LITTLE_MEMORY
    severity = Severity.WARNING  # with a little more memory the steps are faster
    retries: int  # in the rounds, on all ranks

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """At least once in the rounds."""
        retries = sum(case.steps.allocator_retries)
        return cls(case, retries) if retries else None

    @property
    def values(self) -> dict[str, float]:
        return {"retries": self.retries, "rounds": len(self.case.steps.rounds)}


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
