"""Where the time of a step goes: from the ideal step to the measured one, in parts that add up.

Every level is measured in the same rounds as the real step: rho = the geometric trimmed mean over rounds
of level / synced, and the level is T * rho with T the step time. So drift cancels, and the parts, being
differences of consecutive levels, add up to T exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np

from raybench.analysis.estimates.efficiency import scaling, step_time
from raybench.analysis.estimates.rounds import Series, level, mean_rank_s, paired, series, slowest_step_s
from raybench.analysis.estimates.statistics import Estimate, geometric, trimmed_mean
from raybench.records.measurements import Beside, Block, StepsResult
from raybench.records.record import TrialRecord
from raybench.records.requests import Variant


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
    """What DDP's own logger says, beside the exposed part. It samples few steps and measures a span."""

    communication_s: float
    overlap_s: float
    exposed_s: float  # communication less its overlap
    measured_exposed_s: Estimate | None


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
    ratio: Series  # to synced, one value a round, NaN where the round has none


def waterfall(record: TrialRecord) -> Waterfall | None:
    """The waterfall of a complete record; None without a step of one device to start from.

    A part's interval is the half-width of the per-round differences of its two levels' ratios (Tukey and
    McLaughlin, ``statistics.trimmed_mean``) times T, around the difference of the levels.
    Raises ``ValueError`` for a record that is not complete.
    """
    step_s, measurement = step_time(record), record.steps
    assert measurement is not None  # step_time has seen to it
    if record.config.world_size == 1:
        return Waterfall(world_size=1, step_time_s=step_s, parts=Parts(ideal=step_s))
    synced = series(measurement, "synced")
    levels, notes = _levels(record, measurement)
    if synced is None or len(levels) < 2:
        return None
    parts = Parts(**_parts(levels, step_s))
    exposed = parts.exposed_communication
    replay = _over(series(measurement, "replay"), synced)
    hidden = None
    if replay is not None and exposed is not None:
        hidden = _part(replay - (1 - levels[-2].ratio), _rho(replay) - (1 - _rho(levels[-2].ratio)), step_s)
    crowd = _over(series(measurement, "crowd"), synced)
    lowest = levels[0].ratio
    t_comm = _part(1 - lowest, 1 - _rho(lowest), step_s)
    return Waterfall(
        world_size=record.config.world_size,
        step_time_s=step_s,
        parts=parts,
        notes=tuple(notes),
        replay_s=geometric(replay[np.isfinite(replay)]).scaled(step_s.value) if replay is not None else None,
        hidden_communication_s=hidden,
        bus_bandwidth_bytes_per_s=_bus_bandwidth(record, measurement),
        t_comm_s=t_comm,
        t_comm_fraction=t_comm.scaled(1 / step_s.value),
        serial_fraction=_serial_fraction(record),
        communication_fraction=exposed.scaled(1 / step_s.value) if exposed else None,
        compute_to_communication=_ratio(crowd, replay),
        ddp_logger=_logger_check(measurement, exposed),
    )


def karp_flatt(speedup: float, world_size: int) -> float:
    """Amdahl's serial fraction from a measured speed-up: f = (1/S - 1/n) / (1 - 1/n).

    Karp and Flatt (1990), "Measuring parallel processor performance", CACM 33(5), equation 2.
    """
    return (1 / speedup - 1 / world_size) / (1 - 1 / world_size)


