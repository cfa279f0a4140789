"""Communication in the traces of the profiled trials, beside the stopwatch's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raybench.analysis.overlap import OverRanks, Profiled
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.waterfall import Waterfall
from raybench.records.store import TRACES
from raybench.report.format import aligned, count, milliseconds
from raybench.report.tables.base import NONE, Column, Table, devices, empty_table, known, make_table

TITLE = "Communication in the traces"
LINE_WORDS = {
    "step": "step",
    "communication": "transfers",
    "hidden": "transfers that are hidden",
    "exposed": "communication (not hidden)",
}
CAPTION = (
    "A few steps under torch.profiler, which slows them, when the rounds were done: mean over the ranks, and "
    "the ranks with the least and the most. In a trace transfers are the time in which one runs, "
    "waiting for another rank included; they are hidden while an operator (on GPUs a kernel) of the same "
    "rank runs, else communication. The stopwatch knows no single transfers: transfers are the all-reduces "
    "alone (replay), communication is what the step takes longer than one without transfers, waiting for the "
    "slowest rank left out, hidden is their difference; mean with 95% interval over n rounds."
)


@dataclass(frozen=True)
class _Line:
    """One quantity of one trial."""

    trial: Profiled
    name: str
    traced: OverRanks | None
    timed: Estimate | None


_COLUMNS: list[Column[_Line]] = [
    Column("setting", lambda line: line.trial.label),
    Column("devices", lambda line: devices(line.trial.record), right=True),
    Column("of a step", lambda line: LINE_WORDS[line.name]),
    Column("trace, ms", lambda line: known(line.traced, _milliseconds), right=True),
    Column("steps x ranks", lambda line: _traced_count(line.trial), right=True),
    Column("stopwatch, ms", lambda line: known(line.timed, milliseconds), right=True),
    Column("n", lambda line: known(line.timed, count), right=True),
]


def overlap_table(results: StudyResults) -> Table:
    """A line for each quantity of each profiled trial; empty where no profile was asked for."""
    if not results.profiled:
        return empty_table(TITLE)
    words = [
        CAPTION,
        *(
            f"Open {TRACES}/{each.record.trial_id}/ ({each.label})."
            for each in results.profiled
            if each.overlap
        ),
        *(f"{each.label}: {reason}." for each in results.profiled for reason in each.missing),
    ]
    return make_table(
        TITLE, " ".join(words), _COLUMNS, [line for each in results.profiled for line in _lines(each)]
    )


def _lines(trial: Profiled) -> Iterator[_Line]:
    traced, timed = trial.overlap, trial.waterfall
    alone = trial.record.config.world_size == 1
    for name in ("step",) if alone else ("step", "communication", "hidden", "exposed"):
        yield _Line(
            trial,
            name,
            getattr(traced, name) if traced else None,
            _timed(timed)[name] if timed else None,
        )


def _timed(waterfall: Waterfall) -> dict[str, Estimate | None]:
    return {
        "step": waterfall.step_time_s,
        "communication": waterfall.replay_s,
        "hidden": waterfall.hidden_communication_s,
        "exposed": waterfall.parts.exposed_communication,
    }


def _traced_count(trial: Profiled) -> str:
    return f"{trial.overlap.num_steps} x {trial.overlap.num_ranks}" if trial.overlap else NONE


def _milliseconds(traced: OverRanks) -> str:
    mean, least, most = aligned(*(1e3 * each for each in (traced.mean_s, traced.least_s, traced.most_s)))
    return f"{mean} ({least} to {most})"
