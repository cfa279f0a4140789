"""How the trials scale: speed-ups and efficiencies, and what more devices add to a step."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.efficiency import EXCELLENT, GOOD, Scaling
from raybench.analysis.stats.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.requests import Role
from raybench.report.format import (
    count,
    interval,
    lost_milliseconds,
    milliseconds,
    percent,
    serial_fraction_words,
    share_of_step,
    times,
)
from raybench.report.tables.base import Column, Table, devices, known, make_table
from raybench.report.tables.trials import in_order, label_as_told


def scaling_table(results: StudyResults, *roles: Role) -> Table:
    """Every trial of ``roles``, those of the curves where none is named, by setting and world size."""

    def scaling(record: TrialRecord) -> Scaling:
        return results.reported[record.trial_id]

    records = in_order(results, *(roles or ("scaling",)))
    tokens = Column[TrialRecord](
        "tokens/s", lambda record: known(scaling(record).throughput_tokens_per_s, interval), right=True
    )
    alone = Column[TrialRecord](
        "one device then, samples/s", lambda record: _alone(results, record), right=True
    )
    columns: list[Column[TrialRecord]] = [
        Column("devices", devices, right=True),
        Column("setting", lambda record: label_as_told(results, record)),
        Column("step time, ms", lambda record: milliseconds(scaling(record).step_time_s), right=True),
        Column("samples/s", lambda record: interval(scaling(record).throughput_samples_per_s), right=True),
        *([tokens] if any(scaling(record).throughput_tokens_per_s for record in records) else ()),
        *([alone] if any(record.trial_id in results.bases_apart for record in records) else ()),
        Column("speed-up", lambda record: speedup_cell(scaling(record)), right=True),
        Column("efficiency", lambda record: efficiency_cell(scaling(record)), right=True),
        Column("status", lambda record: _status_cell(scaling(record))),
        Column("n", lambda record: count(scaling(record).step_time_s), right=True),
    ]
    caption = (
        "Mean with 95% interval over n rounds. Speed-up and efficiency are against one device alone in the "
        "same rounds, without wrapper, unless a base is named. "
        f"Excellent: an efficiency of at least {EXCELLENT:.0%}; good: {GOOD:.0%}; poor: less; negative: "
        "slower than one device, with its whole interval."
    )
    if any(column is alone for column in columns):
        caption += (
            " One device then: in the rounds of that row, over which its speed-up is; other rounds had "
            "another load, or other clocks."
        )
    if {1} < {record.config.world_size for record in records}:
        caption += (
            " A row of one device has what it did in the rounds of the most devices, over which their "
            "speed-up is; its own trial is among every trial, in report.html."
        )
    if any(record.config.oversubscribed for record in results.complete):
        caption += " * more workers than cores: for correctness only."
    return make_table("Scaling", caption, columns, records)


def _alone(results: StudyResults, record: TrialRecord) -> str:
    one = results.bases.get(record.trial_id)
    return "" if one is None else interval(one.throughput_samples_per_s)


def speedup_cell(scaling: Scaling) -> str:
    """The speed-up, over how many devices where it is not one; of the baseline itself 1."""
    if scaling.speedup is None or scaling.baseline is None:
        return ""
    if scaling.is_baseline:
        return "1"
    size = scaling.baseline.world_size
    return times(scaling.speedup) + ("" if size == 1 else f" over {size}")


def efficiency_cell(scaling: Scaling) -> str:
    """The efficiency; of the baseline itself 100%."""
    if scaling.efficiency is None:
        return ""
    return "100%" if scaling.is_baseline else percent(scaling.efficiency)


def _status_cell(scaling: Scaling) -> str:
    if scaling.status is None:
        return "no baseline"
    return "baseline" if scaling.is_baseline else str(scaling.status)


@dataclass(frozen=True)
class _Overhead:
    """What a trial on several devices adds to the step of one."""

    label: str
    waterfall: Waterfall


def overheads_table(results: StudyResults) -> Table:
    """T_comm beside the exposed part, and Amdahl's serial fraction, of every trial on several devices."""
    records = in_order(results, "scaling") or in_order(results, "search")
    rows = [
        _Overhead(results.label(record), waterfall)
        for record in records
        if (waterfall := results.waterfalls[record.trial_id]) is not None and waterfall.world_size > 1
    ]
    caption = (
        "T_comm holds all that more devices add to a step, contention, wrapper and skew too; communication "
        "is the transfers that no compute hides, a difference of two steps: below 0 nothing is to be seen of "
        "it. f is the serial fraction that Amdahl's law needs for the measured "
        "speed-up (Karp and Flatt 1990): where it grows with the devices, it is overhead and not serial "
        "work. Mean with 95% interval over n rounds."
    )
    return make_table("Overhead by world size", caption, _OVERHEAD_COLUMNS, rows)


_OVERHEAD_COLUMNS: list[Column[_Overhead]] = [
    Column("devices", lambda row: str(row.waterfall.world_size), right=True),
    Column("setting", lambda row: row.label),
    Column(
        "T_comm = T(n) - T(1), ms", lambda row: known(row.waterfall.t_comm_s, lost_milliseconds), right=True
    ),
    Column("T_comm / T(n)", lambda row: known(row.waterfall.t_comm_fraction, share_of_step), right=True),
    Column(
        "communication, ms",
        lambda row: known(row.waterfall.parts.exposed_communication, lost_milliseconds),
        right=True,
    ),
    Column(
        "communication / T(n)",
        lambda row: known(row.waterfall.communication_fraction, share_of_step),
        right=True,
    ),
    Column("Amdahl's f", lambda row: known(row.waterfall.serial_fraction, serial_fraction_words), right=True),
    Column("n", lambda row: count(row.waterfall.step_time_s), right=True),
]
