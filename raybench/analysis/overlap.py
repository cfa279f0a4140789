"""Communication that compute hides: by the batch, in a profiled step; and the buckets that it travels in."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from raybench.analysis.curves import FURTHEST
from raybench.analysis.labels import label_without_batch
from raybench.analysis.reference import Sizes, one_of_each
from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import one_device
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.units import one_device as one_device_unit
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.records.results import TracedRank

MOST_SHOWN = 8  # settings: a search of many suggestions leaves thousands
HIDDEN = 0.05  # of the step: less exposed communication counts as hidden

Measure = Literal["communication", "T_comm"]  # transfers that nothing hides; all that devices add


@dataclass(frozen=True)
class OverlapPoint:
    """One batch: its compute in a step, alone on one device, and what communication adds."""

    batch_size: int
    compute_s: Estimate
    fraction: Estimate  # of the step: exposed communication, or T_comm where that was not measured
    trial_id: str


@dataclass(frozen=True)
class BatchOverlap:
    """Where the fraction falls to ``HIDDEN``, over the compute in a step."""

    world_size: int
    label: str
    measure: Measure
    points: tuple[OverlapPoint, ...]  # the least compute first
    compute_s: float | None  # interpolated; None: not between two measured batches
    low_s: float | None  # where the lower ends of the intervals fall to it; None: below what was measured
    high_s: float | None  # where the upper ends do; None: above it
    below: OverlapPoint | None  # the measured neighbours
    above: OverlapPoint | None

    @property
    def is_wide(self) -> bool:
        """Whether the neighbours are too far apart to name the compute between them."""
        if self.below is None or self.above is None:
            return False
        return self.above.batch_size > FURTHEST * self.below.batch_size

    @property
    def is_hidden_everywhere(self) -> bool:
        """Whether communication was hidden at every batch measured."""
        return all(point.fraction.value <= HIDDEN for point in self.points)


@dataclass(frozen=True)
class BatchOverlaps:
    """Of the settings that were measured at several batches, those that are shown."""

    shown: tuple[BatchOverlap, ...] = ()  # the headline's first, then those of the most batches
    num_others: int = 0  # not shown, as there are so many


def batch_overlaps(results: Facts) -> BatchOverlaps:
    """For settings measured at several batches on the headline's devices, ``MOST_SHOWN`` at most."""
    headline = results.headline
    if headline is None or headline.config.world_size == 1:
        return BatchOverlaps()
    size = headline.config.world_size
    groups: dict[Hashable, list[TrialRecord]] = {}
    for record in results.references:
        if record.config.world_size == size:
            groups.setdefault(_but_for_batch(record.config), []).append(record)
    first = groups.pop(_but_for_batch(headline.config), [])
    others = sorted((each for each in groups.values() if len(each) > 1), key=len, reverse=True)
    listed = [first, *others] if len(first) > 1 else others
    shown, looked_at = list[BatchOverlap](), 0
    for group in listed:
        if len(shown) == MOST_SHOWN:
            break
        looked_at += 1
        if found := _of_group(results, group):
            shown.append(found)
    return BatchOverlaps(tuple(shown), len(listed) - looked_at)


def passage(points: Sequence[tuple[float, float]]) -> tuple[float, int] | None:
    """Where a fraction falls to ``HIDDEN`` for good, and the index of the point before it.

    ``points`` has compute in s and the fraction there, the least compute first. Between neighbours the
    fraction is a straight line over log(compute). None where no two neighbours lie on both sides.
    """
    for index in range(len(points) - 2, -1, -1):
        (compute_s, fraction), (next_s, next_fraction) = points[index], points[index + 1]
        if fraction > HIDDEN >= next_fraction:
            share = (fraction - HIDDEN) / (fraction - next_fraction)
            return math.exp(math.log(compute_s) + share * math.log(next_s / compute_s)), index
    return None


def _but_for_batch(config: Configuration) -> Hashable:
    return config.key(ignore=("batch_size", "world_size", *config.ANY_WORKERS))


def _of_group(results: Facts, group: Sequence[TrialRecord]) -> BatchOverlap | None:
    measure: Measure = "communication"
    points = _points(results, group, measure)
    if len(points) < 2:  # a search measures only what the whole loss needs
        measure = "T_comm"
        points = _points(results, group, measure)
    if len(points) < 2:
        return None

    def crossing(end: str) -> tuple[float, int] | None:
        return passage([(point.compute_s.value, getattr(point.fraction, end)) for point in points])

    found, low, high = crossing("value"), crossing("low"), crossing("high")
    return BatchOverlap(
        world_size=group[0].config.world_size,
        label=label_without_batch(results.study, group[0].config),
        measure=measure,
        points=tuple(points),
        compute_s=found[0] if found else None,
        low_s=low[0] if found and low else None,
        high_s=high[0] if found and high else None,
        below=points[found[1]] if found else None,
        above=points[found[1] + 1] if found else None,
    )


