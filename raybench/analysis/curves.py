"""Scaling curves, and the speed-up over the batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from raybench.analysis.choice import is_default
from raybench.analysis.reference import of_first_role
from raybench.analysis.scaling import Scaling
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.study import Study

Curve = tuple[TrialRecord, ...]  # one setting over the world sizes, the smallest first


class BatchPoint(NamedTuple):
    """One batch of a batch curve."""

    batch_size: int
    speedup: Estimate


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


def batch_curve(
    measured: Sequence[TrialRecord], scalings: Mapping[str, Scaling], headline: TrialRecord | None
) -> tuple[BatchPoint, ...]:
    """Speed-up of the headline's setting over the batch, on as many devices; the smallest batch first."""
    if headline is None or headline.config.world_size == 1:
        return ()
    key = headline.config.key(ignore=("batch_size",))
    points = [
        BatchPoint(record.config.setting.batch_size, speedup)
        for record in measured
        if record.config.key(ignore=("batch_size",)) == key
        and (speedup := scalings[record.trial_id].speedup) is not None
    ]
    return tuple(sorted(points, key=lambda point: point.batch_size))


def slower_at(points: Sequence[BatchPoint]) -> tuple[int, int | None] | None:
    """The largest batch at which the speed-up is certainly below 1, the smallest where it certainly is not.

    ``points``: the smallest batch first. None where there is no such batch, or where a smaller batch than a
    slower one is faster, so that none is the limit.
    """
    slower = [point for point in points if point.speedup.value < 1]
    faster = [point.batch_size for point in points if point.speedup.low >= 1]
    sure = [point.batch_size for point in slower if point.speedup.high < 1]
    if not sure or (faster and faster[0] < slower[-1].batch_size):
        return None
    return sure[-1], faster[0] if faster else None
