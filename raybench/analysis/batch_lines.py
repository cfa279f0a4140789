"""Throughput and speed-up over the devices for every batch, and what further devices bring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raybench.analysis.labels import label_without_batch
from raybench.analysis.reference import one_of_each
from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import one_device
from raybench.analysis.stats.statistics import Estimate, simultaneous, sum_of
from raybench.analysis.waterfall import serial_fraction
from raybench.records.record import TrialRecord


@dataclass(frozen=True)
class DevicesPoint:
    """One number of devices."""

    world_size: int
    throughput_samples_per_s: Estimate
    speedup: Estimate  # over one device
    serial_fraction: Estimate | None  # Amdahl's f; None on one device, and under weak scaling


@dataclass(frozen=True)
class BatchLine:
    """One batch over the world sizes, one device first."""

    batch_size: int  # as the study says it: per device in weak scaling, global in strong
    label: str  # of the other knobs
    points: tuple[DevicesPoint, ...]


def batch_lines(results: Facts) -> tuple[BatchLine, ...]:
    """For every batch the headline's setting where it was measured, else the most efficient one there.

    The intervals of one that was chosen hold for all among which it was. The smallest batch first. One
    device is the base of the same rounds at the largest world size, so a batch that was measured at one
    world size has a line. Oversubscribed trials are left out.
    """
    if results.headline is None:
        return ()
    here = label_without_batch(results.study, results.headline.config)
    by_batch: dict[int, list[TrialRecord]] = {}
    for record in results.references:
        if record.config.world_size > 1 and not record.config.oversubscribed:
            by_batch.setdefault(record.config.setting.batch_size, []).append(record)
    lines = []
    for batch, records in sorted(by_batch.items()):
        largest = max(record.config.world_size for record in records)
        at_end = [record for record in records if record.config.world_size == largest]
        preferences = [_preference(results, record, here) for record in at_end]
        best = max(preferences)
        chosen = at_end[preferences.index(best)]
        among = sum(each[:2] == best[:2] for each in preferences)
        line = _line(results, batch, chosen, records, among)
        if line is not None:
            lines.append(line)
    return tuple(lines)


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


def _preference(results: Facts, record: TrialRecord, here: str) -> tuple[bool, bool, float]:
    efficiency = results.scaling(record).efficiency
    is_headline = label_without_batch(results.study, record.config) == here
    return is_headline, record.request.role == "scaling", efficiency.value if efficiency else 0.0


def _line(
    results: Facts, batch: int, chosen: TrialRecord, records: Sequence[TrialRecord], among: int
) -> BatchLine | None:
    def is_on_line(record: TrialRecord) -> bool:
        over = results.scaling(record).baseline  # what its speed-up is over
        return over is not None and over.world_size == 1 and not record.config.differences(chosen.config)

    on_line = one_of_each(filter(is_on_line, records), lambda config: config.world_size)
    if not on_line:
        return None
    on_line.sort(key=lambda record: record.config.world_size)
    several = [_several(results, record, among) for record in on_line]
    points = (_one_device(results, on_line[-1], among), *several)
    return BatchLine(batch, label_without_batch(results.study, chosen.config), points)


def _one_device(results: Facts, record: TrialRecord, among: int) -> DevicesPoint:
    """The base of the record's rounds."""
    one = one_device(record, results.scaling(record))
    assert one is not None  # it is on the line
    assert one.speedup is not None
    return DevicesPoint(1, simultaneous(one.throughput_samples_per_s, among), one.speedup, None)


def _several(results: Facts, record: TrialRecord, among: int) -> DevicesPoint:
    scaling, size = results.scaling(record), record.config.world_size
    assert scaling.speedup is not None  # it has a baseline
    speedup = simultaneous(scaling.speedup, among)
    rate = simultaneous(scaling.throughput_samples_per_s, among)
    fraction = serial_fraction(speedup, size) if record.config.scaling == "strong" else None
    return DevicesPoint(size, rate, speedup, fraction)
