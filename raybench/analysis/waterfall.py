"""Where the time of a step goes: from the ideal step to the measured one, in parts that add up.

Every level is a unit of the pool, and a part is the difference of two neighbouring ones. As shares of the
real step they are contrasts, in which drift and what a trial adds to all of its units cancel; with T that
step's time they are seconds, and add up to T exactly. Negative parts stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from raybench.analysis.laws import serial_fraction
from raybench.analysis.reference import KnownBuckets
from raybench.analysis.stats.pool import Pool, Unit
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.units import baseline_unit, level_unit, one_device, step_unit
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, Variant
from raybench.records.results import Beside


@dataclass(frozen=True)
class Parts:
    """The parts of a step, in s, from ideal to measured; None where one does not apply or is unknown."""

    ideal: Estimate | None = None  # one device alone; strong scaling: at the global batch, over n
    small_batch: Estimate | None = None  # strong scaling: what the smaller batch costs
    contention: Estimate | None = None  # all devices at once, no communication
    wrapper: Estimate | None = None  # DDP's bucket copies and hooks
    skew: Estimate | None = None  # the slowest rank over the mean rank, step by step
    exposed_communication: Estimate | None = None  # transfers that nothing hides
    undivided: Estimate | None = None  # lost, but the trial did not measure to what

    def present(self) -> dict[str, Estimate]:
        """The parts that there are, in order."""
        every = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: part for name, part in every.items() if part is not None}


@dataclass(frozen=True)
class LoggerCheck:
    """What DDP's own logger reports. It samples few steps and measures a span."""

    communication_s: float
    overlap_s: float
    exposed_s: float  # communication less its overlap


@dataclass(frozen=True)
class Waterfall:
    """A step taken apart, and the field's simpler words for the same."""

    world_size: int
    step_time_s: Estimate
    parts: Parts
    notes: tuple[str, ...] = ()
    replay_s: Estimate | None = None  # the all-reduces alone, with no compute beside them
    hidden_communication_s: Estimate | None = None  # replay - exposed; negative: interference adds
    bus_bandwidth_bytes_per_s: Estimate | None = None
    t_comm_s: Estimate | None = None  # T(n) - T(1)
    t_comm_fraction: Estimate | None = None  # of T(n)
    communication_fraction: Estimate | None = None  # exposed communication over T(n)
    serial_fraction: Estimate | None = None  # Amdahl's f
    compute_to_communication: Estimate | None = None  # all devices' compute over the replay
    ddp_logger: LoggerCheck | None = None


@dataclass(frozen=True)
class _Level:
    part: str  # what ends at this level
    unit: Unit
    over: int = 1  # its time is divided by


def waterfall(pool: Pool, record: TrialRecord, buckets: KnownBuckets) -> Waterfall | None:
    """The waterfall of the setting of a complete record, which has its buckets, logger and what is missing.

    None without a step of one device to start from.
    """
    config, step = record.config, step_unit(record.config, buckets)
    size, step_s = config.world_size, pool.time(step)
    if size == 1:
        return Waterfall(world_size=1, step_time_s=step_s, parts=Parts(ideal=step_s))
    levels, has = _levels(pool, config, buckets)
    if len(levels) < 2:
        return None
    shares = _Shares(pool, step, step_s)
    parts = {levels[0].part: shares.of(levels[0])}
    for below, above in itertools.pairwise(levels):
        parts[above.part] = shares.of(above, below)
    exposed, below, lowest = parts.get("exposed_communication"), levels[-2], levels[0]
    replay, concurrent = (level_unit(config, buckets, name) for name in ("replay", "concurrent"))
    has_replay, t_comm = pool.has(replay), shares.of(levels[-1], lowest)
    hidden = shares.hidden(replay, levels[-1], below) if has_replay and exposed is not None else None
    bandwidth = _bus_bandwidth(record, pool.time(replay)) if has_replay else None
    return Waterfall(
        world_size=size,
        step_time_s=step_s,
        parts=Parts(**parts),
        notes=_notes(record, has),
        replay_s=shares.of(_Level("replay", replay)) if has_replay else None,
        hidden_communication_s=hidden,
        bus_bandwidth_bytes_per_s=bandwidth,
        t_comm_s=t_comm,
        t_comm_fraction=t_comm.scaled(1 / step_s.value),
        communication_fraction=exposed and exposed.scaled(1 / step_s.value),
        serial_fraction=_serial_fraction(pool, config, step),
        compute_to_communication=(
            pool.contrast({concurrent: 1.0, replay: -1.0}).ratio() if pool.has(replay, concurrent) else None
        ),
        ddp_logger=_logger_check(record),
    )


