"""Other load on the cores, and measurements of one setting that disagree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.reference import between_starts
from raybench.analysis.stats.efficiency import one_device
from raybench.analysis.stats.rounds import level, series
from raybench.analysis.stats.statistics import Estimate, inverse, simultaneous_ratio
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import Round, StepsResult
from raybench.spec.placement import Placement

LOADED = 0.10  # of the cores of a host, by other processes


@dataclass(frozen=True)
class Load:
    """Of the host that is worst off."""

    taken: float  # cores' worth of time, the median of the rounds
    cores: int  # of the host
    needed: int  # of them by the trial

    @property
    def is_much(self) -> bool:
        """Whether a measurement is one of a loaded machine."""
        return self.taken >= LOADED * self.cores

    def is_much_more_than(self, other: Load | None) -> bool:
        """Whether others took more, by what counts as much, than in another trial."""
        return self.is_much and (other is None or self.taken - other.taken >= LOADED * self.cores)

    @property
    def spare(self) -> int:
        """Cores that the trial did not need."""
        return self.cores - self.needed

    @property
    def lost(self) -> float:
        """What others took beyond the cores to spare, as a share of all: at most so much of a step."""
        return max(0.0, self.taken - self.spare) / self.cores


def load_of(record: TrialRecord) -> Load | None:
    """Of the rounds of a trial; None: it is not told."""
    loads = loads_of(record)
    if not loads:
        return None
    fullest = min(loads, key=lambda each: each.spare)
    return replace(fullest, taken=median(each.taken for each in loads))


def loads_of(record: TrialRecord) -> list[Load]:
    """Of each round of a trial in which it was told."""
    steps = record.steps
    if steps is None or not steps.host_cores:
        return []
    return [told for each in steps.rounds if (told := _of_round(record, steps, each))]


def _of_round(record: TrialRecord, steps: StepsResult, round_: Round) -> Load | None:
    config, found = record.config, list[Load]()
    places = list(zip(steps.hosts, round_.other_cores, steps.host_cores, strict=False))
    each_needs = config.cpus_per_worker + config.setting.workers
    for host, taken, cores in set(places):  # ranks of one host tell the same
        ranks = sum(each[0] == host for each in places)
        if taken is not None:
            found.append(Load(taken, cores, min(ranks * each_needs, cores)))
    return max(found, key=lambda one: one.taken - one.spare, default=None)


def load_words(load: Load | None) -> str:
    """What other processes took of a host's cores."""
    if load is None:
        return "what else ran was not told"
    return f"other processes took {load.taken:.2f} of {load.cores} cores"


@dataclass(frozen=True)
class UnderLoad:
    """One of them."""

    record: TrialRecord  # whose figures stand for the setting
    load: Load
    least: Load  # of the trial at this world size that was disturbed least

    @property
    def share(self) -> float:
        """The share of its step that is due to what others took more, where the step takes all they leave."""
        left, least_left = 1 - self.load.lost, 1 - self.least.lost
        return max(0.0, 1 - left / least_left) if least_left > 0 else 0.0


def under_load(base: MeasuredStudy) -> tuple[UnderLoad, ...]:
    """At the target world size, those of whose step a tenth or more may be due to others; the worst first."""
    measured, loads = {record.trial_id: record for record in base.measured}, dict[str, Load]()
    for record in base.tried:
        if record.config.world_size == base.target_world_size:
            reported_by = base.reported_by.get(record.trial_id, record.trial_id)
            load = load_of(measured[reported_by])
            if load is not None:
                loads[reported_by] = load
    if not loads:
        return ()
    least = min(loads.values(), key=lambda each: each.lost)
    found = [UnderLoad(measured[trial_id], load, least) for trial_id, load in loads.items()]
    return tuple(sorted((each for each in found if each.share >= LOADED), key=lambda each: -each.share))


FAR_APART = 0.25  # relative: figures that a reader takes for two, however wide their intervals


