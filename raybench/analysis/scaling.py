"""Step time, throughput, speed-up and efficiency of a setting, as contrasts of a pool of visits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from raybench.analysis.laws import serial_fraction
from raybench.analysis.reference import KnownBuckets, grouped
from raybench.analysis.stats.pool import TYPICAL, Pool, Unit, Weights
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.units import baseline_unit, pool_visits, step_unit, with_setting
from raybench.analysis.waterfall import Waterfall, waterfall
from raybench.machine.environment import Spreads
from raybench.records.record import TrialRecord
from raybench.records.requests import COMPARED_ROLES
from raybench.spec.workloads import ScriptSpec

EXCELLENT = 0.9
GOOD = 0.75


class Status(StrEnum):
    """An efficiency in one word, or two where its interval holds both."""

    #: an efficiency of at least 0.9, with the whole interval
    EXCELLENT = "excellent"
    #: the interval holds 0.9
    GOOD_TO_EXCELLENT = "good to excellent"
    #: at least 0.75
    GOOD = "good"
    #: the interval holds 0.75
    POOR_TO_GOOD = "poor to good"
    #: the interval holds both
    POOR_TO_EXCELLENT = "poor to excellent"
    #: less
    POOR = "poor"
    #: slower than the baseline: a speed-up below 1 with its whole interval
    NEGATIVE = "negative"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a speed-up is measured against."""

    world_size: int
    strategy: str
    step_time_s: Estimate
    mean_step_s: Estimate
    sample_ratio: float = 1.0  # of a device in a step, over those of one in its step


@dataclass(frozen=True, slots=True)
class Scaling:
    """How fast a setting is, and how well it scales. ``None`` where there is no baseline."""

    world_size: int
    step_time_s: Estimate  # the typical step
    mean_step_s: Estimate  # over all rounds: of this totals are made
    samples: float  # of all devices in a step
    tokens: float | None
    baseline: Baseline | None = None
    speedup: Estimate | None = None
    mean_speedup: Estimate | None = None  # the same of mean steps
    efficiency: Estimate | None = None

    @property
    def throughput_samples_per_s(self) -> Estimate:
        """Of all devices."""
        return inverse(self.step_time_s).scaled(self.samples)

    @property
    def throughput_tokens_per_s(self) -> Estimate | None:
        """The same in tokens; None where they are not counted."""
        return inverse(self.step_time_s).scaled(self.tokens) if self.tokens else None

    @property
    def status(self) -> Status | Literal["baseline"] | None:
        """The word for its efficiency, by the interval; None without one."""
        if self.speedup is None or self.efficiency is None:
            return None
        if self.is_baseline:
            return "baseline"
        if self.speedup.high < 1:
            return Status.NEGATIVE
        low, high = (
            "excellent" if end >= EXCELLENT else "good" if end >= GOOD else "poor"
            for end in (self.efficiency.low, self.efficiency.high)
        )
        return Status(low if low == high else f"{low} to {high}")

    @property
    def is_baseline(self) -> bool:
        """Whether it is what others are held against: its own speed-up is 1, without an interval."""
        return self.speedup is not None and self.speedup.low == self.speedup.high == 1.0

    @property
    def over_one(self) -> Estimate | None:
        """The speed-up over one device, whose own is 1; None: it is over several, or over nothing."""
        return self.speedup if self.baseline is not None and self.baseline.world_size == 1 else None

    @property
    def serial_fraction(self) -> Estimate | None:
        """Amdahl's f of the speed-up of several devices over one; None: of one, or over several."""
        several = self.over_one if self.world_size > 1 else None
        return several and serial_fraction(several, self.world_size)

    @property
    def one_device(self) -> Scaling | None:
        """The one device over which the speed-up of several is; None: it is of one, or not over one."""
        base = self.baseline
        if base is None or base.world_size > 1 or self.world_size == 1:
            return None
        share, one = 1 / (self.world_size * base.sample_ratio), _exactly_one(base.step_time_s)
        return Scaling(
            world_size=1,
            step_time_s=base.step_time_s,
            mean_step_s=base.mean_step_s,
            samples=share * self.samples,
            tokens=self.tokens and share * self.tokens,
            baseline=base,
            speedup=one,
            mean_speedup=one,
            efficiency=one,
        )


