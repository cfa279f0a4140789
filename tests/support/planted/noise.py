"""What hides the truth from a measurement: jitter of blocks and steps, preemption, drift."""

from __future__ import annotations

import math
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

    def of_block(self, clock_s: float, random: np.random.Generator) -> float:
        """By what factor a block is slower than the truth that begins at ``clock_s``."""
        factor = math.exp(self.block * random.standard_normal())
        if random.random() < self.preemption:
            factor *= 1 + self.preemption_size * random.exponential()
        return factor * (1 + self.drift_per_minute * clock_s / 60)


QUIET = Noise(block=0.0, step=0.0)