def _levels(record: TrialRecord, measurement: StepsResult) -> tuple[list[_Level], list[str]]:
    """The levels that were measured, lowest first, and what to say of those that were not."""
    synced = series(measurement, "synced")
    if synced is None:
        return [], []
    reason = measurement.missing
    strong = record.config.scaling == "strong"
    notes: list[str] = []
    levels: list[_Level] = []

    def add(part: str, variant: Variant, value: Callable[[Block], float], over: int = 1) -> bool:
        values = _over(series(measurement, variant, value), synced)
        if values is not None:
            levels.append(_Level(part, values / over))
        return values is not None

    has_base = strong and add("ideal", "base", slowest_step_s, record.config.world_size)
    if strong and not has_base:
        notes.append(f"no step at the global batch on one device{_why(reason, 'base')}: no small batch part")
    has_plain = add("small_batch" if has_base else "ideal", "plain", slowest_step_s)
    if not has_plain and not has_base:
        return [], notes
    has_crowd = add("contention" if has_plain else "undivided", "crowd", mean_rank_s)
    has_local = add("wrapper" if has_crowd else "undivided", "local", mean_rank_s)
    if has_local:
        add("skew", "local", slowest_step_s)
    levels.append(_Level("exposed_communication" if has_crowd or has_local else "undivided", synced / synced))
    strategy = record.config.setting.strategy
    if strategy in ("dp", "fsdp"):
        notes.append(f"{strategy} has no DDP wrapper and no buckets: what is lost is not taken apart")
    elif not has_crowd and not has_local:
        notes.append("only the whole loss was measured, not its parts")
    elif not has_crowd:
        notes.append(f"no crowd blocks{_why(reason, 'crowd')}: contention and wrapper are not told apart")
    elif not has_local:
        notes.append(
            f"no local blocks{_why(reason, 'local')}: wrapper and skew are within exposed communication"
        )
    return levels, notes


def _why(missing: Mapping[Variant | Beside, str], variant: Variant) -> str:
    return f" ({missing[variant]})" if variant in missing else ""


def _parts(levels: list[_Level], step_s: Estimate) -> dict[str, Estimate]:
    """Consecutive differences; the first level is the ideal part as it is."""
    parts = {levels[0].part: _part(levels[0].ratio, _rho(levels[0].ratio), step_s)}
    for below, above in itertools.pairwise(levels):
        difference = above.ratio - below.ratio
        parts[above.part] = _part(difference, _rho(above.ratio) - _rho(below.ratio), step_s)
    return parts


def _part(per_round: Series, value: float, step_s: Estimate) -> Estimate:
    """``value`` (a share of the step) in s, with the half-width of what the rounds say."""
    finite = per_round[np.isfinite(per_round)]
    half = trimmed_mean(finite).half_width if len(finite) >= 2 else float("inf")
    low, high = (value - half) * step_s.value, (value + half) * step_s.value
    return Estimate(value * step_s.value, low, high, len(finite))


def _rho(ratio: Series) -> float:
    return level(ratio).value


def _over(values: Series | None, synced: Series) -> Series | None:
    """Ratios to synced, or None where fewer than two rounds have both."""
    if values is None or paired(values, synced) is None:
        return None
    return values / synced


def _ratio(numerator: Series | None, denominator: Series | None) -> Estimate | None:
    ratios = None if numerator is None or denominator is None else paired(numerator, denominator)
    return None if ratios is None else geometric(ratios)


def _bus_bandwidth(record: TrialRecord, measurement: StepsResult) -> Estimate | None:
    """Bytes that each link carries in a ring all-reduce, 2(n-1)/n of the gradients, over the replay.

    The factor is that of nccl-tests, doc/PERFORMANCE.md.
    """
    replay, n = series(measurement, "replay"), record.config.world_size
    if replay is None or not measurement.gradient_bytes:
        return None
    carried, time_s = measurement.gradient_bytes * 2 * (n - 1) / n, level(replay)
    return Estimate(carried / time_s.value, carried / time_s.high, carried / time_s.low, time_s.n)


def _serial_fraction(record: TrialRecord) -> Estimate | None:
    """Amdahl's f; None where the speed-up is not over one device."""
    world_size, scaled = record.config.world_size, scaling(record)
    speedup, baseline = scaled.speedup, scaled.baseline
    if speedup is None or baseline is None or baseline.world_size != 1:
        return None
    value, low, high = (karp_flatt(each, world_size) for each in (speedup.value, speedup.high, speedup.low))
    return Estimate(value, low, high, speedup.n)


def _logger_check(measurement: StepsResult, exposed: Estimate | None) -> LoggerCheck | None:
    times = measurement.ddp_logger or {}
    communication_s, overlap_s = times.get("avg_backward_comm_s"), times.get("avg_overlap_s")
    if communication_s is None or overlap_s is None:
        return None
    return LoggerCheck(communication_s, overlap_s, communication_s - overlap_s, exposed)
