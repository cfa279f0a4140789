"""What was tried and brings nothing: a narrower precision, a winner that is not better."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Self

from raybench.analysis.confirmations import Confirmation
from raybench.analysis.diagnosis.configurations import compared
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.diagnosis.whole import OfStudy, WholeStudy
from raybench.analysis.diagnosis.words import factor, pct
from raybench.analysis.estimates.efficiency import Verdict
from raybench.analysis.estimates.statistics import Estimate, inverse
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.speaking import InSameRounds, rate_ratio
from raybench.records.record import TrialRecord

NARROWER = ("bf16", "fp16", "tf32")
HELPS_AT_MOST = 1.05  # the whole interval below this: a precision that costs digits is for more


@dataclass(frozen=True)
class PrecisionWithoutGain(OfStudy):
    """A trial in a narrower precision that is not faster than the same in fp32."""

    name = FindingName.PRECISION_WITHOUT_GAIN
    record: TrialRecord
    ratio: Estimate  # of its throughput to that in fp32

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """The whole interval of the ratio is below 1.05."""
        distinct = compared(whole.results)
        in_fp32 = {
            _but_for_precision(each): each for each in distinct if each.config.setting.precision == "fp32"
        }
        narrower = [each for each in distinct if each.config.setting.precision in NARROWER]
        pairs = [(each, in_fp32[key]) for each in narrower if (key := _but_for_precision(each)) in in_fp32]
        shared = whole.shared or InSameRounds(whole.results.buckets)
        ratios = [
            (record, rate_ratio(record, other, whole.results.scalings, shared, len(pairs)).ratio)
            for record, other in pairs
        ]
        return [cls(whole, record, ratio) for record, ratio in ratios if ratio.high < HELPS_AT_MOST]

    @property
    def trial_id(self) -> str:
        """The trial in the narrower one."""
        return self.record.trial_id

    @property
    def severity(self) -> Severity:
        """It takes no time, and digits."""
        return Severity.NOTE

    def evidence(self) -> Evidence:
        """The ratio."""
        precision = self.record.config.setting.precision
        return Evidence(
            f"{precision} has {factor(self.ratio)} the samples/s of fp32 at the same setting",
            {"throughput_ratio": self.ratio.value},
        )

    def next_step(self) -> NextStep:
        """Back to fp32."""
        return NextStep(
            "precision fp32, or look at what the narrower one has no fast operations for",
            {"precision": "fp32"},
            inverse(self.ratio),
        )


def _but_for_precision(record: TrialRecord) -> Hashable:
    return record.config.key(ignore=("precision", *record.config.ANY_WORKLOAD))


@dataclass(frozen=True)
class NoSignificantGain(OfStudy):
    """A winner that its confirmation does not call better; none where it was chosen for more than speed."""

    name = FindingName.NO_SIGNIFICANT_GAIN
    confirmation: Confirmation

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """As the confirmation's verdict is."""
        if not OF_SPEED.issuperset(whole.results.study.search.objectives):
            return []
        return [cls(whole, each) for each in whole.confirmed if each.gain.verdict is Verdict.NONE]

    @property
    def trial_id(self) -> str:
        """The confirmation's."""
        return self.confirmation.record.trial_id

    @property
    def severity(self) -> Severity:
        """It is an answer."""
        return Severity.NOTE

    def evidence(self) -> Evidence:
        """The gain."""
        told, gain = self.confirmation, self.confirmation.gain.gain
        return Evidence(
            f"the best setting ({told.label}) has {_more(gain)} samples/s than the default, "
            f"{'in the same rounds' if told.paired else 'measured apart'}",
            {"gain_ratio": gain.value},
        )

    def next_step(self) -> NextStep:
        """The default."""
        return NextStep("keep the default: what was explored does not change it")


def _more(gain: Estimate) -> str:
    """A relative difference: "1.2% [0.4, 2.0] more", or so much fewer."""
    return f"{pct(gain)} more" if gain.value >= 0 else f"{pct(gain.scaled(-1))} fewer"