def _points(results: Facts, group: Sequence[TrialRecord], measure: Measure) -> list[OverlapPoint]:
    """One for each batch; a trial with all variants comes before one of the search."""
    points = {record.trial_id: _point(results, record, measure) for record in group}
    known = [record for record in group if points[record.trial_id]]
    chosen = one_of_each(known, lambda config: config.batch_size)
    found = [point for record in chosen if (point := points[record.trial_id])]
    return sorted(found, key=lambda point: point.compute_s.value)


def _point(results: Facts, record: TrialRecord, measure: Measure) -> OverlapPoint | None:
    waterfall = results.waterfalls[record.trial_id]
    if waterfall is None:
        return None
    exposed = measure == "communication"
    fraction = waterfall.communication_fraction if exposed else waterfall.t_comm_fraction
    if fraction is None:
        return None
    one = one_device(record, results.scaling(record)) if record.config.scaling == "weak" else None
    if one is not None:  # the step that its speed-up is over
        return OverlapPoint(record.config.batch_size, one.step_time_s, fraction, record.trial_id)
    alone = one_device_unit(record.config, record.config.batch_size)
    if not results.pool.has(alone):
        return None
    return OverlapPoint(record.config.batch_size, results.pool.time(alone), fraction, record.trial_id)


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


def profiled(results: Facts) -> tuple[Profiled, ...]:
    """Every complete trial of which a profile was asked; one that was measured again keeps its own."""
    asked = (record for record in results.records if record.steps is not None and _was_asked(record))
    return tuple(_profiled(results, record) for record in asked)


def _was_asked(record: TrialRecord) -> bool:
    request = record.request
    return request.kind == "steps" and (request.measure.profile or request.measure.memory_snapshot)


def _profiled(results: Facts, record: TrialRecord) -> Profiled:
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


def _waterfall(results: Facts, record: TrialRecord) -> Waterfall | None:
    """Of the trial; where it has no parts (a verification) or was replaced, its setting's on the curve."""
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


@dataclass(frozen=True)
class Buckets:
    """What one bucket size comes to."""

    cap: BucketCap  # in MiB, or "default"
    sizes: Sizes  # in bytes, in the order in which they are sent
    is_measured: bool  # DDP itself has told them, else its rule
    same_as: BucketCap | None  # the study's first size with the same buckets; None: this one is the first


@dataclass(frozen=True)
class ModelBuckets:
    """The gradients of one rank in the headline's setting."""

    num_parameters: int | None  # numbers that are trained; None: an older record
    num_tensors: int | None  # that they are in; None: not told
    gradient_bytes: int
    rows: tuple[Buckets, ...]  # the headline's bucket size first, the study's others in their order

    @property
    def doubles(self) -> tuple[Buckets, ...]:
        """The bucket sizes that are the same thing as one before them."""
        return tuple(row for row in self.rows if row.same_as is not None)


def model_buckets(results: Facts) -> ModelBuckets | None:
    """None where the headline has no buckets, or no trial tells them."""
    headline = results.headline
    if headline is None:
        return None
    setting, size = headline.config.setting, headline.config.world_size
    caps: list[BucketCap] = [setting.bucket_cap_mb, *results.study.knobs.values("bucket_cap_mb")]
    rows = list[Buckets]()
    for cap in dict.fromkeys(caps):
        asked = setting.model_copy(update={"bucket_cap_mb": cap})
        sizes = results.buckets.sizes(asked, size)
        if sizes is not None:
            first = next((row.cap for row in rows if row.sizes == sizes), None)
            rows.append(Buckets(cap, sizes, results.buckets.is_measured(asked), first))
    if not rows:
        return None
    every = [record.steps for record in results.measured if record.steps is not None]
    timelines = [each.gradient_timeline for each in every if each.gradient_timeline is not None]
    elements = (sum(each.parameter_bytes) // each.element_bytes for each in timelines if each.element_bytes)
    told = (each.num_parameters for each in every if each.num_parameters is not None)
    return ModelBuckets(
        num_parameters=next(told, None) or next(elements, None),
        num_tensors=len(timelines[0].parameter_bytes) if timelines else None,
        gradient_bytes=sum(rows[0].sizes),
        rows=tuple(rows),
    )