def _serial_fraction(pool: Pool, config: Configuration, step: Unit) -> Estimate | None:
    """Under strong scaling: in weak scaling nothing is serial."""
    base = baseline_unit(config)
    if config.scaling == "weak" or not pool.has(base):
        return None
    return serial_fraction(pool.contrast({base: 1.0, step: -1.0}).ratio(), config.world_size)


class _Shares:
    """Levels and their differences, as shares of the real step and in s."""

    def __init__(self, pool: Pool, step: Unit, step_s: Estimate) -> None:
        self._pool, self._step, self._step_s = pool, step, step_s

    def _share(self, level: _Level) -> float:
        return math.exp(self._pool.log(level.unit) - self._pool.log(self._step)) / level.over

    def of(self, above: _Level, below: _Level | None = None) -> Estimate:
        """A level, or its difference to the one below, in s, to first order."""
        return self._sum({above: 1} if below is None else {above: 1, below: -1})

    def hidden(self, replay: Unit, step: _Level, below: _Level) -> Estimate:
        """The all-reduces alone, less what of them is exposed, in s."""
        return self._sum({_Level("replay", replay): 1, step: -1, below: 1})

    def _sum(self, signs: Mapping[_Level, int]) -> Estimate:
        shares = {level: sign * self._share(level) for level, sign in signs.items()}
        weights = dict[Unit, float]()
        for level, share in shares.items():
            weights[level.unit] = weights.get(level.unit, 0.0) + share
            weights[self._step] = weights.get(self._step, 0.0) - share
        return self._pool.contrast(weights).sum(sum(shares.values()), self._step_s.value)


def _levels(
    pool: Pool, config: Configuration, buckets: KnownBuckets
) -> tuple[list[_Level], Collection[Variant]]:
    """The levels that were measured, lowest first, and of which variants there are any."""
    levels, has = list[_Level](), set[Variant]()

    def add(part: str, variant: Variant, unit: Unit, over: int = 1) -> bool:
        if pool.has(unit):
            levels.append(_Level(part, unit, over))
            has.add(variant)
        return pool.has(unit)

    is_strong = config.scaling == "strong"
    has_base = is_strong and add("ideal", "base", baseline_unit(config), config.world_size)
    alone = one_device(config, config.micro_batch(config.setting))
    has_plain = add("small_batch" if has_base else "ideal", "plain", alone)
    if not has_plain and not has_base:
        return [], has
    concurrent, local, slowest = (
        level_unit(config, buckets, name) for name in ("concurrent", "local", "local slowest")
    )
    has_concurrent = add("contention" if has_plain else "undivided", "concurrent", concurrent)
    if add("wrapper" if has_concurrent else "undivided", "local", local):
        add("skew", "local", slowest)
    divided = has_concurrent or "local" in has
    levels.append(_Level("exposed_communication" if divided else "undivided", step_unit(config, buckets)))
    return levels, has


def _notes(record: TrialRecord, has: Collection[Variant]) -> tuple[str, ...]:
    """What to say of the levels that were not measured."""
    reason, strategy = record.steps.missing if record.steps else {}, record.config.setting.strategy
    notes = []
    if record.config.scaling == "strong" and "base" not in has:
        notes.append(f"no step at the global batch on one device{_why(reason, 'base')}: no small batch part")
    if strategy in ("dp", "fsdp"):
        notes.append(f"{strategy} has no DDP wrapper and no buckets: what is lost is not taken apart")
    elif "concurrent" not in has and "local" not in has:
        notes.append("only the whole loss was measured, not its parts")
    elif "concurrent" not in has:
        notes.append(
            f"all devices at once without wrapper were not measured{_why(reason, 'concurrent')}: contention "
            "and wrapper are not told apart"
        )
    elif "local" not in has:
        notes.append(
            f"steps without all-reduces were not measured{_why(reason, 'local')}: wrapper and skew are "
            "within exposed communication"
        )
    return tuple(notes)


def _why(missing: Mapping[Variant | Beside, str], variant: Variant) -> str:
    return f" ({missing[variant]})" if variant in missing else ""


def _bus_bandwidth(record: TrialRecord, replay_s: Estimate) -> Estimate | None:
    """Bytes that each link carries in a ring all-reduce, 2(n-1)/n of the gradients, over the replay.

    The factor is that of nccl-tests, doc/PERFORMANCE.md.
    """
    sent, n = record.steps.gradient_bytes if record.steps else None, record.config.world_size
    return inverse(replay_s).scaled(sent * 2 * (n - 1) / n) if sent else None


def _logger_check(record: TrialRecord) -> LoggerCheck | None:
    times = (record.steps.ddp_logger if record.steps else None) or {}
    communication_s, overlap_s = times.get("avg_backward_comm_s"), times.get("avg_overlap_s")
    if communication_s is None or overlap_s is None:
        return None
    return LoggerCheck(communication_s, overlap_s, communication_s - overlap_s)
