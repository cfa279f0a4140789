"""Where the time of a step goes: from the ideal step to the measured one, in parts that add up.

Every level is a unit of the pool, and a part is the difference of two neighbouring ones. As shares of the
real step they are contrasts, in which drift and what a trial adds to all of its units cancel; with T that
step's time they are seconds, and add up to T exactly. Negative parts stay.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial

from raybench.analysis.reference import KnownBuckets
from raybench.analysis.stats.pool import Pool, Unit
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.units import baseline_unit, level_unit, plain_unit, step_unit
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, Variant


@dataclass(frozen=True)
class Parts:
    """The parts of a step, in s, from ideal to measured; None where one does not apply or is unknown."""

    ideal: Estimate | None = None  # one device alone; strong scaling: at the global batch, over n
    small_batch: Estimate | None = None  # strong scaling: what the smaller batch costs
    contention: Estimate | None = None  # all devices at once, no communication
    # DDP's bucket copies and hooks; FSDP's, less what a device saves as it updates its shard alone
    wrapper: Estimate | None = None
    skew: Estimate | None = None  # the slowest rank over the mean rank, step by step
    exposed_communication: Estimate | None = None  # transfers that nothing hides
    undivided: Estimate | None = None  # lost, but the trial did not measure to what

    def present(self) -> dict[str, Estimate]:
        """The parts that there are, in order."""
        every = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: part for name, part in every.items() if part is not None}


@dataclass(frozen=True)
class Waterfall:
    """A step taken apart, and the field's simpler words for the same."""

    world_size: int
    step_time_s: Estimate
    parts: Parts
    missing: Mapping[Variant, str] = field(default_factory=dict)  # levels, and why they were not measured
    local_sends: bool = False  # ranks wait for one another without transfers too: skew is not divided
    # of all devices at once, with nothing sent; without one device's step as well the lowest level
    compute_s: Estimate | None = None
    replay_s: Estimate | None = None  # what is sent alone, with no compute beside it
    hidden_communication_s: Estimate | None = None  # replay - exposed; negative: interference adds
    bus_bandwidth_bytes_per_s: Estimate | None = None
    t_comm_s: Estimate | None = None  # T(n) - T(1); None without one device's step
    t_comm_fraction: Estimate | None = None  # of T(n)
    communication_fraction: Estimate | None = None  # exposed communication over T(n)
    compute_to_communication: Estimate | None = None  # compute over the replay


@dataclass(frozen=True)
class _Level:
    part: str  # what ends at this level
    unit: Unit
    over: float = 1.0  # its time is divided by


def waterfall(pool: Pool, record: TrialRecord, buckets: KnownBuckets, over: float) -> Waterfall | None:
    """The waterfall of the setting of a complete record, which has its buckets and what is missing.

    ``over``: samples of the one device's step over those of a device in this one. Without such a step it
    begins at what all devices compute; None where nothing but the whole step was measured.
    """
    config, step = record.config, step_unit(record.config, buckets)
    size, step_s = config.world_size, pool.time(step)
    if size == 1:
        return Waterfall(world_size=1, step_time_s=step_s, parts=Parts(ideal=step_s))
    local_sends = record.steps is not None and record.steps.local_collectives > 0
    levels = _levels(pool, config, buckets, over, local_sends=local_sends)
    if len(levels) < 2:
        return None
    seconds = partial(_seconds, pool, step, step_s)
    lowest, below, whole = levels[0], levels[-2], levels[-1]
    parts = {lowest.part: pool.time(lowest.unit).scaled(1 / lowest.over)}  # as the step of one device has it
    for under, above in itertools.pairwise(levels):
        parts[above.part] = seconds({above: 1, under: -1})
    exposed = parts.get("exposed_communication")
    t_comm = seconds({whole: 1, lowest: -1}) if "ideal" in parts else None
    replay, concurrent = (level_unit(config, buckets, name) for name in ("replay", "concurrent"))
    alone, together, has_replay = _Level("replay", replay), _Level("compute", concurrent), pool.has(replay)
    compute_s = parts.pop("compute", None) or (seconds({together: 1}) if pool.has(concurrent) else None)
    return Waterfall(
        world_size=size,
        step_time_s=step_s,
        parts=Parts(**parts),
        missing=_missing(pool, record, buckets),
        local_sends=local_sends,
        compute_s=compute_s,
        replay_s=seconds({alone: 1}) if has_replay else None,
        hidden_communication_s=seconds({alone: 1, whole: -1, below: 1}) if has_replay and exposed else None,
        bus_bandwidth_bytes_per_s=_bus_bandwidth(record, pool.time(replay)) if has_replay else None,
        t_comm_s=t_comm,
        t_comm_fraction=t_comm and t_comm.scaled(1 / step_s.value),
        communication_fraction=exposed and exposed.scaled(1 / step_s.value),
        compute_to_communication=(
            pool.contrast({concurrent: 1.0, replay: -1.0}).ratio() if pool.has(replay, concurrent) else None
        ),
    )


