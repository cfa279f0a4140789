"""Whether a strategy trains what one device trains: its first losses and gradient against those of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raybench.records.record import TrialRecord

# Relative; of sums in another order, which a few steps amplify, in the type in which they are made.
PARITY_TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 2e-2, "fp16": 2e-2, "default": 1e-2}
# Of gradients. FSDP in bf16 was seen to differ from autocast by 0.008 to 0.014 in decoders of 4 to 24 layers;
# gradients that do not travel differ by about as much as they are long.
GRADIENT_TOLERANCE = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 5e-2, "fp16": 5e-2, "default": 2e-2}


@dataclass(frozen=True)
class ParityVerdict:
    """Whether losses and gradients of a strategy are those of one device on the same samples."""

    relative_difference: float  # of losses: the largest of any step, over the mean of one device's
    gradient_difference: float | None  # of the first step, relative; None: unknown
    tolerance: float
    gradient_tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether both differences are within the tolerance."""
        gradients_agree = (self.gradient_difference or 0.0) <= self.gradient_tolerance
        return self.relative_difference <= self.tolerance and gradients_agree


def parity_verdict(record: TrialRecord) -> ParityVerdict | None:
    """The verdict of a record's first steps; None where it has none.

    The tolerance is that of the coarsest type that a gradient passes through.
    """
    measurement = record.steps
    if measurement is None or measurement.parity is None:
        return None
    parity, setting = measurement.parity, record.config.setting
    types = {setting.precision, setting.gradient_compression} - {"none"}
    furthest = max(_apart(*each) for each in zip(parity.losses, parity.reference_losses, strict=True))
    known = [abs(reference) for reference in parity.reference_losses if reference is not None]
    scale = sum(known) / len(known) if known else 0.0
    return ParityVerdict(
        relative_difference=furthest / scale if scale else furthest,
        gradient_difference=parity.gradient_difference,
        tolerance=max(PARITY_TOLERANCE[each] for each in types),
        gradient_tolerance=max(GRADIENT_TOLERANCE[each] for each in types),
    )


def _apart(mine: float | None, reference: float | None) -> float:
    if mine is None or reference is None:  # both diverged, or one of them
        return 0.0 if mine is reference else math.inf
    return abs(mine - reference)


def wrong_losses(visits: Sequence[TrialRecord]) -> ParityVerdict | None:
    """The first verdict of a setting's visits that its losses are not one device's; None without one."""
    return next((found for each in visits if (found := parity_verdict(each)) and not found.agrees), None)
