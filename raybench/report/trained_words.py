"""Epochs that were trained beside what steps say of them, in words."""

from __future__ import annotations

from raybench.analysis.cost import TrainedTime
from raybench.analysis.labels import devices_words
from raybench.analysis.measured import MeasuredStudy
from raybench.report.format import plain_lasting, plain_times


def trained_words(results: MeasuredStudy, found: TrainedTime) -> str:
    """An epoch of one setting, and its speed-up, as trained and by its steps."""
    where = f"{results.label(found.record)} on {devices_words(found.record.config.world_size)}"
    words = f"an epoch of {where} took {plain_lasting(found.epoch_s)} as trained"
    seeds = "" if found.epoch_s.n > 2 else f" ({found.epoch_s.n} seed{'s' * (found.epoch_s.n > 1)})"
    words += f"{seeds}, {plain_lasting(found.by_steps_s)} by its steps"
    if found.speedup is None or found.speedup_by_steps is None:
        return words
    trained, by_steps = plain_times(found.speedup), plain_times(found.speedup_by_steps)
    return f"{words}; {trained} and {by_steps} as fast as one device"
