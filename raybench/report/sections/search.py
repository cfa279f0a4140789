"""What a search found: suggestions, gains, largest batches, strategies."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis.labels import combination_words, devices_words
from raybench.analysis.largest_batch import MEMORY_SHARE, Bound, LargestFit
from raybench.analysis.results import StudyResults
from raybench.analysis.strategies import ParityVerdict, StrategyRow
from raybench.records.record import TrialRecord
from raybench.report.format import count, interval, mebibytes, milliseconds, percent
from raybench.report.pages import EXPLORATORY
from raybench.report.sections.scaling import efficiency_cell, speedup_cell
from raybench.report.sections.trials import in_order, label_and_mark
from raybench.report.table import Column, Table, devices, first_rows_words, known, make_table
from raybench.spec.workloads import ScriptSpec

MOST_GAINS = 12  # rows


def suggestions_table(results: StudyResults, most: int | None = None) -> Table:
    """The suggestions of a search at the target world size, the fastest first; the first ``most`` of them."""
    columns: list[Column[TrialRecord]] = [
        Column("#", lambda record: "" if record.suggestion is None else str(record.suggestion), right=True),
        Column("setting", lambda record: label_and_mark(results, record)),
        Column(
            "samples/s",
            lambda record: interval(results.scaling(record).throughput_samples_per_s),
            right=True,
        ),
        Column(
            "efficiency", lambda record: known(results.scaling(record).efficiency, percent, ""), right=True
        ),
        Column("visits", lambda record: str(len(results.visits(record))), right=True),
        Column("peak memory, MiB", lambda record: mebibytes(_peak_memory_bytes(record)), right=True),
        Column("n", lambda record: count(results.scaling(record).step_time_s), right=True),
    ]
    caption = (
        f"World size {results.target_world_size}, 95% interval of each alone. {EXPLORATORY} "
        "A batch is a choice about speed alone: what it does to accuracy was not measured."
    )
    fastest_first = sorted(
        results.rivals,
        key=lambda record: -results.scaling(record).throughput_samples_per_s.value,
    )
    shown = fastest_first[:most]
    if len(shown) < len(fastest_first):
        caption += f" {first_rows_words(len(shown), len(fastest_first))}"
    return make_table("Suggestions", caption, columns, shown)


def _peak_memory_bytes(record: TrialRecord) -> int | None:
    """Of the rank that takes most, as torch counts it."""
    return max(record.steps.peak_memory_bytes or (), default=None) if record.steps else None


def gains_table(results: StudyResults) -> Table:
    """Every setting at the target against the default, the fastest first."""
    columns: list[Column[TrialRecord]] = [
        Column("setting", results.label),
        Column("devices", devices, right=True),
        Column(
            "gain in samples/s",
            lambda record: percent(results.gains[record.trial_id].gain, sign=True),
            right=True,
        ),
        Column("verdict", lambda record: str(results.gains[record.trial_id].verdict)),
        Column("visits", lambda record: str(len(results.visits(record))), right=True),
    ]
    others = [record for record in results.rivals if record.trial_id in results.gains]
    others.sort(key=lambda record: -results.gains[record.trial_id].gain.value)
    shown = others[:MOST_GAINS]
    how = "across starts" if isinstance(results.study.workload, ScriptSpec) else "in the same rounds"
    caption = (
        f"Against the default {how}; 95% intervals for all rows at once. As good: within "
        f"{results.study.search.minimum_gain:.0%}."
    )
    if len(others) > len(shown):
        caption += f" {first_rows_words(len(shown), len(others))}"
    return make_table("Settings against the default", caption, columns, shown)


def largest_table(results: StudyResults) -> Table:
    """What ``batch_size = "max"`` stands for in each combination of the knobs that change memory."""

    def setting(each: LargestFit) -> str:  # the strategy has a column of its own
        return combination_words(results.study, each.setting, always=["precision"], without=["strategy"])

    columns: list[Column[LargestFit]] = [
        Column("strategy", lambda each: "single" if each.world_size == 1 else each.setting.strategy),
        Column("setting", setting),
        Column("largest batch", batch_cell, right=True),
        Column("memory, MiB", _memory_cell, right=True),
        Column("share of the memory", share_cell, right=True),
        Column("why no larger one", bound_words),
        Column(
            "probes (out of memory)", lambda each: f"{each.num_probes} ({each.num_out_of_memory})", right=True
        ),
    ]
    counted = "of all devices" if results.study.scaling.mode == "strong" else "per device"
    sized = f"{devices_words(results.target_world_size)}, batch {counted}"
    caption = (
        f"On {sized}: the largest that takes at most {MEMORY_SHARE:.0%} of a rank's memory, as the device "
        "counts it (on CPUs the process, against an equal share of the host's)."
    )
    return make_table("The largest batch that fits", caption, columns, results.largest)


def batch_cell(largest: LargestFit) -> str:
    """The largest batch that fits; "none" where none does."""
    return "none" if largest.batch_size is None else f"{largest.batch_size:,}"


def share_cell(largest: LargestFit) -> str:
    """Its share of the memory; empty where that is not told."""
    share = largest.fitting.share if largest.fitting else None
    return "" if share is None else f"{share:.0%}"


def _memory_cell(largest: LargestFit) -> str:
    fitting = largest.fitting
    return mebibytes(fitting.memory_bytes) if fitting and fitting.share is not None else ""


def strategies_table(results: StudyResults) -> Table:
    """Strategies side by side at each world size; empty where the study has one."""
    memory = "of the process, whatever it holds"
    if not any(row.memory_is_of_process for row in results.strategies):
        memory = "as torch counts it, of the strategy alone (fsdp: without the copy that is its base)"
    caption = (
        f"Peak memory is of the rank that takes most, {memory}. Loss parity: the largest relative "
        "difference of a step's loss, and of the first gradient, from one device's, of what is tolerated."
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
    caption = "|compressed - exact| / |exact| of the averaged gradient of one step, Euclidean norms."
    compressed = [record for record in in_order(results, "scaling") if _error(record) is not None]
    return make_table("Error of gradient compression", caption, columns, compressed)


def _error(record: TrialRecord) -> float | None:
    return record.steps.compression_error if record.steps else None


def bound_words(largest: LargestFit) -> str:
    """Why no larger batch is taken: "stopped at the memory (batch 96: 97% of the memory predicted)"."""
    if largest.bound is Bound.UNFINISHED:
        return "not finished: larger ones may fit"
    told = " ".join(largest.reason.split())
    if largest.bound is Bound.LIMIT:
        return f"stopped at the limit of {largest.bound}, not at the memory: {told}"
    if largest.bound is Bound.MEMORY:
        return f"stopped at the memory: {told}"
    return f"stopped by {largest.bound}, not at the memory: {told}"


def objectives_words(objectives: Sequence[str]) -> str:
    """What a study calls best: "throughput and peak memory"."""
    return " and ".join(name.replace("_", " ") for name in objectives)
