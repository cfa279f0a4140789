"""Of which trial the advice on devices speaks: of the recommended setting's, where it can be compared."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.cost import extra_device_time, extra_money
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.recommendation import Basis, Recommendation
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class DeviceAdvice:
    """The trial on several devices that is compared with one device."""

    record: TrialRecord
    extra_device_time: Estimate  # of a sample, over one device's, less one: 0.25 is 25% more
    extra_money: Estimate | None = None  # the same of money; None: device time is all that is paid


def device_advice(base: MeasuredStudy, use: Recommendation | None) -> DeviceAdvice | None:
    """Of the recommended setting; of the headline where one device was not measured with that.

    None where that has no speed-up over one device either.
    """
    records = [base.headline]
    if use is not None and not use.is_default and use.basis is not Basis.NO_CHOICE:
        records.insert(0, base.speaker_of(use.config))
    for record in records:
        more = extra_device_time(base, record)
        if record is not None and more is not None:
            return DeviceAdvice(record, more, extra_money(base, record))
    return None
