"""Every trial, and those that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from textwrap import shorten

from raybench.analysis.results import StudyResults
from raybench.analysis.scaling import Scaling
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.report.format import interval, milliseconds, percent
from raybench.report.table import Column, Table, known, make_table, numbers

LONGEST_REASON = 300  # characters


def failures_words(records: Sequence[TrialRecord]) -> str:
    """How many failed, in which states, and the commonest reason of each state."""
    words = []
    for state, number in Counter(record.state for record in records).most_common():
        reasons = Counter(_short(record.reason) for record in records if record.state == state)
        words.append(f"{number} {state} ({reasons.most_common(1)[0][0]})")
    return ", ".join(words)


def nothing_fits(results: StudyResults) -> list[str]:
    """Where the probes of the largest batch are all that there is, and none fits."""
    if not results.largest or any(each.batch_size for each in results.largest):
        return []
    reasons = dict.fromkeys(_short(each.reason) for each in results.largest)
    return [f"no trial completed: no batch fits in memory ({'; '.join(reasons)})"]


def _short(reason: str | None) -> str:
    return shorten(reason or "", LONGEST_REASON, placeholder=" ...") or "no reason given"


def every_trial_table(results: StudyResults) -> Table:
    """Every record of the study, those of the curve first, else in the order of measuring."""
    shown = sorted(results.records, key=lambda each: each.request.role == "search")
    caption = "One step by each trial's own rounds, with 95% intervals; other tables are over all visits."
    own = {each.trial_id: each.scaled for each in results.trials}

    def of_own(words: Callable[[Scaling], str]) -> Callable[[TrialRecord], str]:
        return lambda record: known(own[record.trial_id], words, "")

    efficiency = of_own(lambda found: "" if found.is_baseline else known(found.efficiency, percent, ""))
    columns: list[Column[TrialRecord]] = [
        Column("trial", lambda record: record.trial_id),
        Column("role", lambda record: record.request.role),
        Column("state", lambda record: record.state),
        numbers("devices", lambda record: record.config.world_size),
        Column("setting", lambda record: results.label(record) + mark(record.config)),
        Column("step time, ms", of_own(lambda found: milliseconds(found.step_time_s)), right=True),
        Column("samples/s", of_own(lambda found: interval(found.throughput_samples_per_s)), right=True),
        Column("efficiency", efficiency, right=True),
    ]
    return make_table("Every trial", caption, columns, shown)


def mark(config: Configuration) -> str:
    """A star where there were more workers than cores."""
    return " *" if config.oversubscribed else ""


def failures_table(results: StudyResults) -> Table:
    """Trials without numbers, and why."""
    columns: list[Column[TrialRecord]] = [
        Column("trial", lambda record: record.trial_id),
        numbers("devices", lambda record: record.config.world_size),
        Column("role", lambda record: record.request.role),
        Column("setting", results.label, stays=True),
        Column("state", lambda record: record.state),
        Column("reason", lambda record: " ".join((record.reason or "").split()), stays=True),
    ]
    return make_table("Trials without numbers", "", columns, results.failed)
