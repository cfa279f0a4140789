"""Strategies side by side, and what compression does to the gradients."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.analysis.strategies import ParityVerdict, StrategyRow
from raybench.records.record import TrialRecord
from raybench.report.format import count, mebibytes, milliseconds
from raybench.report.tables.base import Column, Table, devices, make_table
from raybench.report.tables.scaling import efficiency_cell, speedup_cell
from raybench.report.tables.trials import in_order


def strategies_table(results: StudyResults) -> Table:
    """Strategies side by side at each world size; empty where the study has one."""
    memory = "of the process, whatever it holds"
    if not any(row.memory_is_of_process for row in results.strategies):
        memory = "as torch counts it, of the strategy alone (fsdp: without the copy that is its base)"
    caption = (
        "Mean with 95% interval over n rounds; peak memory is that of the rank that takes most, "
        f"{memory}. Each strategy stands with the default's other settings, else with its fastest. Loss "
        "parity: from the same weights on the same samples, the largest difference of a step's loss from "
        "one device's, and that of the first step's averaged gradient, relative, of what is tolerated."
    )
    return make_table("Strategies", caption, _STRATEGY_COLUMNS, results.strategies)


_STRATEGY_COLUMNS: list[Column[StrategyRow]] = [
    Column("devices", lambda row: devices(row.record), right=True),
    Column("strategy", lambda row: row.record.config.setting.strategy),
    Column("global batch", lambda row: f"{row.record.config.global_batch_size:,}", right=True),
    Column("step time, ms", lambda row: milliseconds(row.scaling.step_time_s), right=True),
    Column("speed-up", lambda row: speedup_cell(row.scaling), right=True),
    Column("efficiency", lambda row: efficiency_cell(row.scaling), right=True),
    Column("peak memory, MiB", lambda row: mebibytes(row.memory_bytes), right=True),
    Column("loss parity", lambda row: _parity_words(row.parity)),
    Column("n", lambda row: count(row.scaling.step_time_s), right=True),
]


def _parity_words(verdict: ParityVerdict | None) -> str:
    if verdict is None:
        return ""
    difference = f"{verdict.relative_difference:.1g} of {verdict.tolerance:g} in {verdict.steps} steps"
    if verdict.gradient_difference is not None:
        difference += f", gradient {verdict.gradient_difference:.1g} of {verdict.gradient_tolerance:g}"
    if verdict.agrees:
        return f"agrees: {difference}"
    why = f" ({'; '.join(verdict.may_differ)})" if verdict.may_differ else ""
    return f"differs: {difference}{why}"


def compression_table(results: StudyResults) -> Table:
    """What compression does to the gradients; empty where nothing is compressed."""
    columns: list[Column[TrialRecord]] = [
        Column("devices", devices, right=True),
        Column("setting", results.label),
        Column("compression", lambda record: record.config.setting.gradient_compression),
        Column("relative error", lambda record: f"{_error(record):.2g}", right=True),
    ]
    caption = (
        "|compressed - exact| / |exact| of the averaged gradient of one step, Euclidean norms, the same "
        "weights and samples."
    )
    compressed = [record for record in in_order(results, "scaling") if _error(record) is not None]
    return make_table("Error of gradient compression", caption, columns, compressed)


def _error(record: TrialRecord) -> float | None:
    return record.steps.compression_error if record.steps else None
