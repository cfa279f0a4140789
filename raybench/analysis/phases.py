"""Phases of a step on one device and on several: the speed-up of each, and its share of the whole gain.

The base is that of the waterfall: what one device needs for its share of the samples. Phases are timed in
blocks of their own, in which the marks cost time, so their shares are taken and the levels are those of the
rounds: on one device the ideal part, on several the level without transfers; what waits for the slowest rank
and the exposed communication come from the waterfall. So each column adds up, and their difference is what is
lost. The gain is what one device needs for the samples of all, less the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.scaling import Scaling
from raybench.analysis.stats.statistics import (
    POSITIVE,
    SHARE,
    Estimate,
    sum_of,
    trimmed_mean,
    unpaired_ratio,
    within,
)
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.results import Phase, PhaseBlock, StepsResult

PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer", "other")
SYNCHRONIZATION = "gradient synchronization"
SKEW = "waiting for the slowest rank"
LEAST_GAIN = 0.1  # of the step on several devices, that is shared among the phases


@dataclass(frozen=True)
class PhaseRow:
    """One phase of a step, in s; None where it has none."""

    name: str
    one_s: Estimate | None  # one device alone, for its share of the samples
    many_s: Estimate | None
    share_of_step: float | None  # of all devices
    speedup: Estimate | None  # of all devices over one
    share_of_gain: Estimate | None  # negative: this phase takes time back; None: there is no gain to share


@dataclass(frozen=True)
class PhaseTable:
    """Phases of one trial; the shares of the gain add up to 1."""

    world_size: int
    samples: float  # of a step of all devices
    rows: tuple[PhaseRow, ...]
    backward_with_synchronization: PhaseRow
    total: PhaseRow


def phase_table(
    record: TrialRecord, scaled: Scaling, found: Waterfall | None, others: Sequence[TrialRecord] = ()
) -> PhaseTable | None:
    """The phases of a complete record on several devices, beside one device's.

    ``scaled`` and ``found``: how its setting scales, and its waterfall.

    The phases of one device are in a trial of its own, among ``others``; in weak scaling else in the record.
    None where phases, the level without transfers or the step of one device are
    missing, or a script shows its forward passes on one side alone. Levels are those of all visits, shares
    the record's.
    """
    measurement, size = record.steps, record.config.world_size
    if measurement is None or size == 1:
        return None
    one_blocks = _blocks_alone(record, scaled, others)
    many_blocks = _blocks(measurement, "local")
    if found is None or len(one_blocks) < 2 or len(many_blocks) < 2:
        return None
    exposed, skew, ideal = found.parts.exposed_communication, found.parts.skew, found.parts.ideal
    if exposed is None or skew is None or ideal is None:
        return None
    one = {name: _times(share, ideal) for name, share in _shares(one_blocks).items()}
    step_s = found.step_time_s
    many = phase_times(record, step_s, found)
    if ("forward" in one) != ("forward" in many):  # a script without DDP on one device has it in "other"
        return None
    gain = _gain(scaled.speedup, step_s)

    def row(name: str, one_s: Estimate | None, many_s: Estimate | None) -> PhaseRow:
        share = many_s.value / step_s.value if many_s else None
        speedup, of_gain = _speedup(one_s, many_s, size), _share_of_gain(one_s, many_s, size, gain)
        return PhaseRow(name, one_s, many_s, share, speedup, of_gain)

    rows = [row(name, one.get(name), many.get(name)) for name in PHASES]
    rows.insert(PHASES.index("backward") + 1, row(SYNCHRONIZATION, None, exposed))
    together = sum_of(many["backward"], exposed) if "backward" in many else None
    return PhaseTable(
        size,
        measurement.samples_per_step,
        (*rows, row(SKEW, None, skew)),
        row("backward with synchronization", one.get("backward"), together),
        PhaseRow("step", ideal, step_s, 1.0, scaled.speedup, gain and Estimate(1.0, 1.0, 1.0, gain.n)),
    )


def phase_times(record: TrialRecord, step_s: Estimate, found: Waterfall | None) -> dict[Phase, Estimate]:
    """Each phase of a step of a complete record, in s; ``found`` is its waterfall. Empty where unknown.

    On one device they add up to the step time, on several to the level without transfers; where that was not
    measured (``fsdp``) to the step time, transfers included.
    """
    assert record.steps is not None
    local, ddp, plain = (_blocks(record.steps, name) for name in ("local", "ddp", "plain"))
    without_transfers_s = _without_transfers(found)
    if record.config.world_size == 1:
        blocks, whole_s = plain, step_s
    elif without_transfers_s is not None and len(local) > 1:
        blocks, whole_s = local, without_transfers_s
    else:
        blocks, whole_s = ddp, step_s
    if len(blocks) < 2:
        return {}
    return {name: _times(share, whole_s) for name, share in _shares(blocks).items()}


def _without_transfers(found: Waterfall | None) -> Estimate | None:
    """The mean rank's step without transfers, in s, by the waterfall."""
    exposed, skew = (found.parts.exposed_communication, found.parts.skew) if found else (None, None)
    if found is None or exposed is None or skew is None:
        return None
    value = found.step_time_s.value - exposed.value - skew.value
    half = found.step_time_s.relative_half_width * value
    return Estimate(value, value - half, value + half, found.step_time_s.n)