def _seconds(pool: Pool, step: Unit, step_s: Estimate, signs: Mapping[_Level, int]) -> Estimate:
    """A sum of levels, each with its sign, as a share of the real step, in s; to first order."""
    shares = {
        level: sign * math.exp(pool.log(level.unit) - pool.log(step)) / level.over
        for level, sign in signs.items()
    }
    weights = defaultdict[Unit, float](float)
    for level, share in shares.items():
        weights[level.unit] += share
        weights[step] -= share
    return pool.contrast(weights).sum(sum(shares.values()), step_s.value)


def _levels(
    pool: Pool, config: Configuration, buckets: KnownBuckets, over: float, *, local_sends: bool
) -> list[_Level]:
    """The levels that were measured, lowest first.

    ``local_sends``: where ranks wait for one another in steps of ``local`` too, skew is not seen.
    """
    levels = list[_Level]()

    def add(part: str, unit: Unit, over: float = 1.0) -> bool:
        if pool.has(unit):
            levels.append(_Level(part, unit, over))
        return pool.has(unit)

    is_strong = config.scaling == "strong"
    has_base = is_strong and add("ideal", baseline_unit(config), over)
    # without a base one device at its own batch is no ideal, as it should have that of all
    own = "small_batch" if has_base else "compute" if is_strong else "ideal"
    has_plain = add(own, plain_unit(config, config.micro_batch(config.setting)), 1.0 if is_strong else over)
    rest = "undivided" if levels else "compute"  # of the next level, where those between are missing
    concurrent, local, slowest = (
        level_unit(config, buckets, name) for name in ("concurrent", "local", "local slowest")
    )
    has_concurrent = add("contention" if has_plain else rest, concurrent)
    has_local = not local_sends and add("wrapper" if has_concurrent else rest, local)
    has_local = add("skew" if has_local else rest, slowest)
    divided = has_concurrent or has_local
    levels.append(_Level("exposed_communication" if divided else "undivided", step_unit(config, buckets)))
    return levels


def _missing(pool: Pool, record: TrialRecord, buckets: KnownBuckets) -> dict[Variant, str]:
    """The levels that were not measured, and why, where the trial has a reason."""
    reasons, config = record.steps.missing if record.steps else {}, record.config
    wanted: dict[Variant, Unit] = {"base" if config.scaling == "strong" else "plain": baseline_unit(config)}
    if config.setting.strategy != "dp":
        wanted |= {name: level_unit(config, buckets, name) for name in ("concurrent", "local")}
    return {variant: reasons.get(variant, "") for variant, unit in wanted.items() if not pool.has(unit)}


def _bus_bandwidth(record: TrialRecord, replay_s: Estimate) -> Estimate | None:
    """Bytes that each link carries over the replay: 2(n-1)/n of the gradients in a ring all-reduce, under
    FSDP (n-1)/n of what is gathered or scattered.

    The factors are those of nccl-tests, doc/PERFORMANCE.md.
    """
    steps, n = record.steps, record.config.world_size
    assert steps is not None
    sent = sum(steps.collective_bytes) or 2 * (steps.gradient_bytes or 0)
    return inverse(replay_s).scaled(sent * (n - 1) / n) if sent else None
