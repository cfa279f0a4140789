"""Step time, throughput, speed-up, efficiency and gain of one trial, each with its interval.

Ratios are made within each round, between blocks that ran within seconds of each other, so that drift
cancels; ``statistics.geometric`` is the one estimator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from raybench.analysis.stats.rounds import level, paired, series
from raybench.analysis.stats.statistics import (
    Estimate,
    geometric,
    inverse,
    simultaneous,
    unpaired_ratio,
)
from raybench.records.record import TrialRecord
from raybench.records.requests import Variant
from raybench.records.results import StepsResult

EXCELLENT = 0.9
GOOD = 0.75


class Status(StrEnum):
    """An efficiency in one word."""

    #: an efficiency of at least 0.9
    EXCELLENT = "excellent"
    #: at least 0.75
    GOOD = "good"
    #: less
    POOR = "poor"
    #: slower than the baseline: a speed-up below 1 with its whole interval
    NEGATIVE = "negative"


class Verdict(StrEnum):
    """What the confirmation says of the winner against the default."""

    #: the interval of the gain excludes 0, and the gain is at least `search.minimum_gain`
    BETTER = "better"
    #: the same for a loss
    WORSE = "worse"
    #: neither
    NONE = "no significant gain"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a speed-up is measured against."""

    world_size: int
    strategy: str
    step_time_s: Estimate
    paired: bool  # in the same rounds, or from another record


@dataclass(frozen=True, slots=True)
class Scaling:
    """How fast one trial is, and how well it scales. ``None`` where there is no baseline."""

    step_time_s: Estimate
    throughput_samples_per_s: Estimate
    throughput_tokens_per_s: Estimate | None
    baseline: Baseline | None
    speedup: Estimate | None
    efficiency: Estimate | None
    status: Status | None

    @property
    def is_baseline(self) -> bool:
        """Whether it is what others are held against: its own speed-up is 1, without an interval."""
        return self.speedup is not None and self.speedup.low == self.speedup.high == 1.0


@dataclass(frozen=True, slots=True)
class Gain:
    """The winner's throughput over the default's, less one."""

    gain: Estimate  # relative: 0.14 is 14% more
    verdict: Verdict


def step_time(record: TrialRecord) -> Estimate:
    """Optimizer step to optimizer step on the slowest rank, in s: ddp, or plain on one device.

    Raises ``ValueError`` for a record that is not complete or has no such rounds.
    """
    measurement = _complete(record)
    variants: tuple[Variant, ...] = ("ddp", "plain") if record.config.world_size > 1 else ("plain", "ddp")
    for variant in variants:
        values = series(measurement, variant)
        if values is not None:
            return level(values)
    raise ValueError(f"trial {record.trial_id}: no rounds of {' or '.join(variants)}")


def throughput(record: TrialRecord) -> Estimate:
    """Samples of all ranks in a step over the step time, in samples/s; raises as ``step_time`` does."""
    return _rate(_complete(record).samples_per_step, step_time(record))


def scaling(record: TrialRecord, others: Iterable[TrialRecord] = ()) -> Scaling:
    """How ``record`` scales.

    The baseline is plain on one device in the same rounds (at the global batch in strong scaling). Where
    that could not be had, it is the trial of the same setting at the smallest world size m among
    ``others``: then the speed-up is over m devices and efficiency = (throughput(n)/n) / (throughput(m)/m),
    unpaired. Raises ``ValueError`` for a record that is not complete.
    """
    step_s = step_time(record)
    baseline, speedup = _speedup(record, step_s, others)
    measurement, config = _complete(record), record.config
    tokens, efficiency = measurement.tokens_per_step, None
    if baseline is not None and speedup is not None:
        efficiency = speedup.scaled(baseline.world_size / config.world_size)
    return Scaling(
        step_time_s=step_s,
        throughput_samples_per_s=_rate(measurement.samples_per_step, step_s),
        throughput_tokens_per_s=_rate(tokens, step_s) if tokens else None,
        baseline=baseline,
        speedup=speedup,
        efficiency=efficiency,
        status=status(speedup, efficiency),
    )


def one_device(record: TrialRecord, found: Scaling) -> Scaling | None:
    """The one device over which the speed-up ``found`` of ``record`` is: in the same rounds, if they have it.

    Its step is the record's times the speed-up (over n in weak scaling), so that steps, rates and savings
    tell the same as the speed-up; relative, its interval is that of its own rounds. None where the speed-up
    is over nothing, or over several devices.
    """
    base, speedup, steps, config = found.baseline, found.speedup, record.steps, record.config
    if steps is None or base is None or speedup is None or base.world_size > 1 or config.world_size == 1:
        return None
    share = 1 / config.world_size if config.scaling == "weak" else 1.0
    own = base.step_time_s
    step_s = own.scaled(found.step_time_s.value * speedup.value * share / own.value)
    rate, tokens = inverse(step_s), steps.tokens_per_step
    one = Estimate(1.0, 1.0, 1.0, rate.n, rate.starts)
    return Scaling(
        step_time_s=step_s,
        throughput_samples_per_s=rate.scaled(share * steps.samples_per_step),
        throughput_tokens_per_s=rate.scaled(share * tokens) if tokens else None,
        baseline=replace(base, step_time_s=step_s),
        speedup=one,
        efficiency=one,
        status=Status.EXCELLENT,
    )