def _blocks_alone(
    record: TrialRecord, scaled: Scaling, others: Sequence[TrialRecord]
) -> tuple[PhaseBlock, ...]:
    """Blocks of phases of one device: at the batch of one device in weak scaling, at the global in strong.

    Of its own trial, as in its row of summary.csv; else, in weak scaling, of the record.
    """
    measurement, baseline = record.steps, scaled.baseline
    if measurement is None or baseline is None or baseline.world_size != 1:
        return ()
    alone = (
        other.steps
        for other in others
        if other.steps and other.config.world_size == 1 and other.config.same_question(record.config)
    )
    found = next((_blocks(each, "plain") for each in alone), ())
    return found or (_blocks(measurement, "plain") if record.config.scaling == "weak" else ())


def _blocks(measurement: StepsResult, variant: str) -> tuple[PhaseBlock, ...]:
    return tuple(block for block in measurement.phases if block.variant == variant)


def _shares(blocks: Sequence[PhaseBlock]) -> dict[Phase, Estimate]:
    """Each phase's share of its block, over the blocks; together 1, which trimmed means alone are not."""
    known = {name for block in blocks for name in block.seconds}  # a script may not show the others
    found = {
        name: trimmed_mean([block.seconds.get(name, 0.0) / sum(block.seconds.values()) for block in blocks])
        for name in PHASES
        if name in known
    }
    whole = sum(share.value for share in found.values())
    return {name: within(share.scaled(1 / whole), SHARE) for name, share in found.items()}


def _gain(speedup: Estimate | None, step_s: Estimate) -> Estimate | None:
    """The time gained over one device, in s; None where the speed-up's interval has 1 in it, or nearly.

    Of a small difference between large parts, that take and give, each would have several times the whole.
    """
    if speedup is None or speedup.low <= 1 or speedup.value - 1 < LEAST_GAIN:
        return None
    return speedup.plus(-1.0).scaled(step_s.value)


def _share_of_gain(
    one: Estimate | None, many: Estimate | None, size: int, gain: Estimate | None
) -> Estimate | None:
    """(size x one - many) / (the same of the whole step), with the interval of a ratio to first order."""
    if gain is None or (one is None and many is None):
        return None
    known = [each for each in (one and one.scaled(size), many and many.scaled(-1)) if each is not None]
    share = sum(each.value for each in known) / gain.value
    half = math.hypot(*(each.half_width for each in known), share * gain.half_width) / gain.value
    return Estimate(share, share - half, share + half, min(each.n for each in known))


def _speedup(one: Estimate | None, many: Estimate | None, size: int) -> Estimate | None:
    if one is None or many is None or min(one.low, many.low) <= 0:
        return None
    return unpaired_ratio(one, many).scaled(size)


def _times(share: Estimate, whole_s: Estimate) -> Estimate:
    value = share.value * whole_s.value
    half = math.hypot(share.half_width * whole_s.value, share.value * whole_s.half_width)
    return within(Estimate(value, value - half, value + half, min(share.n, whole_s.n)), POSITIVE)
