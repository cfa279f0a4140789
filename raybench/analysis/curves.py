"""Scaling and batch curves, and where a batch curve passes a speed-up of 1."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raybench.analysis.choice import is_default
from raybench.analysis.labels import label
from raybench.analysis.reference import of_first_role, without_batch
from raybench.analysis.scaling import Scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.study import Study

FURTHEST = 4.0  # times: of measured neighbours that are further apart no point between is told


@dataclass(frozen=True)
class Crossover:
    """Where the speed-up passes 1, interpolated between two measured batches."""

    batch: float
    below: int  # the measured neighbours
    above: int
    is_only: bool  # no other two neighbours lie on both sides of 1, whichever way
    is_slower: bool  # at a batch below, with the whole interval

    @property
    def is_wide(self) -> bool:
        """Whether the neighbours are too far apart to name a batch between them."""
        return self.above > FURTHEST * self.below


def crossover(points: Sequence[tuple[int, Estimate]]) -> Crossover | None:
    """The last passage of the speed-up from below 1 to 1, over the batch.

    ``points`` has the batch and the speed-up there, in any order. Between neighbours log(speed-up) is a
    straight line over log(batch). None where no two neighbours lie on both sides of 1.
    """
    ordered = sorted(points, key=lambda point: point[0])
    neighbours = list(itertools.pairwise(ordered))
    passages = [pair for pair in neighbours if (pair[0][1].value < 1) != (pair[1][1].value < 1)]
    upwards = [pair for pair in passages if pair[0][1].value < 1]
    if not upwards:
        return None
    (below, lower), (above, upper) = upwards[-1]
    share = -math.log(lower.value) / math.log(upper.value / lower.value)
    is_slower = any(speedup.high < 1 for batch, speedup in ordered if batch <= below)
    return Crossover(below * (above / below) ** share, below, above, len(passages) == 1, is_slower)


Curve = tuple[TrialRecord, ...]  # one setting over the world sizes, the smallest first


class BatchPoint(NamedTuple):
    """One batch of a batch curve."""

    batch_size: int
    speedup: Estimate


@dataclass(frozen=True)
class BatchCurve:
    """Speed-up over the batch at one world size, the smallest batch first."""

    label: str
    points: tuple[BatchPoint, ...]
    crossover: Crossover | None
    is_headline: bool  # the headline's setting, but for the batch


def curves(study: Study, measured: Sequence[TrialRecord]) -> list[Curve]:
    """One curve for each setting, variables and kind of placement, the default's first.

    ``measured`` has one trial for each setting.
    """
    scaled = of_first_role(measured, "scaling", "search")
    groups: list[list[TrialRecord]] = []
    alike: dict[Hashable, list[list[TrialRecord]]] = {}  # groups by what they ask, and by that on one device
    for record in sorted(scaled, key=lambda each: -each.config.world_size):
        # A trial on one device belongs to every setting that is the same there.
        key = tuple(record.config.key(size, Configuration.ANY_SIZE) for size in (None, 1))
        rivals = alike.get(key[1] if record.config.world_size == 1 else key, ())
        joined = [group for group in rivals if _on_one_curve(group[0].config, record.config)]
        for group in joined:
            group.append(record)
        if not joined:
            groups.append([record])
            for each in (key, key[1]):
                alike.setdefault(each, []).append(groups[-1])
    found = [tuple(sorted(group, key=lambda record: record.config.world_size)) for group in groups]
    return sorted(found, key=lambda curve: not is_default(study, curve[-1].config))


def _on_one_curve(largest: Configuration, config: Configuration) -> bool:
    if not largest.same_question(config) or largest.world_size == config.world_size:
        return False
    return config.world_size == 1 or largest.placement == config.placement


def batch_curves(
    study: Study,
    measured: Sequence[TrialRecord],
    scalings: Mapping[str, Scaling],
    headline: TrialRecord | None,
) -> list[BatchCurve]:
    """Speed-up over the batch at the headline's world size, of each setting measured at two batches or more.

    Those that pass a speed-up of 1 come first, the nearest neighbours before all, else the headline's.
    """
    if headline is None or headline.config.world_size == 1:
        return []
    groups = dict[Hashable, tuple[Configuration, list[BatchPoint]]]()
    for record in measured:
        speedup, config = scalings[record.trial_id].speedup, record.config
        if config.world_size == headline.config.world_size and speedup is not None:
            _, points = groups.setdefault(config.key(ignore=("batch_size",)), (without_batch(config), []))
            points.append(BatchPoint(config.setting.batch_size, speedup))
    here, found = without_batch(headline.config), list[BatchCurve]()
    for config, points in groups.values():
        if len(points) > 1:
            ordered = tuple(sorted(points, key=lambda point: point.batch_size))
            words = label(study, config, ["batch_size"])
            found.append(BatchCurve(words, ordered, crossover(ordered), config == here))
    return sorted(found, key=_order)


def _order(curve: BatchCurve) -> tuple[float, bool]:
    passage = curve.crossover
    return passage.above / passage.below if passage else math.inf, not curve.is_headline
