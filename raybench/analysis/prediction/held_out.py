"""Which variants of the model to trust: those that best predict larger world sizes than they were fitted to.

The points above half of the largest world size, and those above a quarter, are held out in turn; how well a
variant fits what it has seen says nothing of what it will say of more devices. Variants that cannot be told
apart so are all kept, and their disagreement widens the intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.prediction.fitting import NOISE, fitted
from raybench.analysis.prediction.points import MeasuredPoint
from raybench.analysis.prediction.step_model import VARIANTS, Variant
from raybench.analysis.prediction.sweep import SweptLines

Floats = NDArray[np.float64]
Points = Sequence[MeasuredPoint]
FEWEST_FITTED = {
    2: 2,
    4: 3,
}  # world sizes, where the largest over 2, or over 4, is the largest that is fitted
FEWEST_UNUSUAL = 3  # fitted world sizes: through two of them any growth can be laid
AS_GOOD = 1.25  # times the least error, and the noise of it: not told apart from the best
# an unusual variant counts with its error times this: hops that take milliseconds are rare, and grow fast
HANDICAPS: dict[Variant, float] = {"shared": 1.25, "adaptdl": 1.25, "stepwise": 2.0}
USUAL: tuple[Variant, ...] = ("ring", "tree", "hierarchical")  # the others must be better, not just as good


@dataclass(frozen=True)
class HeldOut:
    """How well the variants that were chosen predict points which they have not seen."""

    error: float  # mean absolute relative error
    num_points: int
    fitted_up_to: tuple[int, ...]  # world sizes, one for each cut
    largest: int  # world size that was predicted


def chosen(points: Points, swept: SweptLines | None) -> tuple[tuple[Variant, ...], HeldOut | None]:
    """The variants to average, and their error together; usual ones and None if nothing can be held out."""
    found = (_cut(points, divisor, fewest, swept) for divisor, fewest in FEWEST_FITTED.items())
    cuts = [cut for cut in found if cut is not None]
    if not cuts:
        return USUAL, None
    curved = any(len({each.shape.world_size for each in fit_to}) >= FEWEST_UNUSUAL for fit_to, _ in cuts)
    errors = {
        variant: [_errors(*cut, variant, swept) for cut in cuts]
        for variant in (VARIANTS if curved else USUAL)
    }
    means = {
        variant: float(np.mean([np.abs(cut).mean() for cut in found])) for variant, found in errors.items()
    }
    kept = _as_good(
        means, swept is not None, NOISE / len({each.shape for _, held in cuts for each in held}) ** 0.5
    )
    joined = [np.mean([errors[variant][index] for variant in kept], axis=0) for index in range(len(cuts))]
    every = np.concatenate(joined)
    limits = tuple(max(each.shape.world_size for each in fit_to) for fit_to, _ in cuts)
    largest = max(each.shape.world_size for each in points)
    return kept, HeldOut(float(np.abs(np.expm1(every)).mean()), len(every), limits, largest)


def _as_good(errors: Mapping[Variant, float], is_swept: bool, noise: float) -> tuple[Variant, ...]:
    """Those whose mean error is not told apart from the least; an unusual one is as good only if better."""
    handicaps = {**HANDICAPS, "stepwise": 1.0} if is_swept else HANDICAPS  # then latencies are no belief
    counted = {name: error * handicaps.get(name, 1.0) for name, error in errors.items()}
    limit = AS_GOOD * min(counted.values()) + noise
    return tuple(name for name, error in counted.items() if error <= limit)


def _cut(points: Points, divisor: int, fewest: int, swept: SweptLines | None) -> tuple[Points, Points] | None:
    """What is fitted and what is held out; None where one has too few world sizes or the other no point."""
    limit = max(each.shape.world_size for each in points) / divisor
    fit_to = [each for each in points if each.shape.world_size <= limit]
    if len({each.shape.world_size for each in fit_to}) < fewest:
        return None
    crossed = any(each.shape.nodes > 1 for each in fit_to) or (swept is not None and swept.crosses_nodes)
    held = [each for each in points if each.shape.world_size > limit and (crossed or each.shape.nodes == 1)]
    return (fit_to, held) if held else None


def _errors(fit_to: Points, held: Points, variant: Variant, swept: SweptLines | None) -> Floats:
    """The logarithm of predicted over measured, for each point that was held out."""
    found = fitted(fit_to, variant, swept, rounds=2).knowing(held).slopes(held).parts.log_step
    return np.asarray(found - np.log([each.step_time_s for each in held]), dtype=np.float64)
