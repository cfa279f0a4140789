"""What a search has found: its suggestions, the winner against the default, the largest batch that fits."""

from __future__ import annotations

from raybench.analysis.labels import combination_words, devices_words
from raybench.analysis.largest_batch import MEMORY_SHARE, LargestFit
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.results import StudyResults
from raybench.analysis.search import Confirmation
from raybench.analysis.stats.efficiency import Scaling
from raybench.records.record import TrialRecord
from raybench.report.format import (
    APART,
    EXPLORATORY,
    bound_words,
    count,
    interval,
    mebibytes,
    objectives_words,
    percent,
)
from raybench.report.tables.base import Column, Table, devices, first_rows_words, known, make_table
from raybench.report.tables.trials import in_order, label_and_mark


def suggestions_table(results: StudyResults, most: int | None = None) -> Table:
    """The suggestions of a search at the target world size, the fastest first; the first ``most`` of them."""
    columns: list[Column[TrialRecord]] = [
        Column("#", lambda record: "" if record.suggestion is None else str(record.suggestion), right=True),
        Column("setting", lambda record: label_and_mark(results, record)),
        Column(
            "samples/s",
            lambda record: interval(_scaling(results, record).throughput_samples_per_s),
            right=True,
        ),
        Column(
            "efficiency", lambda record: known(_scaling(results, record).efficiency, percent, ""), right=True
        ),
        Column("measured", lambda record: _where(results, record)),
        Column("peak memory, MiB", lambda record: mebibytes(_peak_memory_bytes(record)), right=True),
        Column("n", lambda record: count(_scaling(results, record).step_time_s), right=True),
    ]
    caption = (
        f"World size {results.target_world_size}, 95% interval of each alone; of what was measured on the "
        "curve as well, the curve's, else of what was confirmed the confirmation's samples/s, though the "
        "best was chosen by what the search had measured. "
        f"{EXPLORATORY} A suggestion's batch size is a choice about speed alone: how "
        "many epochs a batch needs to reach an accuracy was not measured."
    )
    fastest_first = sorted(
        in_order(results, "search"),
        key=lambda record: -_scaling(results, record).throughput_samples_per_s.value,
    )
    shown = fastest_first[:most]
    if len(shown) < len(fastest_first):
        caption += f" {first_rows_words(len(shown), len(fastest_first))}"
    return make_table("Suggestions", caption, columns, shown)


def _where(results: StudyResults, record: TrialRecord) -> str:
    reference = results.reference(record)
    if reference.trial_id in results.reported_by:
        return "in the confirmation"
    return _WHERE[reference.request.role]


_WHERE: dict[str, str] = {"scaling": "on the curve", "search": "in the search"}


def _scaling(results: StudyResults, record: TrialRecord) -> Scaling:
    """How the suggestion scales, by the trial that speaks for it."""
    return results.scaling(results.reference(record))


def _peak_memory_bytes(record: TrialRecord) -> int | None:
    """Of the rank that takes most, as torch counts it."""
    return max(record.steps.peak_memory_bytes or (), default=None) if record.steps else None


def confirmation_table(results: StudyResults) -> Table:
    """Winners against the default, measured in the same rounds unless they need other processes."""
    columns: list[Column[Confirmation]] = [
        Column("winner", lambda confirmed: confirmed.label),
        Column("devices", lambda confirmed: devices(confirmed.record), right=True),
        Column("gain in samples/s", lambda confirmed: percent(confirmed.gain.gain, sign=True), right=True),
        Column("verdict", lambda confirmed: str(confirmed.gain.verdict)),
        Column("measured", lambda confirmed: "interleaved" if confirmed.paired else "apart"),
        Column("n", lambda confirmed: str(confirmed.gain.gain.n), right=True),
    ]
    objectives = results.study.search.objectives
    at_once = " for all at once" if len(results.confirmations) > 1 else ""
    apart = "" if all(each.paired for each in results.confirmations) else f" {APART}"
    chosen = "" if OF_SPEED.issuperset(objectives) else f" Chosen for {objectives_words(objectives)}."
    caption = (
        f"Interleaved with the default in the same rounds, 95% interval{at_once}.{apart} A gain is "
        "significant when the interval excludes 0 and it is at least "
        f"{results.study.search.minimum_gain:.0%}.{chosen} "
        "The verdict is on samples/s."
    )
    return make_table("The winner against the default", caption, columns, results.confirmations)


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
        f"On {sized}: the largest that takes at most {MEMORY_SHARE:.0%} of a rank's memory, by doubling and "
        "bisection; above 64 in multiples of 8, above 1,024 in steps of 1 to 2%. Memory is the device's "
        "count on the fullest rank: on GPUs what torch has reserved, context and communicators included, "
        "against the GPU's; on CPUs the process's peak resident set against an equal share of the host's."
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
