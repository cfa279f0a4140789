"""The profiled trials: what their traces say of communication, beside what the stopwatch says of it."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.measured import MeasuredStudy
from raybench.records.measurements import TracedRank
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class OverRanks:
    """Seconds of one step, mean over the ranks, and those of the least and of the most."""

    mean_s: float
    least_s: float
    most_s: float


@dataclass(frozen=True)
class Overlap:
    """What the traces of a trial say of one step."""

    num_steps: int  # in each trace
    num_ranks: int
    step: OverRanks
    communication: OverRanks
    hidden: OverRanks  # of the communication: while the same rank computes
    exposed: OverRanks  # while it does not


@dataclass(frozen=True)
class Profiled:
    """One trial that was to be profiled."""

    record: TrialRecord
    label: str
    overlap: Overlap | None
    missing: tuple[str, ...]  # why there is no trace, or no snapshot of memory
    waterfall: Waterfall | None  # of the same setting, by the stopwatch


def profiled(results: MeasuredStudy) -> tuple[Profiled, ...]:
    """Every complete trial of which a profile was asked; one that was measured again keeps its own."""
    asked = (record for record in results.records if record.steps is not None and _was_asked(record))
    return tuple(_profiled(results, record) for record in asked)


def _was_asked(record: TrialRecord) -> bool:
    request = record.request
    return request.kind == "steps" and (request.measure.profile or request.measure.memory_snapshot)


def _profiled(results: MeasuredStudy, record: TrialRecord) -> Profiled:
    steps = record.steps
    assert steps is not None  # it is complete
    beside = {name: steps.missing[name] for name in ("profile", "memory_snapshot") if name in steps.missing}
    return Profiled(
        record,
        results.label(record),
        overlap(steps.profile) if steps.profile else None,
        tuple(f"no {name.replace('_', ' ')}: {reason}" for name, reason in beside.items()),
        _waterfall(results, record),
    )


def _waterfall(results: MeasuredStudy, record: TrialRecord) -> Waterfall | None:
    """Of the trial; where it has no parts (a confirmation) or was replaced, its setting's on the curve."""
    alike = [other for other in results.measured if other.config == record.config]
    found = (results.waterfalls.get(each.trial_id) for each in (record, *alike))
    return next((each for each in found if each and each.parts.exposed_communication), None)


def overlap(ranks: tuple[TracedRank, ...]) -> Overlap:
    """One step, from the traces of at least one rank."""

    def of_a_step(name: str) -> OverRanks:
        values = [getattr(rank, name) / rank.num_steps for rank in ranks]
        return OverRanks(sum(values) / len(values), min(values), max(values))

    return Overlap(
        num_steps=ranks[0].num_steps,
        num_ranks=len(ranks),
        step=of_a_step("steps_s"),
        communication=of_a_step("communication_s"),
        hidden=of_a_step("both_s"),
        exposed=of_a_step("alone_s"),
    )