@dataclass(frozen=True)
class Efficiency:
    """An efficiency as a contrast: ``factor`` times the exponential of the weighted logarithms."""

    weights: Weights
    factor: float
    base: TrialRecord | None  # the trial on fewer devices; None: one device
    base_unit: Unit


class Fit:
    """The complete trials of steps of a study, and the pool of their visits."""

    def __init__(
        self,
        records: Iterable[TrialRecord],
        buckets: KnownBuckets | None = None,
        known: Spreads | None = None,
        *,
        is_certain: bool = False,
    ) -> None:
        """``known``: the machine's spreads, of its kind by default; ``is_certain``: they are for certain."""
        self.records = tuple(record for record in records if record.steps is not None)
        self.buckets = buckets or KnownBuckets((), self.records)
        device = self.records[0].config.device if self.records else "cpu"
        found = pool_visits(self.records, self.buckets)
        self.pool = Pool(found, known or TYPICAL[device], is_certain=is_certain)
        self._visits = grouped(self.records, lambda record: self.buckets.key(record.config))
        self._figures = dict[Hashable, tuple[Scaling, Waterfall | None]]()
        steps = ((self.unit(each), each.steps) for each in self.records if each.config.world_size == 1)
        # of a step of one device in a trial of its own
        self._samples_alone = {unit: each.samples_per_step for unit, each in steps if each}

    def visits(self, record: TrialRecord) -> tuple[TrialRecord, ...]:
        """The complete trials of a record's setting, in their order."""
        return tuple(self._visits.get(self.buckets.key(record.config), ())) if record.steps else ()

    def reference(self, record: TrialRecord) -> TrialRecord:
        """The visit that stands for a record's setting, of equal ones the first.

        One of a curve or a search before a verification, of settings with equal buckets the study's first, a
        trial of a curve, which has all variants, before one of a search, and one with more beside its rounds.
        """

        def rank(each: TrialRecord) -> tuple[bool, ...]:
            request, config = each.request, each.config
            return (
                request.role not in COMPARED_ROLES,
                self.buckets.standing(config.setting, config.world_size) != config.setting,
                request.role != "scaling",
                not (request.kind == "steps" and request.measures_beside_rounds),
            )

        return min(self.visits(record), key=rank, default=record)

    def figures(self, record: TrialRecord) -> tuple[Scaling, Waterfall | None]:
        """How a record's setting scales and where its step goes, worked out once for all of its visits."""
        key = self.buckets.key(record.config)
        if key not in self._figures:
            reference = self.reference(record)
            self._figures[key] = self.scaling(reference), self.waterfall(reference)
        return self._figures[key]

    def unit(self, record: TrialRecord) -> Unit:
        """That of the real step of a record's setting."""
        return step_unit(record.config, self.buckets)

    def scaling(self, record: TrialRecord) -> Scaling:
        """How the setting of one of the records scales.

        The baseline is one device alone, under strong scaling at the global batch. Where that could not be
        had, it is the setting at the smallest world size m that was measured: then the speed-up is over m
        devices and efficiency = (throughput(n)/n) / (throughput(m)/m).
        """
        steps, config, found = record.steps, record.config, self.efficiency(record)
        assert steps is not None
        step_s, mean_s = self._times(self.unit(record))
        alone = Scaling(config.world_size, step_s, mean_s, steps.samples_per_step, steps.tokens_per_step)
        if found is not None:
            size, strategy = 1, "single"
            if found.base is not None:
                size, strategy = found.base.config.world_size, found.base.config.setting.strategy
            devices = config.world_size / size
            efficiency = self.pool.contrast(found.weights).ratio(found.factor)
            return replace(
                alone,
                baseline=Baseline(size, strategy, *self._times(found.base_unit), found.factor),
                speedup=efficiency.scaled(devices),
                mean_speedup=self.pool.mean(found.weights).ratio(found.factor * devices),
                efficiency=efficiency,
            )
        is_smallest = config.world_size == 1 or any(
            each.config.world_size > config.world_size and each.config.same_question(config)
            for each in self.records
        )
        if not is_smallest:
            return alone  # nothing to compare with: an efficiency of 1 would be a word
        base = Baseline(config.world_size, config.setting.strategy, step_s, mean_s)
        one = _exactly_one(step_s)
        return replace(alone, baseline=base, speedup=one, mean_speedup=one, efficiency=one)

    def _times(self, unit: Unit) -> tuple[Estimate, Estimate]:
        """The typical step, and the mean over all rounds, in s."""
        return self.pool.time(unit), self.pool.mean({unit: 1.0}).ratio()

    def waterfall(self, record: TrialRecord) -> Waterfall | None:
        """Where the step of one of the records' settings goes."""
        found = self.efficiency(record)
        return waterfall(self.pool, record, self.buckets, 1 / found.factor if found else 1.0)

    def efficiency(self, record: TrialRecord) -> Efficiency | None:
        """The efficiency of a record's setting on several devices as a contrast; None without a baseline."""
        config, steps, base, smallest = record.config, record.steps, baseline_unit(record.config), None
        if config.world_size == 1 or steps is None:
            return None
        factor = 1.0 if config.scaling == "weak" else 1 / config.world_size
        alone = self._samples_alone.get(base)
        if not self.pool.has(base):
            smallest = self._smallest(record)
            if smallest is None or smallest.steps is None:
                return None
            base = self.unit(smallest)
            alone = smallest.steps.samples_per_step / smallest.config.world_size
        if alone and (smallest or isinstance(config.workload, ScriptSpec)):  # whose batch may be fixed
            factor = steps.samples_per_step / config.world_size / alone
        return Efficiency({base: 1.0, self.unit(record): -1.0}, factor, smallest, base)

    def rate_ratios(self, pairs: Sequence[tuple[TrialRecord, TrialRecord]]) -> list[Estimate]:
        """The throughput of each pair's first over its second; intervals hold for all pairs at once."""
        factors = [
            one.steps.samples_per_step / other.steps.samples_per_step
            for one, other in pairs
            if one.steps and other.steps
        ]
        units = ((self.unit(one), self.unit(other)) for one, other in pairs)
        # bucket sizes with equal buckets are one unit
        asked: list[Weights] = [{} if mine == other else {other: 1.0, mine: -1.0} for mine, other in units]
        found = self.pool.simultaneous(asked) if asked else []
        return [each.ratio(factor, half) for (each, half), factor in zip(found, factors, strict=True)]

    def _smallest(self, record: TrialRecord) -> TrialRecord | None:
        """A record of the same question on the fewest devices, fewer than this one's."""
        rivals = [
            other
            for other in self.records
            if other.config.world_size < record.config.world_size
            and other.config.same_question(record.config)
        ]
        return min(
            rivals,
            key=lambda each: (each.config.world_size, each.config.placement != record.config.placement),
            default=None,
        )


