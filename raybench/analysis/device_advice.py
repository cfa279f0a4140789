"""How many devices to use with the recommended setting, where it can be compared with one device."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.cost import extra_device_time, extra_money
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.recommendation import Basis, Recommendation
from raybench.records.record import TrialRecord


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
        records.insert(0, base.speaker_of(use.config))
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
