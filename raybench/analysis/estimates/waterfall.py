"""Where the time of a step goes: from the ideal step to the measured one, in parts that add up.

Every level is measured in the same rounds as the real step: rho = the geometric trimmed mean over rounds
of level / synced, and the level is T * rho with T the step time. So drift cancels, and the parts, being
differences of consecutive levels, add up to T exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from raybench.analysis.estimates.efficiency import step_time
from raybench.analysis.estimates.in_rounds import beside_one_device, step_times
from raybench.analysis.estimates.many import Estimates, Floats, geometrics, measured, trimmed_means
from raybench.analysis.estimates.stacked import Stacked, Value, stacked
from raybench.analysis.estimates.statistics import Estimate
from raybench.records.measurements import Beside
from raybench.records.record import TrialRecord
from raybench.records.requests import Variant

Number = TypeVar("Number", float, Floats)


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
    ratio: Floats  # to synced, shape ``(trials, rounds)``, NaN where the round has none


def waterfall(record: TrialRecord) -> Waterfall | None:
    """The waterfall of a complete record; None without a step of one device to start from.

    A part's interval is the half-width of the per-round differences of its two levels' ratios (Tukey and
    McLaughlin, ``statistics.trimmed_mean``) times T, around the difference of the levels. That of the ideal
    part is of one device's own rounds, as ``efficiency.one_device`` has it: its share is the efficiency.
    Raises ``ValueError`` for a record that is not complete.
    """
    step_time(record)  # which raises
    assert record.steps is not None
    ((_, rows),) = stacked([record.steps])
    return waterfalls([record], rows)[0]


def waterfalls(records: Sequence[TrialRecord], rows: Stacked) -> list[Waterfall | None]:
    """``waterfall`` of complete records whose rounds are alike, a row each."""
    found: list[Waterfall | None] = [None] * len(records)
    kinds: dict[tuple[bool, bool], list[int]] = {}
    for place, record in enumerate(records):
        config = record.config
        kinds.setdefault((config.world_size > 1, config.scaling == "strong"), []).append(place)
    for (several, strong), places in kinds.items():
        some, own = [records[place] for place in places], rows.rows(places)
        made = _on_several(some, own, strong) if several else _on_one(own)
        for place, each in zip(places, made, strict=True):
            found[place] = each
    return found


def _on_one(rows: Stacked) -> list[Waterfall]:
    steps_s = step_times(rows, several=False).each()
    return [Waterfall(world_size=1, step_time_s=each, parts=Parts(ideal=each)) for each in steps_s]


def _on_several(records: Sequence[TrialRecord], rows: Stacked, strong: bool) -> Sequence[Waterfall | None]:
    """Of trials on several devices, all under strong scaling or all under weak."""
    synced, sizes = rows.series("synced"), np.array([float(record.config.world_size) for record in records])
    if synced is None:
        return [None] * len(records)
    levels, has = _levels(rows, synced, sizes, strong)
    if len(levels) < 2:
        return [None] * len(records)
    step_s = step_times(rows, several=True)
    parts = _parts(levels, step_s)
    beside = beside_one_device(rows, sizes, strong=strong)
    if beside is not None:  # as the one device of the speed-up is told
        parts["ideal"] = beside.alone_s.scaled(parts["ideal"].value / beside.alone_s.value)
    exposed, below, lowest = parts.get("exposed_communication"), levels[-2].ratio, levels[0].ratio
    replay, crowd = _over(rows.series("replay"), synced), _over(rows.series("crowd"), synced)
    t_comm = _part(1 - lowest, 1 - _rho(lowest), step_s)
    others = {
        "t_comm_s": t_comm,
        "t_comm_fraction": t_comm.scaled(1 / step_s.value),
        "serial_fraction": None if beside is None else _serial_fractions(beside.speedups, sizes),
    }
    if exposed is not None:
        others["communication_fraction"] = exposed.scaled(1 / step_s.value)
    if replay is not None:
        others["replay_s"] = geometrics(measured(replay)).scaled(step_s.value)
        others["compute_to_communication"] = _ratios(crowd, replay)
        if exposed is not None:
            value = _rho(replay) - (1 - _rho(below))
            others["hidden_communication_s"] = _part(replay - (1 - below), value, step_s)
    rates = _bus_bandwidths(records, rows)
    own_others = _of_each(others, len(records))
    every = zip(records, step_s.each(), _of_each(parts, len(records)), own_others, rates, strict=True)
    return [
        Waterfall(
            world_size=record.config.world_size,
            step_time_s=own_step_s,
            parts=Parts(**own_parts),
            notes=_notes(record, has),
            bus_bandwidth_bytes_per_s=rate,
            ddp_logger=_logger_check(record, own_parts.get("exposed_communication")),
            **own,
        )
        for record, own_step_s, own_parts, own, rate in every
    ]


def karp_flatt(speedup: Number, world_size: Number) -> Number:
    """Amdahl's serial fraction from a measured speed-up: f = (1/S - 1/n) / (1 - 1/n).

    Karp and Flatt (1990), "Measuring parallel processor performance", CACM 33(5), equation 2.
    """
    return (1 / speedup - 1 / world_size) / (1 - 1 / world_size)


def _levels(rows: Stacked, synced: Floats, sizes: Floats, strong: bool) -> tuple[list[_Level], set[Variant]]:
    """The levels that were measured, lowest first, and of which variants there are any."""
    levels: list[_Level] = []
    has: set[Variant] = set()

    def add(part: str, variant: Variant, value: Value, over: Floats | int = 1) -> bool:
        values = _over(rows.series(variant, value), synced)
        if values is not None:
            levels.append(_Level(part, values / over))
            has.add(variant)
        return values is not None

    has_base = strong and add("ideal", "base", "slowest_step", sizes[:, None])
    has_plain = add("small_batch" if has_base else "ideal", "plain", "slowest_step")
    if not has_plain and not has_base:
        return [], has
    has_crowd = add("contention" if has_plain else "undivided", "crowd", "mean_rank")
    has_local = add("wrapper" if has_crowd else "undivided", "local", "mean_rank")
    if has_local:
        add("skew", "local", "slowest_step")
    levels.append(_Level("exposed_communication" if has_crowd or has_local else "undivided", synced / synced))
    return levels, has


def _notes(record: TrialRecord, has: Collection[Variant]) -> tuple[str, ...]:
    """What to say of the levels that were not measured."""
    reason, strategy = record.steps.missing if record.steps else {}, record.config.setting.strategy
    notes = []
    if record.config.scaling == "strong" and "base" not in has:
        notes.append(f"no step at the global batch on one device{_why(reason, 'base')}: no small batch part")
    if strategy in ("dp", "fsdp"):
        notes.append(f"{strategy} has no DDP wrapper and no buckets: what is lost is not taken apart")
    elif "crowd" not in has and "local" not in has:
        notes.append("only the whole loss was measured, not its parts")
    elif "crowd" not in has:
        notes.append(
            f"all devices at once without wrapper were not measured{_why(reason, 'crowd')}: contention and "
            "wrapper are not told apart"
        )
    elif "local" not in has:
        notes.append(
            f"steps without all-reduces were not measured{_why(reason, 'local')}: wrapper and skew are "
            "within exposed communication"
        )
    return tuple(notes)


def _why(missing: Mapping[Variant | Beside, str], variant: Variant) -> str:
    return f" ({missing[variant]})" if variant in missing else ""


def _parts(levels: list[_Level], step_s: Estimates) -> dict[str, Estimates]:
    """Consecutive differences; the first level is the ideal part as it is."""
    rhos = [_rho(level.ratio) for level in levels]
    parts = {levels[0].part: _part(levels[0].ratio, rhos[0], step_s)}
    for (below, rho_below), (above, rho) in itertools.pairwise(zip(levels, rhos, strict=True)):
        parts[above.part] = _part(above.ratio - below.ratio, rho - rho_below, step_s)
    return parts


def _part(per_round: Floats, value: Floats, step_s: Estimates) -> Estimates:
    """``value`` (a share of the step) in s, with the half-width of what the rounds say."""
    rounds = measured(per_round)
    n = rounds.shape[1]
    half = trimmed_means(rounds).half_width if n >= 2 else np.full(len(value), np.inf)
    return Estimates(value * step_s.value, (value - half) * step_s.value, (value + half) * step_s.value, n)


def _rho(ratio: Floats) -> Floats:
    return geometrics(measured(ratio)).value


def _over(values: Floats | None, synced: Floats) -> Floats | None:
    """Ratios to synced, or None where fewer than two rounds have both."""
    ratios = None if values is None else values / synced
    return ratios if ratios is not None and measured(ratios).shape[1] >= 2 else None


def _ratios(numerator: Floats | None, denominator: Floats | None) -> Estimates | None:
    ratios = None if numerator is None or denominator is None else _over(numerator, denominator)
    return None if ratios is None else geometrics(measured(ratios))


def _of_each(estimates: Mapping[str, Estimates | None], number: int) -> list[dict[str, Estimate]]:
    """The estimates that there are by trial."""
    known = {name: each.each() for name, each in estimates.items() if each is not None}
    return [{name: values[place] for name, values in known.items()} for place in range(number)]


def _bus_bandwidths(records: Sequence[TrialRecord], rows: Stacked) -> list[Estimate | None]:
    """Bytes that each link carries in a ring all-reduce, 2(n-1)/n of the gradients, over the replay.

    The factor is that of nccl-tests, doc/PERFORMANCE.md.
    """
    replay = rows.series("replay")
    if replay is None:
        return [None] * len(records)
    sizes = [record.config.world_size for record in records]
    sent = [(record.steps.gradient_bytes if record.steps else None) or 0 for record in records]
    carried = np.array([each * 2 * (n - 1) / n for each, n in zip(sent, sizes, strict=True)])
    rates = geometrics(measured(replay)).rates(carried)
    return [rate if each else None for rate, each in zip(rates.each(), sent, strict=True)]


def _serial_fractions(speedups: Estimates, sizes: Floats) -> Estimates:
    """Amdahl's f."""
    value, low, high = (karp_flatt(each, sizes) for each in (speedups.value, speedups.high, speedups.low))
    return Estimates(value, low, high, speedups.n)


def _logger_check(record: TrialRecord, exposed: Estimate | None) -> LoggerCheck | None:
    times = (record.steps.ddp_logger if record.steps else None) or {}
    communication_s, overlap_s = times.get("avg_backward_comm_s"), times.get("avg_overlap_s")
    if communication_s is None or overlap_s is None:
        return None
    return LoggerCheck(communication_s, overlap_s, communication_s - overlap_s, exposed)
