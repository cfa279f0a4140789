"""What hides the truth from a measurement: jitter of blocks and steps, preemption, drift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Noise:
    """What hides the truth; every size is relative to the step time.

    Some blocks are preempted: they take ``1 + preemption_size * e`` times as long, ``e`` exponentially
    distributed with mean 1, which is the heavy tail.
    """

    block: float = 0.02  # standard deviation of a block's logarithm
    step: float = 0.01  # of a step's, common to all ranks, so that it adds no skew
    preemption: float = 0.0  # probability for a block
    preemption_size: float = 0.5
    drift_per_minute: float = 0.0
    start: float = 0.0  # of the logarithm of what all devices at once take, from one start to the next
    trial: float = 0.0  # of what a trial adds to all that it measures
    unit: float = 0.0  # of what it adds to each variant
    correlation: float = 0.0  # of the blocks of a variant in neighbouring rounds

    def of_trial(self, variants: Sequence[str], random: np.random.Generator) -> dict[str, float]:
        """By what factor each variant is slower in one trial."""
        if not (self.trial or self.unit):  # draws nothing: what was planted before stays as it is
            return dict.fromkeys(variants, 1.0)
        trial = self.trial * random.standard_normal()
        return {name: math.exp(trial + self.unit * random.standard_normal()) for name in variants}

    def next_block(self, before: float | None, random: np.random.Generator) -> float:
        """What a block's logarithm is off by, in standard deviations; ``before``: the one before it was."""
        drawn = float(random.standard_normal())
        if before is None or not self.correlation:
            return drawn
        return self.correlation * before + math.sqrt(1 - self.correlation**2) * drawn

    def of_block(self, clock_s: float, random: np.random.Generator, off: float | None = None) -> float:
        """By what factor a block is slower than the truth that begins at ``clock_s``."""
        factor = math.exp(self.block * (random.standard_normal() if off is None else off))
        if random.random() < self.preemption:
            factor *= 1 + self.preemption_size * random.exponential()
        return factor * (1 + self.drift_per_minute * clock_s / 60)


QUIET = Noise(block=0.0, step=0.0)
