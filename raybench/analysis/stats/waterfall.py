"""Where the time of a step goes: from the ideal step to the measured one, in parts that add up.

Every level is measured in the same rounds as the real step: rho = the geometric trimmed mean over rounds
of level / ddp, and the level is T * rho with T the step time. So drift cancels, and the parts, being
differences of consecutive levels, add up to T exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields

import numpy as np

from raybench.analysis.stats.efficiency import speedup_in_its_rounds, step_time
from raybench.analysis.stats.rounds import Series, level, mean_rank_s, paired, series, slowest_step_s
from raybench.analysis.stats.statistics import Estimate, geometric, inverse, trimmed_mean
from raybench.records.record import TrialRecord
from raybench.records.requests import Variant
from raybench.records.results import Beside, Block


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
    serial_fraction: Estimate | None = None  # Amdahl's f, under strong scaling
    compute_to_communication: Estimate | None = None  # all devices' compute over the replay
    ddp_logger: LoggerCheck | None = None


@dataclass(frozen=True)
class _Level:
    part: str  # what ends at this level
    ratio: Series  # to ddp, shape ``(rounds,)``, NaN where the round has none


def waterfall(record: TrialRecord) -> Waterfall | None:
    """The waterfall of a complete record; None without a step of one device to start from.

    A part's interval is the half-width of the per-round differences of its two levels' ratios (Tukey and
    McLaughlin, ``statistics.trimmed_mean``) times T, around the difference of the levels. That of the ideal
    part is of one device's own rounds, as ``efficiency.one_device`` has it: its share is the efficiency.
    Raises ``ValueError`` for a record that is not complete.
    """
    step_s, size = step_time(record), record.config.world_size
    assert record.steps is not None
    if size == 1:
        return Waterfall(world_size=1, step_time_s=step_s, parts=Parts(ideal=step_s))
    ddp = series(record.steps, "ddp")
    levels, has = ([], set[Variant]()) if ddp is None else _levels(record, ddp)
    if ddp is None or len(levels) < 2:
        return None
    parts = _parts(levels, step_s)
    one = speedup_in_its_rounds(record)
    if one is not None:  # as the one device of the speed-up is reported
        alone_s = one[0].step_time_s
        parts["ideal"] = alone_s.scaled(parts["ideal"].value / alone_s.value)
    exposed, below, lowest = parts.get("exposed_communication"), levels[-2].ratio, levels[0].ratio
    replay, concurrent = (_over(series(record.steps, variant), ddp) for variant in ("replay", "concurrent"))
    t_comm = _part(1 - lowest, 1 - _rho(lowest), step_s)
    hidden = None
    if replay is not None and exposed is not None:
        value = _rho(replay) - (1 - _rho(below))
        hidden = _part(replay - (1 - below), value, step_s)
    return Waterfall(
        world_size=size,
        step_time_s=step_s,
        parts=Parts(**parts),
        notes=_notes(record, has),
        replay_s=None if replay is None else level(replay).scaled(step_s.value),
        hidden_communication_s=hidden,
        bus_bandwidth_bytes_per_s=_bus_bandwidth(record),
        t_comm_s=t_comm,
        t_comm_fraction=t_comm.scaled(1 / step_s.value),
        communication_fraction=exposed and exposed.scaled(1 / step_s.value),
        serial_fraction=serial_fraction(one[1], size) if one and record.config.scaling == "strong" else None,
        compute_to_communication=_ratio(concurrent, replay),
        ddp_logger=_logger_check(record),
    )


def karp_flatt(speedup: float, world_size: float) -> float:
    """Amdahl's serial fraction from a measured speed-up: f = (1/S - 1/n) / (1 - 1/n).

    Of a fixed amount of work (strong scaling); where each device has work of its own nothing is serial.
    Karp and Flatt (1990), "Measuring parallel processor performance", CACM 33(5), equation 2.
    """
    return (1 / speedup - 1 / world_size) / (1 - 1 / world_size)


def serial_fraction(speedup: Estimate, world_size: int) -> Estimate:
    """Amdahl's f of a measured speed-up over one device; a slower step is a larger f."""
    value, low, high = (karp_flatt(each, world_size) for each in (speedup.value, speedup.high, speedup.low))
    return Estimate(value, low, high, speedup.n, speedup.starts)


