"""Measurements of one setting at one world size that differ beyond their intervals.

A setting is measured in the search, on the curve, in a confirmation and beside what is confirmed or
verified; one device in a trial of its own and in the rounds of every trial on several, as the base of its
speed-up. What changes on the machine between two of them is in no interval. Each is held against the one that
speaks for the setting (``speaking``); the intervals hold for all of a study's comparisons at once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from raybench.analysis.estimates.efficiency import one_device
from raybench.analysis.estimates.rounds import level, series
from raybench.analysis.estimates.simultaneous import simultaneous_ratio
from raybench.analysis.estimates.statistics import Estimate, inverse
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.same_setting import between_starts, question_key
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration


@dataclass(frozen=True)
class Reading:
    """One measurement of a setting at a world size."""

    config: Configuration  # of the setting there
    record: TrialRecord  # in whose rounds it was measured
    rate: Estimate  # samples/s
    where: str  # "in the search"

    @property
    def load(self) -> tuple[float, int] | None:
        """Cores' worth of time that other processes took meanwhile, of how many; None: it is not told."""
        steps = self.record.steps
        if steps is None or not steps.host_cores:
            return None
        known = ([one for one in each.other_cores if one is not None] for each in steps.rounds)
        taken = [max(of_hosts) for of_hosts in known if of_hosts]
        return (median(taken), max(steps.host_cores)) if taken else None


@dataclass(frozen=True)
class Disagreement:
    """A setting whose measurements differ beyond the intervals."""

    speaks: Reading
    others: tuple[Reading, ...]  # that differ from it, the furthest first
    ratio: Estimate  # the furthest one's throughput over that which speaks
    agrees: Reading | None  # another one that does not differ; None: nothing bears the one that speaks out

    @property
    def config(self) -> Configuration:
        """The setting, where it was measured."""
        return self.speaks.config

    @property
    def is_settled(self) -> bool:
        """Whether another measurement bears the one that speaks out."""
        return self.agrees is not None

    @property
    def size(self) -> float:
        """How far apart the two furthest are: the logarithm of their ratio, without sign."""
        return abs(math.log(self.ratio.value))


def disagreements(base: MeasuredStudy) -> tuple[Disagreement, ...]:
    """Every setting with measurements apart, the furthest first; by ``search.minimum_gain`` at least."""
    groups: dict[Hashable, list[Reading]] = {}
    for reading in _readings(base):
        groups.setdefault(_key(base, reading.config), []).append(reading)
    several = [group for group in groups.values() if len(group) > 1]
    among = sum(len(group) - 1 for group in several)
    found = [each for group in several if (each := _of_group(base, group, among)) is not None]
    return tuple(sorted(found, key=lambda each: -each.size))


def _of_group(base: MeasuredStudy, group: Sequence[Reading], among: int) -> Disagreement | None:
    speaks = _that_speaks(base, group)
    least, apart = math.log1p(base.study.search.minimum_gain), list[tuple[Reading, Estimate]]()
    agrees: Reading | None = None
    for each in group:
        if each is speaks:
            continue
        ratio = simultaneous_ratio(each.rate, speaks.rate, among, between_starts(each.record, speaks.record))
        if ratio.excludes(1.0) and abs(math.log(ratio.value)) >= least:
            apart.append((each, ratio))
        elif each.record is not speaks.record and (agrees is None or _is_nearer(each, agrees, speaks)):
            agrees = each
    if not apart:
        return None
    apart.sort(key=lambda one: -abs(math.log(one[1].value)))
    return Disagreement(speaks, tuple(each for each, _ in apart), apart[0][1], agrees)


def _is_nearer(one: Reading, other: Reading, to: Reading) -> bool:
    return abs(math.log(one.rate.value / to.rate.value)) < abs(math.log(other.rate.value / to.rate.value))


def _that_speaks(base: MeasuredStudy, group: Sequence[Reading]) -> Reading:
    """The one whose figure the report has: of one device as its curve has it."""
    config = group[0].config
    if config.world_size > 1:
        speaker = base.speaker_of(config)
        found = (each for each in group if each.record is speaker and each.config is each.record.config)
        return next(found, group[0])
    own = [each.record for each in group if each.record.config.world_size == 1]
    told = {base.told[each.trial_id].throughput_samples_per_s for each in own if each.trial_id in base.told}
    on_curve = [each for each in group if each.rate in told]
    return max(
        on_curve or group,
        key=lambda each: (each.record.request.role == "scaling", each.record.config.world_size),
    )


def _readings(base: MeasuredStudy) -> Iterator[Reading]:
    """Every measurement of a setting; of a trial in several starts over all of them."""
    several = {record.config.world_size for record in base.measured} - {1}
    for record in base.measured:
        found, config = base.scalings[record.trial_id], record.config
        yield Reading(config, record, found.throughput_samples_per_s, _where(record))
        yield from _beside(record)
        one = one_device(record, found)
        if one is not None and one.baseline is not None and one.baseline.paired:
            alone = config.model_copy(
                update={"setting": config.setting.at(1), "world_size": 1, "placement": "pack"}
            )
            setting = "" if len(several) == 1 else f", {_where(record)}"
            where = f"in the rounds on {config.world_size} devices{setting}"
            yield Reading(alone, record, one.throughput_samples_per_s, where)
    for trial_id, found in base.superseded.items():
        record = next(each for each in base.records if each.trial_id == trial_id)
        yield Reading(record.config, record, found.throughput_samples_per_s, f"{_where(record)} before")


def _beside(record: TrialRecord) -> Iterator[Reading]:
    """The setting against which one was confirmed, or verified."""
    request, steps = record.request, record.steps
    if request.kind != "steps" or request.versus is None or steps is None:
        return
    times_s = series(steps, "versus")
    if times_s is None or steps.versus_samples_per_step is None:
        return
    other = record.config.model_copy(update={"setting": request.versus})
    rate = inverse(level(times_s)).scaled(steps.versus_samples_per_step)
    yield Reading(other, record, rate, f"beside the other setting {_where(record)}")


def _where(record: TrialRecord) -> str:
    if record.config.world_size == 1 and record.request.role == "scaling":
        return "in a trial of its own"
    return {
        "search": "in the search",
        "scaling": "on the curve",
        "confirmation": "in the confirmation",
        "verification": "in a verification",
    }[record.request.role]


def _key(base: MeasuredStudy, config: Configuration) -> Hashable:
    """Equal for what is one setting there; of one device wherever it stands."""
    if config.world_size == 1:
        return question_key(config, 1), isinstance(config.placement, str) or config.placement
    return base.buckets.key(config)
