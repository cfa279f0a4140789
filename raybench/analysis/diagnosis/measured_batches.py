"""Trials that are alike but for the batch, as columns.

Of very many trials each is asked about all others.
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.estimates.efficiency import Scaling
from raybench.records.record import TrialRecord

Floats = NDArray[np.float64]


class MeasuredBatches:
    """What each of the trials has; one without an efficiency is left out."""

    def __init__(self) -> None:
        self._rows = array("d")

    def include(self, record: TrialRecord, found: Scaling) -> None:
        """One more trial."""
        if found.efficiency is not None:
            knob, rate = record.config.setting.batch_size, found.throughput_samples_per_s
            self._rows.extend((record.config.batch_size, knob, found.efficiency.value, rate.value))

    def larger_than(self, batch_size: int) -> tuple[Floats, Floats, Floats]:
        """Of the trials with a larger micro-batch: the batch as the knob, efficiency, samples/s."""
        rows = np.array(self._rows).reshape(-1, 4)
        _, knobs, efficiencies, rates = rows[rows[:, 0] > batch_size].T
        return knobs, efficiencies, rates
