"""What computing takes at another batch: a line through the batches that were measured, or in proportion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from scipy.optimize import nnls

from raybench.analysis.estimates.rounds import level, series
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.same_setting import without_batch
from raybench.analysis.whatif.changes import ComputeOfBatch
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration

HALF_BATCH_NOISE = 0.05  # half an interval at twice the batch, relative: medians of few steps, extrapolated
FIXED_SHARE = 0.2  # of computing, that may not grow with the batch where one batch was measured


def compute_of_batch(
    record: TrialRecord, micro_batch: int, fixed_s: float, others: Iterable[TrialRecord] = ()
) -> ComputeOfBatch:
    """Forward and backward pass at ``micro_batch`` samples, over those of ``record``'s own.

    From the steps of one device alone, of which ``fixed_s`` (the optimizer) are none of it, where
    ``others`` have them at a second batch; else from the trial's own steps with half of its batch; else in
    proportion.
    """
    own = record.config.batch_size
    if micro_batch == own:
        return ComputeOfBatch(1.0, 1.0, 0.0, "")
    alone = _alone([record, *others], record.config)
    times = {batch: max(each.value - fixed_s, 0.1 * each.value) for batch, each in alone.items()}
    ratio = micro_batch / own
    if own in times and len(times) > 1:
        noise = max(each.relative_half_width for each in alone.values())
        return _by_line(times, own, micro_batch, noise)
    timeline = record.steps.gradient_timeline if record.steps else None
    if timeline is not None and timeline.half_batch is not None:
        half = timeline.half_batch
        forward = _line({half.batch_size: half.before_s, own: timeline.before_s}, own, micro_batch)
        backward = _line({half.batch_size: half.ready_s, own: timeline.ready_s[-1]}, own, micro_batch)
        off = HALF_BATCH_NOISE * abs(ratio - 1)
        words = f"computing by a line through batch {half.batch_size:,} and {own:,}, timed in this trial"
        return ComputeOfBatch(forward, backward, off, words)
    fixed = FIXED_SHARE + (1 - FIXED_SHARE) * ratio
    words = f"computing in proportion to the batch: only batch {own:,} was measured"
    return ComputeOfBatch(ratio, ratio, abs(fixed / ratio - 1), words)


def _by_line(times: dict[int, float], own: int, micro_batch: int, noise: float) -> ComputeOfBatch:
    """By one device's steps without their optimizer, in s by batch."""
    if micro_batch in times:
        factor = times[micro_batch] / times[own]
        return ComputeOfBatch(
            factor, factor, noise, f"computing as one device measured batch {micro_batch:,}"
        )
    factor = _line(times, own, micro_batch)
    outside = max(min(times) / micro_batch, micro_batch / max(times), 1.0)
    listed = ", ".join(f"{each:,}" for each in sorted(times))
    words = f"computing by a line through one device's batches {listed}"
    return ComputeOfBatch(factor, factor, noise * outside, words)


def _line(times: Mapping[int, float], own: int, micro_batch: int) -> float:
    """The line through ``times`` (s by batch; relative least squares) at a batch, over what it is at ``own``.

    Neither the part that does not grow with the batch nor what each sample takes is below 0.
    """
    rows = np.array([[1 / time_s, batch / time_s] for batch, time_s in times.items()])
    (fixed_s, sample_s), _ = nnls(rows, np.ones(len(rows)))
    return float((fixed_s + sample_s * micro_batch) / (fixed_s + sample_s * own))


def _alone(records: Iterable[TrialRecord], config: Configuration) -> dict[int, Estimate]:
    """The step of one device alone by micro-batch, of configurations that compute alike."""
    found: dict[int, Estimate] = {}
    for record in records:
        if record.steps is None or not _computes_alike(record.config, config):
            continue
        values = series(record.steps, "plain")
        if values is not None:
            found.setdefault(record.config.batch_size, level(values))
    return found


def _computes_alike(one: Configuration, other: Configuration) -> bool:
    """Whether the two differ in nothing that one device alone computes but the batch."""
    mine, theirs = (without_batch(each).setting.at(1) for each in (one, other))
    named = ("workload", "optimizer", "environment", "device", "cpus_per_worker", "data")
    return mine == theirs and all(getattr(one, name) == getattr(other, name) for name in named)
