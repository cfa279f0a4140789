"""Several studies side by side: what each found, in what they differ, and what is faster or slower now."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from raybench.analysis.attribution import ModelChange, between, efficiency_ratio
from raybench.analysis.load import Load, load_of
from raybench.analysis.reference import one_of_each
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import (
    Estimate,
    of_log,
    ratio_of_runs,
    student,
    t_quantile,
    unpaired_ratio,
)
from raybench.analysis.stats.verdict import Verdict
from raybench.machine.environment import Environment, comparable
from raybench.machine.environment import differences as machine_differences
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.user_input import flat

MOST_STARTS = 1000  # nobody makes more to tell
NAMES_ONLY = ("question", "name", "data", "time_budget_seconds")  # of a study: they change no measurement


@dataclass(frozen=True)
class Side:
    """One of the studies that stand side by side."""

    name: str
    results: StudyResults
    environment: Environment

    @property
    def load(self) -> Load | None:
        """What other processes took while its headline was measured; None: it is not told."""
        return load_of(self.results.headline) if self.results.headline else None


@dataclass(frozen=True)
class Difference:
    """A field of the study or a part of the machine, with its value on each side."""

    name: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class SameTrial:
    """One trial that two sides have in common."""

    label: str
    record: TrialRecord  # of the first side
    speed: Estimate  # samples/s of the second over the first
    efficiency: Estimate | None  # the same ratio; None: a side has no baseline
    starts: tuple[int, int]  # of the workers, on each side
    loads: tuple[Load | None, Load | None]  # on each side; None: it is not told

    @property
    def is_slower(self) -> bool:
        """Whether the whole interval says so."""
        return self.slower_by(0.0) is Verdict.WORSE

    @property
    def is_under_load(self) -> bool:
        """Whether it is slower, and other processes took much more of the cores in the second side's."""
        before, now = self.loads
        return self.is_slower and now is not None and now.is_much_more_than(before)

    def slower_by(self, share: float) -> Verdict:
        """Whether more than this share of the first side's speed is lost: worse, as good, or unknown."""
        return slower_by(self.speed, share)

    def starts_to_tell(self, share: float) -> int | None:
        """Starts of the workers on each side that would tell, with the ratio as it is; None: too many."""
        room = abs(math.log(self.speed.value / (1 - share)))
        starts = (
            math.ceil(min(self.starts) * (self.speed.log_half_width / room) ** 2) if room else MOST_STARTS
        )
        return starts if starts < MOST_STARTS else None


def slower_by(speed: Estimate, share: float) -> Verdict:
    """Whether a speed, 1 for equal, has lost more than this share: worse, as good, or unknown."""
    if speed.high < 1 - share:
        return Verdict.WORSE
    return Verdict.AS_GOOD if speed.low >= 1 - share else Verdict.UNKNOWN


def paired_speed(first: Sequence[Estimate], second: Sequence[Estimate]) -> Estimate:
    """The second side's throughput over the first's, from starts that were neighbours in time.

    ``first`` and ``second`` hold one throughput a pair, at least two pairs. What changes more slowly than a
    pair takes cancels in its ratio. The interval is Student's over the logarithms of the ratios, which differ
    by the noise within starts and between them. It is never narrower than the intervals of the starts allow:
    few pairs may agree by chance.
    """
    within = [unpaired_ratio(after, before) for before, after in zip(first, second, strict=True)]
    found = student([math.log(ratio.value) for ratio in within])
    least = math.hypot(*(ratio.log_half_width for ratio in within)) / found.n
    return of_log(found.value, max(found.half_width, least), found.n, starts=found.n)


def pairs_to_tell(speed: Estimate, share: float) -> int | None:
    """Pairs of starts that would tell whether ``paired_speed`` has lost this share, with the ratio as it is.

    None: more than anyone makes.
    """
    room = abs(math.log(speed.value / (1 - share)))
    spread = speed.log_half_width * math.sqrt(speed.n) / t_quantile(speed.n - 1)
    enough = (n for n in range(speed.n + 1, MOST_STARTS) if t_quantile(n - 1) * spread < room * math.sqrt(n))
    return next(enough, None)


@dataclass(frozen=True)
class FurtherSide:
    """One study beside the first."""

    side: Side
    same_trials: tuple[SameTrial, ...]  # that both have; the first one's headline leads
    headline: SameTrial | None  # of ``same_trials``; None: the first one's was not measured here
    change: ModelChange | None  # None: both have one workload, or a default was not measured
    under_load: tuple[Side, Side] | None = None  # whose headline others disturbed much more, and the quieter

    @property
    def name(self) -> str:
        """What the study is called here."""
        return self.side.name


@dataclass(frozen=True)
class OverAnother:
    """The efficiency of one side's devices over one device that another side measured."""

    side: str
    base: str
    label: str
    world_size: int
    base_world_size: int
    efficiency: Estimate | None  # None: refused
    refused: str  # why; empty where it is not


@dataclass(frozen=True)
class SideBySide:
    """Several studies: in what they differ, and each further one beside the first."""

    first: Side
    others: tuple[FurtherSide, ...]
    differences: tuple[Difference, ...]
    over_another: tuple[OverAnother, ...] = ()  # where a side has no one device of its own

    @property
    def sides(self) -> tuple[Side, ...]:
        """All of them, the first one first."""
        return self.first, *(other.side for other in self.others)


