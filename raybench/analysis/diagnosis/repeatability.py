"""Does one setting have one speed? What was measured twice, and was not the same."""

from __future__ import annotations

from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.words import factor, load_words, rate
from raybench.analysis.disagreements import Disagreement, Reading
from raybench.analysis.labels import devices_words, label
from raybench.analysis.measured import MeasuredStudy

MUCH = 0.10  # relative: from here on a finding is a warning
MOST_TOLD = 3  # measurements that differ from the one that speaks


def unrepeated(results: MeasuredStudy, apart: Disagreement) -> Finding:
    """Measurements of one setting that differ, with what else went on at the time."""
    config = apart.config
    others = [_told(each) for each in apart.others[:MOST_TOLD]]
    left = len(apart.others) - MOST_TOLD
    more = [f"{left} more"] if left > 0 else []
    where = f"{label(results.study, config)} on {devices_words(config.world_size)}"
    if apart.agrees is not None:
        step = (
            f"nothing: the figure {apart.speaks.where} is the one that this report has, and what was "
            f"measured {_where_else(apart.agrees, apart.speaks)} bears it out"
        )
    elif not apart.is_certain:
        step = (
            f"the figure {apart.speaks.where} is the one that this report has; rounds over more time "
            "(measure.max_seconds), or with nothing else at work, tell which one holds"
        )
    else:
        step = (
            f"the figure {apart.speaks.where} is the one that this report has, and nothing bears it out; "
            "--resume measures it again, best with nothing else at work"
        )
    is_much = abs(apart.ratio.value - 1) >= MUCH and not apart.is_settled
    how = (
        ", beyond the intervals"
        if apart.is_certain
        else "; the intervals are too wide to tell whether by chance"
    )
    return Finding(
        FindingName.MEASUREMENTS_DISAGREE,
        Severity.WARNING if is_much else Severity.NOTE,
        apart.speaks.record.trial_id,
        f"{where}: {_told(apart.speaks)}, but {', '.join([*others, *more])}: {factor(apart.ratio)} that{how}",
        step,
        {"throughput_ratio": apart.ratio.value, "measurements": 1 + len(apart.others)},
    )


def _where_else(reading: Reading, other: Reading) -> str:
    return "in those of another trial" if reading.where == other.where else reading.where


def _told(reading: Reading) -> str:
    time = reading.record.started_at[11:19]
    at = f"{time} UTC, " if time else ""
    return f"{rate(reading.rate)} samples/s {reading.where} ({at}{load_words(reading.load)})"