def status(speedup: Estimate | None, efficiency: Estimate | None) -> Status | None:
    """The word for an efficiency, as docs/reference.md has it; None without one.

    Negative only where the whole interval of the speed-up lies below 1, as findings have it.
    """
    if speedup is None or efficiency is None:
        return None
    if speedup.high < 1:
        return Status.NEGATIVE
    if efficiency.value >= EXCELLENT:
        return Status.EXCELLENT
    return Status.GOOD if efficiency.value >= GOOD else Status.POOR


def gain(record: TrialRecord, minimum_gain: float, among: int = 1) -> Gain:
    """What a confirmation says: the throughput of its setting over that of ``anchor``, paired, less one.

    Better or worse only where the interval excludes 0 and the gain is at least ``minimum_gain``
    (relative). The interval holds for all of ``among`` confirmations at once. Raises ``ValueError`` where the
    record is no complete confirmation.
    """
    measurement = _complete(record)
    anchor, ddp = series(measurement, "anchor"), series(measurement, "ddp")
    samples = measurement.anchor_samples_per_step
    ratios = None if anchor is None or ddp is None else paired(anchor, ddp)
    if ratios is None or samples is None:
        raise ValueError(f"trial {record.trial_id}: no confirmation, nothing was measured against it")
    ratio = simultaneous(geometric(ratios), among).scaled(measurement.samples_per_step / samples)
    return gain_of(ratio, minimum_gain)


def gain_of(ratio: Estimate, minimum_gain: float) -> Gain:
    """What a ratio of throughputs says, by the rule of ``gain``."""
    found = Estimate(ratio.value - 1, ratio.low - 1, ratio.high - 1, ratio.n, ratio.starts)
    verdict = Verdict.NONE
    if found.excludes(0.0) and abs(found.value) >= minimum_gain:
        verdict = Verdict.BETTER if found.value > 0 else Verdict.WORSE
    return Gain(found, verdict)


def _speedup(
    record: TrialRecord, step_s: Estimate, others: Iterable[TrialRecord]
) -> tuple[Baseline | None, Estimate | None]:
    config = record.config
    if config.world_size == 1:
        one = Estimate(1.0, 1.0, 1.0, step_s.n)
        return Baseline(1, config.setting.strategy, step_s, paired=True), one
    return speedup_in_its_rounds(record) or _against_smallest(record, others)


def speedup_in_its_rounds(record: TrialRecord) -> tuple[Baseline, Estimate] | None:
    """One device alone in the same rounds, and the speed-up over it; None where two rounds have not both."""
    measurement, config = _complete(record), record.config
    alone = series(measurement, "base" if config.scaling == "strong" else "plain")
    ddp = series(measurement, "ddp")
    ratios = None if alone is None or ddp is None else paired(alone, ddp)
    if alone is None or ratios is None:
        return None
    # Weak scaling: n devices do n times the samples in a step.
    samples = config.world_size if config.scaling == "weak" else 1
    return Baseline(1, "single", level(alone), paired=True), geometric(ratios).scaled(samples)


def _against_smallest(
    record: TrialRecord, others: Iterable[TrialRecord]
) -> tuple[Baseline | None, Estimate | None]:
    """The trial of the same setting at the smallest world size, itself included, as the baseline."""
    rivals = [
        other
        for other in (*others, record)
        if other.steps is not None and other.config.same_question(record.config)
    ]
    # Among several of one size: the same placement and start of the workers, else the first measured.
    base = min(
        rivals,
        key=lambda other: (
            other.config.world_size,
            other.config.placement != record.config.placement,
            _start(other) != _start(record),
        ),
    )
    size, step_s = base.config.world_size, step_time(base)
    if size == record.config.world_size:
        if not any(other.config.world_size > size for other in rivals):
            return None, None  # nothing to compare with: an efficiency of 1 would be a word, not a finding
        one = Estimate(1.0, 1.0, 1.0, step_s.n)
        return Baseline(size, base.config.setting.strategy, step_s, paired=False), one
    speedup = unpaired_ratio(throughput(record), throughput(base))
    return Baseline(size, base.config.setting.strategy, step_s, paired=False), speedup


def _start(record: TrialRecord) -> int:
    return record.request.start if record.request.kind == "steps" else 0


def _rate(amount: float, step_s: Estimate) -> Estimate:
    return Estimate(amount / step_s.value, amount / step_s.high, amount / step_s.low, step_s.n)


def _complete(record: TrialRecord) -> StepsResult:
    if record.steps is None:
        raise ValueError(f"trial {record.trial_id} is {record.state}: only a complete one has numbers")
    return record.steps