def side_by_side(sides: Sequence[Side]) -> SideBySide:
    """All that a comparison shows; the first of ``sides`` is what the others are compared with."""
    first, *others = sides
    return SideBySide(
        first=first,
        others=tuple(_beside(first, other) for other in others),
        differences=tuple(differences(sides)),
        over_another=tuple(over_another(sides)),
    )


def over_another(sides: Sequence[Side]) -> Iterator[OverAnother]:
    """For each side whose default has no baseline, its efficiency over another side's smaller world size.

    Refused by name where the two ran on other hardware, with other variables or versions: what a machine
    brings is no scaling.
    """
    for side in sides:
        headline, found = side.results.headline, side.results.headline_scaling
        if headline is None or found is None or headline.config.world_size == 1 or found.efficiency:
            continue
        for base in sides:
            one = _base_of(headline, base) if base is not side else None
            if one is None:
                continue
            size, base_size = headline.config.world_size, one.config.world_size
            refused = "; ".join(machine_differences(base.environment, side.environment))
            efficiency = None
            if not refused:
                over, under = found, base.results.scaling(one)
                # rates hold for both: the same work in a step of strong scaling, n times as much of weak
                ratio = ratio_of_runs(over.throughput_samples_per_s, under.throughput_samples_per_s)
                efficiency = ratio.scaled(base_size / size)
            label = side.results.headline_label
            yield OverAnother(side.name, base.name, label, size, base_size, efficiency, refused)


def _base_of(headline: TrialRecord, base: Side) -> TrialRecord | None:
    """The trial of the same question on fewer devices than the headline's, the fewest first."""
    alike = (
        record
        for record in base.results.references
        if record.config.world_size < headline.config.world_size
        and _same_but_for_place(record.config, headline.config)
    )
    return min(alike, key=lambda record: record.config.world_size, default=None)


def _same_but_for_place(one: Configuration, other: Configuration) -> bool:
    """Whether the two ask the same, wherever the data lie and whatever the devices are."""
    place: dict[str, object] = {"data": None, "device": "cpu", "environment": {}}
    return one.model_copy(update=place).same_question(other.model_copy(update=place))


def _beside(first: Side, other: Side) -> FurtherSide:
    common = tuple(same_trials(first, other))
    other_workload = first.results.study.workload != other.results.study.workload
    return FurtherSide(
        side=other,
        same_trials=common,
        headline=headline_in_common(first, common),
        change=between(first.results, other.results) if other_workload else None,
        under_load=_under_load(first, other) or _under_load(other, first),
    )


def _under_load(one: Side, other: Side) -> tuple[Side, Side] | None:
    if one.load is None or not one.load.is_much_more_than(other.load):
        return None
    return one, other


def differences(sides: Sequence[Side]) -> list[Difference]:
    """What is not the same on all sides: the studies' fields, then what changes timing of the machines."""
    studies = [dict(flat(side.results.study.model_dump(mode="json"))) for side in sides]
    for study in studies:
        for name in NAMES_ONLY:
            study.pop(name, None)
    return [*_differing(studies), *_differing([comparable(side.environment) for side in sides])]


def work_of(config: Configuration) -> Hashable:
    """Equal for what does the same on the same devices, wherever the data lie."""
    return config.key(ignore=("data", *config.ANY_WORKERS))


def same_trials(first: Side, other: Side) -> list[SameTrial]:
    """The trials of one workload, setting and world size that both measured; the first's headline leads.

    Each ratio is of two runs: its interval holds the noise within them and what runs of one program differ by
    (``ratio_of_runs``), not what else changes from day to day.
    """
    of_other = {work_of(each.config): each for each in one_of_each(other.results.references, work_of)}
    in_both = [
        _in_both(first, record, other, rival)
        for record in one_of_each(first.results.references, work_of)
        if (rival := of_other.get(work_of(record.config)))
    ]
    headline = first.results.headline
    return sorted(
        in_both, key=lambda each: headline is None or work_of(each.record.config) != work_of(headline.config)
    )


def _in_both(first: Side, mine: TrialRecord, other: Side, rival: TrialRecord) -> SameTrial:
    before, now = first.results.scaling(mine), other.results.scaling(rival)
    efficiency = None
    if mine.config.world_size > 1:
        efficiency = efficiency_ratio((other.results, rival), (first.results, mine))
    speed = ratio_of_runs(now.throughput_samples_per_s, before.throughput_samples_per_s)
    starts = (before.step_time_s.starts, now.step_time_s.starts)
    return SameTrial(
        first.results.label(mine), mine, speed, efficiency, starts, (load_of(mine), load_of(rival))
    )


def headline_in_common(first: Side, common: Sequence[SameTrial]) -> SameTrial | None:
    """The first side's default at its target world size, if it is in ``same_trials``, which it leads."""
    headline = first.results.headline
    if not common or headline is None or work_of(common[0].record.config) != work_of(headline.config):
        return None
    return common[0]


def _differing(sides: Sequence[dict[str, object]]) -> list[Difference]:
    names = dict.fromkeys(name for side in sides for name in side)
    values = {name: tuple(side.get(name) for side in sides) for name in names}
    return [Difference(name, each) for name, each in values.items() if any(v != each[0] for v in each)]
