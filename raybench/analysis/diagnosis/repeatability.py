"""Does one setting have one speed? What was measured twice, and was not the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.diagnosis.whole import OfStudy, WholeStudy
from raybench.analysis.diagnosis.words import factor, load_words, rate
from raybench.analysis.disagreements import Disagreement, Reading
from raybench.analysis.labels import devices_words, label

MUCH = 0.10  # relative: from here on a finding is a warning
MOST_TOLD = 3  # measurements that differ from the one that speaks


@dataclass(frozen=True)
class MeasurementsDisagree(OfStudy):
    """Measurements of one setting that differ beyond their intervals, with what else went on at the time."""

    name = FindingName.MEASUREMENTS_DISAGREE
    apart: Disagreement

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """As ``disagreements`` finds them."""
        return [cls(whole, each) for each in whole.apart]

    @property
    def trial_id(self) -> str:
        """The one that speaks."""
        return self.apart.speaks.record.trial_id

    @property
    def severity(self) -> Severity:
        """A warning from a tenth on, unless a third one bears out the one that speaks."""
        is_much = abs(self.apart.ratio.value - 1) >= MUCH and not self.apart.is_settled
        return Severity.WARNING if is_much else Severity.NOTE

    def evidence(self) -> Evidence:
        """All of them, and how far they are apart."""
        apart, config = self.apart, self.apart.config
        others = [_told(each) for each in apart.others[:MOST_TOLD]]
        left = len(apart.others) - MOST_TOLD
        more = [f"{left} more"] if left > 0 else []
        where = f"{label(self.whole.results.study, config)} on {devices_words(config.world_size)}"
        return Evidence(
            f"{where}: {_told(apart.speaks)}, but {', '.join([*others, *more])}: {factor(apart.ratio)} that, "
            "beyond the intervals",
            {"throughput_ratio": apart.ratio.value, "measurements": 1 + len(apart.others)},
        )

    def next_step(self) -> NextStep:
        """Which figure counts, and what would bear it out."""
        speaks, agrees = self.apart.speaks, self.apart.agrees
        if agrees is not None:
            return NextStep(
                f"nothing: the figure {speaks.where} is the one that this report has, and what was measured "
                f"{agrees.where} bears it out"
            )
        return NextStep(
            f"the figure {speaks.where} is the one that this report has, and nothing bears it out; --resume "
            "measures it again, best with nothing else at work"
        )


def _told(reading: Reading) -> str:
    time = reading.record.started_at[11:19]
    at = f"{time} UTC, " if time else ""
    return f"{rate(reading.rate)} samples/s {reading.where} ({at}{load_words(reading.load)})"
