"""What the settings change: each against the default, the largest batches, strategies, compression."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.labels import combination_words, devices_of
from raybench.analysis.largest_batch import MEMORY_SHARE, Bound, LargestFit
from raybench.analysis.objectives import objective_value
from raybench.analysis.results import StudyResults
from raybench.analysis.strategies import ParityVerdict, StrategyRow, compare_strategies, loss_parity
from raybench.records.record import TrialRecord
from raybench.report.format import duration_words, interval, mebibytes, milliseconds, percent
from raybench.report.sections.trials import in_order
from raybench.report.table import Column, Table, devices, known, make_table
from raybench.spec.study import Study
from raybench.spec.workloads import ScriptSpec


def settings_table(results: StudyResults) -> Table:
    """Every setting at the target against the default, the fastest first; empty where there is one."""
    gains = results.gains

    def verdict(record: TrialRecord) -> str:
        if record is results.default:
            return "the default"
        return known(gains.get(record.trial_id), lambda gain: str(gain.verdict))

    def gained(record: TrialRecord) -> str:
        return known(gains.get(record.trial_id), lambda gain: percent(gain.gain, sign=True))

    def rate(record: TrialRecord) -> str:
        return interval(results.scaling(record).throughput_samples_per_s)

    columns: list[Column[TrialRecord]] = [
        Column("setting", results.label, stays=True),
        Column("samples/s", rate, right=True),
        Column("gain", gained, right=True),
        Column("verdict", verdict),
        Column("efficiency", lambda record: known(results.scaling(record).efficiency, percent), right=True),
        *_of_objectives(results),
        Column("visits", lambda record: str(len(results.visits(record))), right=True),
    ]
    fastest_first = sorted(
        results.rivals, key=lambda record: -results.scaling(record).throughput_samples_per_s.value
    )
    rows = fastest_first if len(fastest_first) > 1 else []
    return make_table("Settings against the default", _caption(results), columns, rows)


def _caption(results: StudyResults) -> str:
    words = f"On {results.devices(results.compared_at)}."
    if results.gains:
        how = "across starts" if isinstance(results.study.workload, ScriptSpec) else "in the same rounds"
        words += (
            f" Gains are over the default {how}, with 95% intervals for all rows at once; as good: within "
            f"{results.study.search.minimum_gain:.0%}."
        )
    if len({record.config.global_batch_size for record in results.rivals}) > 1:
        words += " A batch is a choice about speed alone."
    return words


def _of_objectives(results: StudyResults) -> list[Column[TrialRecord]]:
    """What a study calls best where that is not speed or efficiency alone."""
    objectives, front = results.study.search.objectives, {each.record.trial_id for each in results.chosen}

    def memory(record: TrialRecord) -> str:
        found = objective_value(record, "peak_memory", results.scaling(record))
        return known(found, lambda most: mebibytes(int(most.value)))

    columns = []
    if "peak_memory" in objectives:
        columns.append(Column("peak memory, MiB", memory, right=True))
    if len(objectives) > 1:
        columns.append(
            Column("Pareto front", lambda record: "yes" if record.trial_id in front else "", stays=True)
        )
    return columns


def largest_table(results: StudyResults) -> Table:
    """What ``batch_size = "max"`` stands for in each combination of the knobs that change memory."""
    columns: list[Column[LargestFit]] = [
        Column("setting", lambda each: fit_words(results.study, each)),
        Column("largest batch", batch_cell, right=True),
        Column("share of the memory", share_cell, right=True),
        Column("why no larger one", bound_words),
    ]
    counted = "of all devices" if results.study.scaling.mode == "strong" else "per device"
    caption = (
        f"On {results.devices(results.target_world_size)}, batch {counted}: at most {MEMORY_SHARE:.0%} of a "
        "rank's memory (on CPUs an equal share of the host's)."
    )
    return make_table("The largest batch that fits", caption, columns, results.largest)


def fit_words(study: Study, largest: LargestFit) -> str:
    """The combination of knobs whose largest batch it is."""
    setting = largest.setting.at(largest.world_size)
    return combination_words(study, setting, always=["strategy", "precision"])


def batch_cell(largest: LargestFit) -> str:
    """The largest batch that fits; "none" where none does."""
    return "none" if largest.batch_size is None else f"{largest.batch_size:,}"


def share_cell(largest: LargestFit) -> str:
    """Its share of the memory; empty where that is not known."""
    share = largest.fitting.share if largest.fitting else None
    return "" if share is None else f"{share:.0%}"


def bound_words(largest: LargestFit) -> str:
    """Why no larger batch is taken: "stopped by the memory: batch 96: 97% of the memory predicted"."""
    if largest.bound is Bound.UNFINISHED:
        return "not finished: larger ones may fit"
    what = "the memory" if largest.bound is Bound.MEMORY else f"{largest.bound}, not by the memory"
    return f"stopped by {what}: {' '.join(largest.reason.split())}"


def strategies_table(results: StudyResults) -> Table:
    """Time, memory and parity of each strategy at each world size; empty where the study has one."""
    rows = compare_strategies(results)
    is_of_process = any(row.memory_is_of_process for row in rows)
    columns: list[Column[StrategyRow]] = [
        Column("devices", lambda row: devices(row.record), right=True),
        Column("strategy", lambda row: row.record.config.setting.strategy, stays=True),
        Column(
            "step time, ms",
            lambda row: milliseconds(results.scaling(row.record).step_time_s),
            right=True,
        ),
        Column("peak memory, MiB", lambda row: mebibytes(row.memory_bytes), right=True),
        Column("loss parity", lambda row: _parity_words(row.parity)),
    ]
    caption = (
        f"Peak memory of {'the process' if is_of_process else 'torch'} on the rank that takes most. "
        "Loss parity: the largest relative difference of losses and of the first gradient from one device's, "
        "of what is tolerated."
    )
    caption = f"{caption} {_data_parallel_words(results, rows)}".strip()
    return make_table("Strategies", caption, columns, rows)


DP_PARTS = {"scatter": "scattering", "replicate": "copying", "gather": "gathering"}


def _data_parallel_words(results: StudyResults, rows: Sequence[StrategyRow]) -> str:
    """What DataParallel does in a step, and how long that takes next to DDP; empty without both."""
    last = {row.record.config.setting.strategy: row.record for row in rows}  # on the most devices
    dp, ddp = last.get("dp"), last.get("ddp")
    if dp is None or ddp is None or dp.config.world_size != ddp.config.world_size:
        return ""
    ratio = results.scaling(dp).step_time_s.value / results.scaling(ddp).step_time_s.value
    timed = dp.steps.data_parallel_s if dp.steps else None
    parts = [f"{duration_words(seconds)} {DP_PARTS[name]}" for name, seconds in (timed or {}).items()]
    return (
        "DataParallel is one process for all devices: in each step it scatters the batch, copies the weights "
        "to every device, and gathers outputs and gradients on the first. DDP sends gradients alone. On "
        f"{devices_of(dp.config)} DataParallel's step takes {ratio:.2f} times DDP's."
        + (f" In steps of their own it spent {', '.join(parts)}." if parts else "")
    )


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
    errors = [
        (record, parity.gradient_difference)
        for record in in_order(results, "scaling")
        if record.config.setting.gradient_compression != "none"
        and (parity := loss_parity(record)) is not None
        and parity.gradient_difference is not None
        and not parity.may_differ  # else dropout, say, is in it
    ]
    columns: list[Column[tuple[TrialRecord, float]]] = [
        Column("devices", lambda row: devices(row[0]), right=True),
        Column("setting", lambda row: results.label(row[0]), stays=True),
        Column("relative error", lambda row: f"{row[1]:.2g}", right=True, stays=True),
    ]
    caption = (
        "|compressed - exact| / |exact| of the averaged gradient of one step, against that of one device, "
        "Euclidean norms."
    )
    return make_table("Error of gradient compression", caption, columns, errors)