@dataclass(frozen=True)
class Reading:
    """One measurement of a setting at a world size."""

    config: Configuration  # of the setting there
    record: TrialRecord  # in whose rounds it was measured
    rate: Estimate  # samples/s
    where: str  # "in the search"

    @property
    def load(self) -> Load | None:
        """What other processes took meanwhile; None: it is not told."""
        return load_of(self.record)


@dataclass(frozen=True)
class Disagreement:
    """A setting whose measurements differ, beyond the intervals or by much."""

    speaks: Reading
    others: tuple[Reading, ...]  # that differ from it, those for certain before others, the furthest first
    ratio: Estimate  # the first one's throughput over that which speaks
    agrees: Reading | None  # another one that does not differ; None: nothing bears the one that speaks out

    @property
    def config(self) -> Configuration:
        """The setting, where it was measured."""
        return self.speaks.config

    @property
    def is_certain(self) -> bool:
        """Whether they differ beyond the intervals; else these are too wide to tell."""
        return self.ratio.excludes(1.0)

    @property
    def is_settled(self) -> bool:
        """Whether the one that speaks may be believed: another bears it out, or all others are explained.

        Not where it is slow under load.
        """
        return (self.agrees is not None or self.others_under_load) and not self.under_load

    @property
    def others_under_load(self) -> bool:
        """Whether all that differs, for certain, is slower, and others took much more meanwhile."""
        here = self.speaks.load
        loads = [(each, each.load) for each in self.others]
        return (
            self.is_certain
            and here is not None
            and all(
                load is not None and load.is_much_more_than(here) and each.rate.value < self.speaks.rate.value
                for each, load in loads
            )
        )

    @property
    def under_load(self) -> bool:
        """Whether others took much of the cores while the one that speaks was measured, and it is the slower.

        One that agrees with it may have been measured under the same load.
        """
        load = self.speaks.load
        if load is None or not self.is_certain or self.ratio.value <= 1:
            return False
        return load.is_much

    @property
    def size(self) -> float:
        """How far apart the two furthest are: the logarithm of their ratio, without sign."""
        return abs(math.log(self.ratio.value))


def disagreements(base: MeasuredStudy) -> tuple[Disagreement, ...]:
    """Every setting with measurements apart, those for certain before others, the furthest first.

    For certain by ``search.minimum_gain`` at least, others by ``FAR_APART``.
    """
    groups = _groups(base)
    several = [group for group in groups.values() if len(group) > 1]
    among = sum(len(group) - 1 for group in several)
    found = [each for group in several if (each := _of_group(base, group, among)) is not None]
    return tuple(sorted(found, key=lambda each: (not each.is_certain, -each.size)))


def _of_group(base: MeasuredStudy, group: Sequence[Reading], among: int) -> Disagreement | None:
    speaks = _that_speaks(base, group)
    least, apart = math.log1p(base.study.search.minimum_gain), list[tuple[Reading, Estimate]]()
    agrees: Reading | None = None
    for each in group:
        if each is speaks:
            continue
        ratio = simultaneous_ratio(each.rate, speaks.rate, among, between_starts(each.record, speaks.record))
        size = abs(math.log(ratio.value))
        if size >= (least if ratio.excludes(1.0) else math.log1p(FAR_APART)):
            apart.append((each, ratio))
        elif each.record is not speaks.record and (agrees is None or _is_nearer(each, agrees, speaks)):
            agrees = each
    if not apart:
        return None
    apart.sort(key=lambda one: (not one[1].excludes(1.0), -abs(math.log(one[1].value))))
    furthest = apart[0][1]
    if agrees is not None and 2 * _distance(agrees, speaks) > abs(math.log(furthest.value)):
        agrees = None  # too unsure to bear anything out
    others = tuple(_told_apart(each, speaks) for each, _ in apart)
    return Disagreement(speaks, others, furthest, agrees and _told_apart(agrees, speaks))


def _told_apart(reading: Reading, speaks: Reading) -> Reading:
    """``reading`` with a word for where it was taken that is not that of the one that speaks."""
    if reading.where != speaks.where:
        return reading
    return replace(reading, where="in the rounds of another trial")


def _is_nearer(one: Reading, other: Reading, to: Reading) -> bool:
    return _distance(one, to) < _distance(other, to)


