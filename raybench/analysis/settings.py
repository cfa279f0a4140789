"""The settings that a report shows, each over its numbers of devices, and what further devices bring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import Scaling, one_device
from raybench.analysis.stats.statistics import Estimate, sum_of
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.requests import COMPARED_ROLES, Configuration

MOST_SETTINGS = 6


@dataclass(frozen=True)
class SettingPoint:
    """A setting on one number of devices."""

    config: Configuration
    scaling: Scaling
    record: TrialRecord  # its trial; of one device that only stood in the rounds of several, theirs

    @property
    def world_size(self) -> int:
        return self.config.world_size


@dataclass(frozen=True)
class ShownSetting:
    """One setting over its numbers of devices, the smallest first, and where a step on the most goes."""

    points: tuple[SettingPoint, ...]
    waterfall: Waterfall | None

    @property
    def last(self) -> SettingPoint:
        """On the most devices."""
        return self.points[-1]


def shown_settings(results: Facts, most: int = MOST_SETTINGS) -> tuple[ShownSetting, ...]:
    """The default, the curves, the fastest at each further batch, then the fastest: ``most`` at most.

    One device is a point where it was measured, in a trial of its own or in the rounds of several.
    """
    headline = results.headline
    if headline is None:
        return ()
    size = headline.config.world_size
    there = [
        record
        for record in results.references
        if record.config.world_size == size and record.request.role in COMPARED_ROLES
    ]
    on_curves = {point.trial_id for curve in results.curves for point in curve.points}
    fastest = sorted(
        there,
        key=lambda record: (
            record.trial_id != headline.trial_id,
            record.trial_id not in on_curves,
            -results.scaling(record).throughput_samples_per_s.value,
        ),
    )
    first_of_batch = {record.config.setting.batch_size: record.trial_id for record in reversed(fastest)}
    first = {*on_curves, *first_of_batch.values()}
    chosen = sorted(fastest, key=lambda record: record.trial_id not in first)[:most]
    return tuple(_shown(results, record) for record in chosen)


def _shown(results: Facts, record: TrialRecord) -> ShownSetting:
    config = record.config
    found = {
        other.config.world_size: SettingPoint(other.config, results.scaling(other), other)
        for other in results.references
        if other.config.same_question(config)
        and (other.config.world_size == 1 or other.config.placement == config.placement)
        and other.config.world_size != config.world_size
    }
    found[config.world_size] = SettingPoint(config, results.scaling(record), record)
    one = one_device(record, results.scaling(record))
    if one is not None and 1 not in found:
        found[1] = SettingPoint(config.model_copy(update={"world_size": 1}), one, record)
    points = tuple(point for _, point in sorted(found.items()))
    return ShownSetting(points, results.waterfalls[points[-1].record.trial_id])


def amdahl_speedup(serial_fraction: float, world_size: float) -> float:
    """Amdahl (1967), AFIPS 30: 1 / (f + (1 - f) / n)."""
    return 1 / (serial_fraction + (1 - serial_fraction) / world_size)


@dataclass(frozen=True)
class MarginalReturn:
    """What each device beyond ``fewer`` brings on ``more`` of them."""

    fewer: int
    more: int
    each: Estimate  # of one device's throughput: 1 is as much as the first device brings


def marginal_returns(speedups: Iterable[tuple[int, Estimate]]) -> tuple[MarginalReturn, ...]:
    """(S(n) - S(m)) / (n - m) of each doubling of the world size, from m to n.

    It is the throughput that is gained over that of n - m devices as good as one alone. From the fewest
    devices on the next world size is the smallest measured one of at least twice as many.
    ``speedups`` over one device, by world size; or over the fewest measured, whose own is exactly 1: then
    it is of a device among these. Every speed-up is a ratio within its own rounds, so the two are
    independent, and their half-widths add in squares.
    """
    known = dict(sorted(speedups))
    fewest = min(known, default=1)
    base = fewest if fewest in known and known[fewest].low == known[fewest].high == 1 else 1
    known.setdefault(base, Estimate(1.0, 1.0, 1.0, max((each.n for each in known.values()), default=1)))
    found, fewer = list[MarginalReturn](), min(known)
    for more in sorted(known):
        if more >= 2 * fewer:
            gained = sum_of(known[more], known[fewer].scaled(-1))
            found.append(MarginalReturn(fewer, more, gained.scaled(base / (more - fewer))))
            fewer = more
    return tuple(found)
