"""How many steps a block has, and how many before it are thrown away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raybench.records.requests import Variant
from raybench.spec.study import MeasureSpec
from raybench.worker.batches import whole_turns
from raybench.worker.steps.variant_run import VariantRun

MIN_STEPS, MIN_STEPS_IN_HASTE, MAX_STEPS = 5, 3, 500
DISCARD_SECONDS, MAX_DISCARD = 0.02, 5
PLAIN_SHARE = 0.20  # of the device time at most, from more than eight devices on
MANY_DEVICES = 8


@dataclass(frozen=True)
class BlockSize:
    """Steps of a block."""

    discarded: int  # first
    timed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.discarded + self.timed


def block_sizes(
    runs: Sequence[VariantRun],
    measure: MeasureSpec,
    num_devices: int,
    block_seconds: float,
    step_s: dict[Variant, float],
) -> dict[Variant, BlockSize]:
    """Of each of ``runs``; ``block_seconds`` is what the device asks for, ``step_s`` from the warm-up."""
    return {
        run.variant: BlockSize(
            _discarded(run, step_s),
            _in_whole_turns(run, measure, _timed(run, runs, measure, num_devices, block_seconds, step_s)),
        )
        for run in runs
    }


def _timed(
    run: VariantRun,
    runs: Sequence[VariantRun],
    measure: MeasureSpec,
    num_devices: int,
    seconds: float,
    step_s: dict[Variant, float],
) -> int:
    if measure.steps is not None:
        return measure.steps
    if num_devices > MANY_DEVICES and not run.one_rank:
        on_all = sum(1 for other in runs if not other.one_rank)
        seconds = max(seconds, seconds * (1 / PLAIN_SHARE - 1) / on_all)
    # little time: shorter blocks, rather than too few rounds or a trial of several times its time
    share = measure.max_seconds / (measure.min_rounds * len(runs))
    slowest = max(step_s[other.variant] for other in runs)
    least = MIN_STEPS_IN_HASTE if MIN_STEPS * slowest > share else MIN_STEPS
    return min(max(math.ceil(min(seconds, share) / step_s[run.variant]), least), MAX_STEPS)


def _discarded(run: VariantRun, step_s: dict[Variant, float]) -> int:
    steps = math.ceil(DISCARD_SECONDS / step_s[run.variant])
    # after a pause the loaders of all ranks read ahead: of this one, and of those that now wait
    prefetched = run.batches.prefetched if run.batches is not None else 0
    return max(1, min(steps, MAX_DISCARD)) + math.ceil(prefetched / run.batches_per_step)


def _in_whole_turns(run: VariantRun, measure: MeasureSpec, steps: int) -> int:
    if measure.steps is not None or run.batches is None:
        return steps
    return whole_turns(steps, run.batches, run.batches_per_step)
