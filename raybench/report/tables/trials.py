"""Which trials a table shows, in which order, what they are called there; and all of them in one table."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.records.requests import Role
from raybench.report.format import duration_words, interval, percent
from raybench.report.tables.base import Column, Table, make_table

LONGEST_REASON = 160  # characters
MOST_TRIALS = 2000  # in a document; all are in summary.csv


def every_trial_table(results: StudyResults) -> Table:
    """Every record of the study, a row each, in the order of measuring; of very many the first.

    Those of the curve and confirmations before suggestions, so that the first ones tell most.
    """
    shown = sorted(results.records, key=lambda each: each.request.role == "search")[:MOST_TRIALS]
    total = len(results.records)
    caption = (
        "Times and rates of one step, of all starts where a trial has several, with 95% intervals: each "
        "trial's own. Of a setting that was measured more than once the other tables have one of these."
    )
    if total > len(shown):
        caption += f" The first {len(shown):,} of {total:,} trials; all are in summary.csv."

    own = {**results.superseded, **results.own_scalings}

    def step_time(record: TrialRecord) -> str:
        scaling = own.get(record.trial_id)
        return interval(scaling.step_time_s.scaled(1e3)) if scaling else ""

    def rate(record: TrialRecord) -> str:
        scaling = own.get(record.trial_id)
        return interval(scaling.throughput_samples_per_s) if scaling else ""

    def efficiency(record: TrialRecord) -> str:
        scaling = own.get(record.trial_id)
        known = scaling.efficiency if scaling and record.config.world_size > 1 else None
        return percent(known) if known else ""

    columns: list[Column[TrialRecord]] = [
        Column("trial", lambda record: record.trial_id),
        Column("role", lambda record: record.request.role),
        Column("state", lambda record: _state(results, record)),
        Column("devices", lambda record: str(record.config.world_size), right=True),
        Column("setting", lambda record: label_and_mark(results, record)),
        Column("batch per device", lambda record: f"{record.config.batch_size:,}", right=True),
        Column("step time, ms", step_time, right=True),
        Column("samples/s", rate, right=True),
        Column("efficiency", efficiency, right=True),
        Column("took", lambda record: duration_words(record.wall_time_s), right=True),
        Column("reason", lambda record: " ".join((record.reason or "").split())[:LONGEST_REASON]),
    ]
    return make_table("Every trial", caption, columns, shown)


def _state(results: StudyResults, record: TrialRecord) -> str:
    return f"{record.state}, measured again" if record.trial_id in results.superseded else record.state


def in_order(results: StudyResults, *roles: Role) -> list[TrialRecord]:
    """The complete records of these roles by setting, smallest world size first; the default's first."""
    chosen = [record for record in results.by_role(*roles) if record.request.role in roles]
    curve_of: dict[str, int] = {}
    for index, curve in enumerate(results.curves):
        for point in curve.points:  # a trial on one device belongs to several: it stands with the first
            curve_of.setdefault(point.trial_id, index)
    last = len(results.curves)
    return sorted(chosen, key=lambda record: (curve_of.get(record.trial_id, last), record.config.world_size))


def label_and_mark(results: StudyResults, record: TrialRecord) -> str:
    """The record's setting; a star where there were more workers than cores."""
    return results.label(record) + (" *" if record.config.oversubscribed else "")


def label_as_told(results: StudyResults, record: TrialRecord) -> str:
    """The same with where its figures are from, where they are not of its own trial."""
    words, told = label_and_mark(results, record), results.reported[record.trial_id]
    if told is results.own_scalings[record.trial_id]:
        return words
    if record.config.world_size > 1:
        return f"{words} (in the confirmation)"
    curves = (each for each in results.curves if any(one.trial_id == record.trial_id for one in each.points))
    largest = next((each.points[-1].world_size for each in curves), 1)
    return f"{words} (in the rounds of {largest})"