def _distance(one: Reading, other: Reading) -> float:
    return abs(math.log(one.rate.value / other.rate.value))


def _that_speaks(base: MeasuredStudy, group: Sequence[Reading]) -> Reading:
    """The one whose figure the report has: of one device as its curve has it."""
    config = group[0].config
    if config.world_size > 1:
        reference = base.reference_of(config)
        by = base.reported_by.get(reference.trial_id, reference.trial_id) if reference else ""
        found = (each for each in group if each.record.trial_id == by and each.config is each.record.config)
        return next(found, group[0])
    own = [each.record.trial_id for each in group if each.record.config.world_size == 1]
    speak = {base.reported_by.get(trial_id, trial_id) for trial_id in own if trial_id in base.reported}
    on_curve = [each for each in group if each.record.trial_id in speak]
    return max(
        on_curve or group,
        key=lambda each: (each.record.request.role == "scaling", each.record.config.world_size),
    )


def _groups(base: MeasuredStudy) -> dict[Hashable, list[Reading]]:
    """The measurements of each setting at a world size that may have several; of several starts one."""
    own = [(record, _key(base, record.config)) for record in base.measured]
    beside = [(each, _key(base, each.config)) for record in base.measured for each in _beside(record)]
    before = [record for record in base.records if record.trial_id in base.superseded]
    # of very many suggestions most were measured once
    several = Counter([*(key for _, key in own), *(key for _, key in beside)])
    several.update(_key(base, record.config) for record in before)
    groups: dict[Hashable, list[Reading]] = {}
    for record, key in own:
        if several[key] > 1 or record.config.world_size == 1:
            rate = base.own_scalings[record.trial_id].throughput_samples_per_s
            groups.setdefault(key, []).append(Reading(record.config, record, rate, _where(record)))
        if record.request.role == "scaling" and record.config.world_size > 1:
            key = _one_device_key(record.config, "pack")
            groups.setdefault(key, []).extend(_alone(base, record))
    for reading, key in beside:
        groups.setdefault(key, []).append(reading)
    for record in before:
        rate = base.superseded[record.trial_id].throughput_samples_per_s
        reading = Reading(record.config, record, rate, f"{_where(record)} before")
        groups.setdefault(_key(base, record.config), []).append(reading)
    return groups


def _alone(base: MeasuredStudy, record: TrialRecord) -> Iterator[Reading]:
    """One device in the rounds of a trial on several."""
    config, one = record.config, one_device(record, base.own_scalings[record.trial_id])
    if one is None or one.baseline is None or not one.baseline.paired:
        return
    where = f"in the rounds on {config.world_size} devices"
    changed = {"setting": config.setting.at(1), "world_size": 1, "placement": "pack"}
    yield Reading(config.model_copy(update=changed), record, one.throughput_samples_per_s, where)


def _beside(record: TrialRecord) -> Iterator[Reading]:
    """The setting against which one was confirmed, or verified."""
    request, steps = record.request, record.steps
    if request.kind != "steps" or request.anchor is None or steps is None:
        return
    times_s = series(steps, "anchor")
    if times_s is None or steps.anchor_samples_per_step is None:
        return
    other = record.config.model_copy(update={"setting": request.anchor})
    rate = inverse(level(times_s)).scaled(steps.anchor_samples_per_step)
    yield Reading(other, record, rate, f"beside the other setting {_where(record)}")


def _where(record: TrialRecord) -> str:
    if record.config.world_size == 1 and record.request.role == "scaling":
        return "in a trial of its own"
    return {
        "search": "in the search",
        "scaling": "on the curve",
        "verification": "in a verification",
    }[record.request.role]


def _key(base: MeasuredStudy, config: Configuration) -> Hashable:
    """Equal for what is one setting there."""
    if config.world_size == 1:
        return _one_device_key(config, config.placement)
    return base.buckets.key(config)


def _one_device_key(config: Configuration, placement: Placement) -> Hashable:
    """Of one device wherever it stands, unless it was named."""
    return config.key(1, config.ANY_SIZE), "" if isinstance(placement, str) else tuple(placement)