def _levels(record: TrialRecord, ddp: Series) -> tuple[list[_Level], set[Variant]]:
    """The levels that were measured, lowest first, and of which variants there are any."""
    levels: list[_Level] = []
    has: set[Variant] = set()
    measurement, config = record.steps, record.config
    assert measurement is not None

    def add(part: str, variant: Variant, value: Callable[[Block], float], over: int = 1) -> bool:
        values = _over(series(measurement, variant, value), ddp)
        if values is not None:
            levels.append(_Level(part, values / over))
            has.add(variant)
        return values is not None

    has_base = config.scaling == "strong" and add("ideal", "base", slowest_step_s, config.world_size)
    has_plain = add("small_batch" if has_base else "ideal", "plain", slowest_step_s)
    if not has_plain and not has_base:
        return [], has
    has_concurrent = add("contention" if has_plain else "undivided", "concurrent", mean_rank_s)
    has_local = add("wrapper" if has_concurrent else "undivided", "local", mean_rank_s)
    if has_local:
        add("skew", "local", slowest_step_s)
    levels.append(_Level("exposed_communication" if has_concurrent or has_local else "undivided", ddp / ddp))
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


def _parts(levels: list[_Level], step_s: Estimate) -> dict[str, Estimate]:
    """Consecutive differences; the first level is the ideal part as it is."""
    rhos = [_rho(each.ratio) for each in levels]
    parts = {levels[0].part: _part(levels[0].ratio, rhos[0], step_s)}
    for (below, rho_below), (above, rho) in itertools.pairwise(zip(levels, rhos, strict=True)):
        parts[above.part] = _part(above.ratio - below.ratio, rho - rho_below, step_s)
    return parts


def _part(per_round: Series, value: float, step_s: Estimate) -> Estimate:
    """``value`` (a share of the step) in s, with the half-width of what the rounds say."""
    rounds = per_round[np.isfinite(per_round)]
    half = trimmed_mean(rounds).half_width if len(rounds) >= 2 else math.inf
    return Estimate(value, value - half, value + half, len(rounds)).scaled(step_s.value)


def _rho(ratio: Series) -> float:
    return level(ratio).value


def _over(values: Series | None, ddp: Series) -> Series | None:
    """Ratios to ddp, or None where fewer than two rounds have both."""
    ratios = None if values is None else values / ddp
    return ratios if ratios is not None and np.isfinite(ratios).sum() >= 2 else None


def _ratio(numerator: Series | None, denominator: Series | None) -> Estimate | None:
    ratios = None if numerator is None or denominator is None else paired(numerator, denominator)
    return None if ratios is None else geometric(ratios)


def _bus_bandwidth(record: TrialRecord) -> Estimate | None:
    """Bytes that each link carries in a ring all-reduce, 2(n-1)/n of the gradients, over the replay.

    The factor is that of nccl-tests, doc/PERFORMANCE.md.
    """
    assert record.steps is not None
    replay, sent, n = series(record.steps, "replay"), record.steps.gradient_bytes, record.config.world_size
    return inverse(level(replay)).scaled(sent * 2 * (n - 1) / n) if replay is not None and sent else None


def _logger_check(record: TrialRecord) -> LoggerCheck | None:
    times = (record.steps.ddp_logger if record.steps else None) or {}
    communication_s, overlap_s = times.get("avg_backward_comm_s"), times.get("avg_overlap_s")
    if communication_s is None or overlap_s is None:
        return None
    return LoggerCheck(communication_s, overlap_s, communication_s - overlap_s)
