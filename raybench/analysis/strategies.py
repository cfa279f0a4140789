"""Strategies side by side: step time, speed-up, memory, and whether they train what one device trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.choice import default_setting
from raybench.analysis.estimates.efficiency import Scaling
from raybench.analysis.loss_parity import ParityVerdict, loss_parity
from raybench.analysis.measured import MeasuredStudy
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class StrategyRow:
    """One strategy at one world size."""

    record: TrialRecord
    scaling: Scaling
    memory_bytes: int | None  # the rank that takes most
    memory_is_of_process: bool  # as the system counts the process: torch does not count on CPUs
    parity: ParityVerdict | None


def compare_strategies(results: MeasuredStudy) -> tuple[StrategyRow, ...]:
    """A row for each strategy and world size, by world size; empty where a study has one strategy.

    A strategy stands with the setting that differs from the default in the strategy alone, else with its
    fastest. Scaling trials, which have parity, come before a search's.
    """
    listed, measured = results.study.knobs.values("strategy"), results.by_role("scaling", "search")
    if len(listed) < 2:
        return ()
    rows: list[StrategyRow] = []
    for size in sorted({record.config.world_size for record in measured}):
        for strategy in ["single", *listed] if size == 1 else listed:
            there = [
                record
                for record in measured
                if record.config.world_size == size and record.config.setting.strategy == strategy
            ]
            if there and not any(row.record in there for row in rows):
                rows.append(_row(results, _representative(results, there)))
    return tuple(rows)


def _representative(results: MeasuredStudy, records: Sequence[TrialRecord]) -> TrialRecord:
    """The record that speaks for its strategy."""
    default = default_setting(results.study)

    def rank(record: TrialRecord) -> tuple[bool, float]:
        config = record.config
        alike = default.model_copy(update={"strategy": config.setting.strategy}).at(config.world_size)
        return config.setting != alike, -results.scaling(record).throughput_samples_per_s.value

    return min(records, key=rank)


def _row(results: MeasuredStudy, record: TrialRecord) -> StrategyRow:
    measurement = record.steps
    assert measurement is not None  # it is complete
    counted = measurement.peak_memory_bytes
    memory = counted or measurement.device_memory_bytes
    return StrategyRow(
        record=record,
        scaling=results.told[record.trial_id],
        memory_bytes=max(memory) if memory else None,
        memory_is_of_process=not counted,
        parity=loss_parity(record),
    )