def _exactly_one(like: Estimate) -> Estimate:
    return Estimate(1.0, 1.0, 1.0, like.n, like.starts, like.visits)


def scaling(record: TrialRecord) -> Scaling:
    """How the setting of a complete record scales, by it alone."""
    return Fit([record]).scaling(record)


def alongside(record: TrialRecord, default: TrialRecord | None) -> Scaling:
    """How the setting of a complete record scales: its own trial, set right by the anchor in its rounds.

    Its speed is its ratio to the anchor in the same rounds, times that of the default in ``default``, its own
    trial: what made the one slower than the other is in neither. Workers with other process knobs have an
    anchor of their own, which is not the default: by the trial alone.
    """
    fit = Fit([record], is_certain=True)
    found, request = fit.scaling(record), record.request
    if default is None or default.steps is None or request.kind != "steps" or request.anchor is None:
        return found
    anchor = step_unit(with_setting(record.config, request.anchor), fit.buckets)
    if not fit.pool.has(anchor) or record.config.environment != default.config.environment:
        return found
    reference_s = Fit([default], is_certain=True).scaling(default).step_time_s.value
    factor = reference_s / fit.pool.time(anchor).value
    step_s, mean_s = (each.scaled(factor) for each in (found.step_time_s, found.mean_step_s))
    return replace(found, step_time_s=step_s, mean_step_s=mean_s)
