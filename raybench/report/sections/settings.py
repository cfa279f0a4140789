"""What the settings change: each against the default, and the largest batches."""

from __future__ import annotations

from functools import partial

from raybench.analysis.labels import combination_words
from raybench.analysis.largest_batch import MEMORY_SHARE, LargestFit
from raybench.analysis.objectives import objective_value
from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.report.format import duration_words, interval, mebibytes, percent
from raybench.report.table import Column, Table, known, make_table, numbers
from raybench.spec.workloads import ScriptSpec


def settings_table(results: StudyResults) -> Table:
    """Every setting at the target against the default, the fastest first; empty where there is one."""
    gains = results.gains

    def verdict(record: TrialRecord) -> str:
        if record is results.default:
            return "the default"
        return known(gains.get(record.trial_id), lambda gain: str(gain.verdict))

    columns: list[Column[TrialRecord]] = [
        Column("setting", results.label, stays=True),
        numbers("samples/s", lambda record: results.scaling(record).throughput_samples_per_s, interval),
        numbers(
            "gain", lambda record: gains.get(record.trial_id), lambda gain: percent(gain.gain, sign=True)
        ),
        Column("verdict", verdict),
        numbers("efficiency", lambda record: results.scaling(record).efficiency, percent),
        *_of_objectives(results),
        numbers("visits", lambda record: len(results.visits(record))),
    ]
    has_dp = any(each.config.setting.strategy == "dp" for each in results.rivals)  # the caption says more
    rows = _fastest_first(results) if len(results.rivals) > 1 or has_dp else []
    return make_table("Settings against the default", _caption(results), columns, rows)


def _fastest_first(results: StudyResults) -> list[TrialRecord]:
    return sorted(results.rivals, key=lambda record: -results.scaling(record).throughput_samples_per_s.value)


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
    if _shows_memory(results) and any(r.steps and not r.steps.peak_memory_bytes for r in results.rivals):
        words += " Memory is of the process."
    return " ".join(filter(None, (words, _data_parallel_words(results))))


def _shows_memory(results: StudyResults) -> bool:
    """Strategies differ in memory."""
    objectives = results.study.search.objectives
    return "peak_memory" in objectives or len(results.study.knobs.values("strategy")) > 1


def _of_objectives(results: StudyResults) -> list[Column[TrialRecord]]:
    """What a study calls best where that is not speed or efficiency alone."""
    objectives, front = results.study.search.objectives, {each.record.trial_id for each in results.chosen}
    columns = []
    if _shows_memory(results):
        columns.append(Column("peak memory, MiB", partial(_peak_memory, results), right=True))
    if len(objectives) > 1:
        columns.append(
            Column("Pareto front", lambda record: "yes" if record.trial_id in front else "", stays=True)
        )
    return columns


def largest_table(results: StudyResults) -> Table:
    """What ``batch_size = "max"`` stands for in each combination of the knobs that change memory."""

    def setting(largest: LargestFit) -> str:
        combination = largest.setting.at(largest.world_size)
        return combination_words(results.study, combination, always=["strategy", "precision"])

    columns: list[Column[LargestFit]] = [
        Column("setting", setting, stays=True),
        numbers("largest batch", lambda each: each.batch_size, "{:,}".format, "none"),
        Column("why no larger one", lambda each: " ".join(each.reason.split()) or "not finished"),
    ]
    counted = "of all devices" if results.study.scaling.mode == "strong" else "per device"
    caption = (
        f"On {results.devices(results.target_world_size)}, batch {counted}: at most {MEMORY_SHARE:.0%} of a "
        "rank's memory (on CPUs an equal share of the host's)."
    )
    return make_table("The largest batch that fits", caption, columns, results.largest)


def _peak_memory(results: StudyResults, record: TrialRecord) -> str:
    """Of the rank that takes most, in MiB."""
    found = objective_value(record, "peak_memory", results.scaling(record))
    return known(found, lambda most: mebibytes(int(most.value)), "")


DP_PARTS = {"scatter": "scattering", "replicate": "copying", "gather": "gathering outputs"}


def _data_parallel_words(results: StudyResults) -> str:
    """What DataParallel does in a step, and how long that takes; empty without it."""
    dp = next((each for each in _fastest_first(results) if each.config.setting.strategy == "dp"), None)
    if dp is None:
        return ""
    words = [
        "DataParallel is one process for all devices: in each step it scatters the batch, copies the weights "
        "to every device, gathers the outputs on the first, and sums the gradients there."
    ]
    if dp.steps and dp.steps.data_parallel_s:
        timed = dp.steps.data_parallel_s.items()
        parts = ", ".join(f"{duration_words(seconds)} {DP_PARTS[name]}" for name, seconds in timed)
        words.append(f"In steps of their own it spent {parts}; gradients are summed in the backward pass.")
    return " ".join(words)
