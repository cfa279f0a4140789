"""The setting that a study recommends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from raybench.analysis.choice import Best, is_default
from raybench.analysis.cost import extra_device_time, extra_money
from raybench.analysis.findings.verifications import Verification, Verified
from raybench.analysis.labels import difference_words
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.search import Confirmation, confirmation_of
from raybench.analysis.stats.efficiency import Gain, Verdict
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration


class Basis(StrEnum):
    """Why this setting is recommended."""

    CONFIRMED = "confirmed"  # measured again against the default, and better
    VERIFIED = "verified"  # a change that the diagnosis proposes, measured against the default, and better
    CHOSEN = "chosen"  # by objectives that are not of speed
    UNCONFIRMED = "unconfirmed"  # the best, not measured again, and better by its whole interval
    NOT_SURE = "not sure"  # the best, not measured again, may be no better: the default
    ALONE = "alone"  # the best, where the default itself was not measured
    DEFAULT_IS_BEST = "the default is the best"
    NO_GAIN = "no gain"  # the best, measured again, is not better: the default
    NO_CHOICE = "no choice"  # there was nothing to choose among


Found: TypeAlias = tuple[TrialRecord, Basis, Gain | None]


@dataclass(frozen=True)
class Recommendation:
    """The setting that a study recommends, at its target world size."""

    config: Configuration
    basis: Basis
    label: str  # what differs from the default
    is_default: bool
    gain: Gain | None  # of the best, or the change, over the default; unconfirmed: by two trials apart
    nodes: int
    threads: int | None  # of torch in each worker on CPUs; None: GPUs, where they are left alone
    default_global_batch_size: int | None  # of the default, where the recommended one differs


def recommendation(
    base: MeasuredStudy,
    best: Best | None,
    confirmed: Sequence[Confirmation],
    verified: Sequence[Verification] = (),
    apart: Gain | None = None,
) -> Recommendation | None:
    """What to use; None where no step was measured, or with more workers than cores only.

    ``apart``: what the best brings over the default where no confirmation says it (``unconfirmed_gain``).
    """
    found = _chosen(base, best, confirmed, apart)
    if found is None or found[0].config.oversubscribed:
        return None
    record, basis, gain = _verified(base, found, verified) or found
    config, default = record.config, base.headline
    default_batch = (
        default.config.global_batch_size if default and is_default(base.study, default.config) else None
    )
    on_cpus = config.device == "cpu"
    return Recommendation(
        config=config,
        basis=basis,
        label=difference_words(base.study, config),
        is_default=is_default(base.study, config),
        gain=gain,
        nodes=record.nodes or 1,
        threads=(config.setting.num_threads or config.cpus_per_worker) if on_cpus else None,
        default_global_batch_size=None if default_batch == config.global_batch_size else default_batch,
    )


def _verified(base: MeasuredStudy, found: Found, verified: Sequence[Verification]) -> Found | None:
    """The confirmed change of the largest gain, where no winner stands against it.

    A change is measured against the headline, so that it speaks for the study only where that is its default;
    a confirmed winner it replaces only where its whole interval is above the winner's.
    """
    headline, (_, basis, gain) = base.headline, found
    if headline is None or not is_default(base.study, headline.config):
        return None
    if basis in (Basis.CHOSEN, Basis.UNCONFIRMED, Basis.ALONE):
        return None
    if not OF_SPEED.issuperset(base.study.search.objectives):
        return None
    better = [
        (each.record, each.gain)
        for each in verified
        if each.verdict is Verified.CONFIRMED and each.is_paired and each.record and each.gain
    ]
    if not better:
        return None
    record, most = max(better, key=lambda one: one[1].gain.value)
    if basis is Basis.CONFIRMED and gain is not None and most.gain.low <= gain.gain.high:
        return None
    return record, Basis.VERIFIED, most


def _chosen(
    base: MeasuredStudy, best: Best | None, confirmed: Sequence[Confirmation], apart: Gain | None
) -> Found | None:
    if best is None:
        return None if base.headline is None else (base.headline, Basis.NO_CHOICE, None)
    if best.is_default:
        return best.record, Basis.DEFAULT_IS_BEST, None
    again, of_speed = confirmation_of(best, confirmed), OF_SPEED.issuperset(base.study.search.objectives)
    if not of_speed:
        return best.record, Basis.CHOSEN, again.gain if again else apart
    if again is not None and again.gain.verdict is not Verdict.BETTER:
        return base.headline or best.record, Basis.NO_GAIN, again.gain
    if again is not None:
        return best.record, Basis.CONFIRMED, again.gain
    headline = base.headline
    if apart is None or headline is None or not is_default(base.study, headline.config):
        return best.record, Basis.ALONE, None
    if apart.verdict is Verdict.BETTER:
        return best.record, Basis.UNCONFIRMED, apart
    return headline, Basis.NOT_SURE, apart


@dataclass(frozen=True)
class DeviceAdvice:
    """The fastest number of devices of a setting, compared with one device."""

    asked: TrialRecord  # the setting's, on the most devices
    record: TrialRecord  # on the fastest number of several devices
    extra_device_time: Estimate  # of a sample, over one device's, less one: 0.25 is 25% more
    extra_money: Estimate | None  # the same of money; None: device time is all that is paid
    cheapest: tuple[TrialRecord, Estimate] | None  # of several devices by money, and that of it

    @property
    def no_faster(self) -> TrialRecord | None:
        """The most devices, where fewer are as fast."""
        return None if self.asked is self.record else self.asked


def device_advice(base: MeasuredStudy, use: Recommendation | None) -> DeviceAdvice | None:
    """Of the recommended setting; of the headline's where one device was not measured with that.

    None where that has no speed-up over one device either.
    """
    records = [base.headline]
    if use is not None and not use.is_default and use.basis is not Basis.NO_CHOICE:
        records.insert(0, base.reference_of(use.config))
    for record in records:
        if record is not None and extra_device_time(base, record) is not None:
            return _of_setting(base, record)
    return None


def _of_setting(base: MeasuredStudy, asked: TrialRecord) -> DeviceAdvice:
    there = [record for record in base.tried if record is asked or _is_on_fewer(record, asked)]
    known = [(record, more) for record in there if (more := extra_device_time(base, record)) is not None]
    record, more = max(known, key=lambda one: base.scaling(one[0]).throughput_samples_per_s.value)
    paid = [(each, money) for each, _ in known if (money := extra_money(base, each)) is not None]
    cheapest = min(paid, key=lambda one: one[1].value, default=None)
    return DeviceAdvice(asked, record, more, extra_money(base, record), cheapest)


def _is_on_fewer(record: TrialRecord, asked: TrialRecord) -> bool:
    one, other = record.config, asked.config
    same_place = one.placement == other.placement or not isinstance(other.placement, str)
    return 1 < one.world_size < other.world_size and same_place and one.same_question(other)
