"""Several studies side by side: in what they differ, and what is faster or slower now."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from raybench.analysis.reference import scaling_first
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate, geometric_of, ratio_of_runs, unpaired_ratio
from raybench.analysis.stats.verdict import half_width_of, times_to_tell, values_to_tell
from raybench.machine.environment import Environment, comparable, differing
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.user_input import flat
from raybench.spec.workloads import ScriptSpec

NO_WORK = ("data", *Configuration.ANY_WORKERS)  # of a configuration
NAMES_ONLY = ("question", "name", "data", "code_folder", "time_budget_seconds")  # change no measurement


@dataclass(frozen=True)
class Side:
    """One of the studies that stand side by side."""

    name: str
    results: StudyResults
    environment: Environment


@dataclass(frozen=True)
class SameTrial:
    """One trial that two sides have in common."""

    label: str
    world_size: int
    is_headline: bool  # the first side's default at its largest world size
    speed: Estimate  # samples/s of the second over the first
    efficiency: Estimate | None  # the same ratio; None: not over equally many devices
    starts: tuple[int, int]  # of the workers, on each side

    def starts_to_tell(self, share: float) -> int | None:
        """Starts on each side that would tell whether it has lost this share, with the ratio as it is.

        None: too many.
        """
        return times_to_tell(self.speed.scaled(1 / (1 - share)).map(math.log), 0.0, min(self.starts))


def paired_speed(first: Sequence[Estimate], second: Sequence[Estimate]) -> Estimate:
    """The second side's throughput over the first's, from starts that were neighbours in time.

    ``first`` and ``second`` hold one throughput a pair, at least two pairs. What changes more slowly than a
    pair takes cancels in its ratio. The ratios differ by the noise within starts and between them.
    """
    return geometric_of([unpaired_ratio(after, before) for before, after in zip(first, second, strict=True)])


def pairs_to_tell(speed: Estimate, share: float) -> int | None:
    """Pairs of starts that would tell whether ``paired_speed`` has lost this share, with the ratio as it is.

    None: more than anyone makes.
    """
    return values_to_tell(speed.scaled(1 / (1 - share)).map(math.log), 0.0)


def shown_by_pairs(speed: Estimate, pairs: int) -> float:
    """The smallest difference, relative, that so many pairs of starts show: half their 95% interval.

    ``speed``: of ``paired_speed``, whose spread between pairs others are taken to have.
    """
    return math.expm1(half_width_of(speed.map(math.log), pairs))


def differences(sides: Sequence[Side]) -> dict[str, tuple[object, ...]]:
    """What is not the same on all sides: the studies' fields, then what changes timing of the machines.

    By dotted name, a value for each side.
    """
    studies = [dict(flat(side.results.study.model_dump(mode="json"))) for side in sides]
    found = differing(studies) | differing([comparable(side.environment) for side in sides])
    return {name: values for name, values in found.items() if name not in NAMES_ONLY}


def work_of(config: Configuration, *, any_arguments: bool = False) -> Hashable:
    """Equal for what does the same on the same devices, wherever the data lie.

    ``any_arguments``: of a script, as its runs are compared for what these change.
    """
    if any_arguments and isinstance(config.workload, ScriptSpec):
        return config.workload.script, config.key(ignore=(*NO_WORK, "workload"))
    return config.key(ignore=NO_WORK)


def same_trials(first: Side, other: Side) -> list[SameTrial]:
    """The trials of one workload, setting and world size that both measured; the first's headline leads.

    Each ratio is of two runs: its interval holds the noise within them and what runs of one program differ by
    (``ratio_of_runs``), not what else changes from day to day.
    """
    work = partial(work_of, any_arguments=True)
    of_other = {work(each.config): each for each in other.results.references}
    mine = scaling_first(first.results.references)
    pairs = ((each, rival) for each in mine if (rival := of_other.get(work(each.config))))
    found = (_in_both(first, each, other, rival) for each, rival in pairs)
    return sorted(found, key=lambda each: not each.is_headline)


def headline_in_common(first: Side, other: Side) -> SameTrial | None:
    """The first side's default at its largest world size, where the other has measured it too."""
    return next((each for each in same_trials(first, other) if each.is_headline), None)


def _in_both(first: Side, mine: TrialRecord, other: Side, rival: TrialRecord) -> SameTrial:
    before, now = first.results.scaling(mine), other.results.scaling(rival)
    over = {each.baseline and each.baseline.world_size for each in (before, now)}
    efficiency = None
    if len(over) == 1 and mine.config.world_size not in over and now.efficiency and before.efficiency:
        efficiency = ratio_of_runs(now.efficiency, before.efficiency)
    return SameTrial(
        label=first.results.label(mine),
        world_size=mine.config.world_size,
        is_headline=mine is first.results.headline,
        speed=ratio_of_runs(now.throughput_samples_per_s, before.throughput_samples_per_s),
        efficiency=efficiency,
        starts=(before.step_time_s.starts, now.step_time_s.starts),
    )
