"""Which variants of the model to trust: those that best predict larger world sizes than they were fitted to.

The points above half of the largest world size, and those above a quarter, are held out in turn; how well a
variant fits what it has seen says nothing of what it will say of more devices. Variants that cannot be told apart
so are all kept, and their disagreement widens the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.prediction.fitting import fitted
from raybench.analysis.prediction.points import MeasuredPoint
from raybench.analysis.prediction.step_model import VARIANTS, Variant
from raybench.analysis.prediction.sweep import SweptLines

Floats = NDArray[np.float64]
CUTS = {
    2: 2,
    4: 3,
}  # the largest world size over this is the largest that is fitted; fewest world sizes for it
AS_GOOD = 1.25  # times the least error: not told apart from the best
USUAL: tuple[Variant, ...] = ("ring", "tree", "hierarchical")  # the others must be better, not just as good


@dataclass(frozen=True)
class HeldOut:
    """How well the variants that were chosen predict points which they have not seen."""

    error: float  # mean absolute relative error
    num_points: int
    fitted_up_to: tuple[int, ...]  # world sizes, one for each cut
    largest: int  # world size that was predicted


def chosen(
    points: Sequence[MeasuredPoint], swept: SweptLines | None
) -> tuple[tuple[Variant, ...], HeldOut | None]:
    """The variants to average, and their error together; the usual ones and None where nothing can be held out."""
    cuts = [
        cut
        for cut in (_cut(points, divisor, fewest, swept) for divisor, fewest in CUTS.items())
        if cut is not None
    ]
    if not cuts:
        return USUAL, None
    errors = {
        variant: [_errors(fit_to, held, variant, swept) for fit_to, held in cuts] for variant in VARIANTS
    }
    means = {
        variant: float(np.mean([np.abs(each).mean() for each in found]))
        * (1 if variant in USUAL else AS_GOOD)
        for variant, found in errors.items()
    }
    kept = tuple(variant for variant in VARIANTS if means[variant] <= AS_GOOD * min(means.values()))
    joined = np.concatenate(
        [np.mean([errors[each][index] for each in kept], axis=0) for index in range(len(cuts))]
    )
    limits = tuple(max(each.shape.world_size for each in fit_to) for fit_to, _ in cuts)
    largest = max(each.shape.world_size for each in points)
    return kept, HeldOut(float(np.abs(np.expm1(joined)).mean()), len(joined), limits, largest)


def _cut(
    points: Sequence[MeasuredPoint], divisor: int, fewest: int, swept: SweptLines | None
) -> tuple[list[MeasuredPoint], list[MeasuredPoint]] | None:
    """What is fitted and what is held out; None where the one has too few world sizes or the other none."""
    limit = max(each.shape.world_size for each in points) / divisor
    fit_to = [each for each in points if each.shape.world_size <= limit]
    if len({each.shape.world_size for each in fit_to}) < fewest:
        return None
    crossed = any(each.shape.nodes > 1 for each in fit_to) or (swept is not None and swept.crosses_nodes)
    held = [each for each in points if each.shape.world_size > limit and (crossed or each.shape.nodes == 1)]
    return (fit_to, held) if held else None


def _errors(
    fit_to: Sequence[MeasuredPoint], held: Sequence[MeasuredPoint], variant: Variant, swept: SweptLines | None
) -> Floats:
    """The logarithm of predicted over measured, for each point that was held out."""
    found = fitted(fit_to, variant, swept).knowing(held).slopes(held).parts.log_step
    return np.asarray(found - np.log([each.step_time_s for each in held]), dtype=np.float64)
