"""What computing takes at another batch: a line through the batches that were measured, or in proportion."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from raybench.analysis.estimates.rounds import level, series
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.same_setting import without_batch
from raybench.analysis.whatif.changes import ComputeOfBatch
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration

FIXED_SHARE = 0.2  # of computing, that may not grow with the batch where one batch was measured


def compute_of_batch(
    record: TrialRecord, micro_batch: int, fixed_s: float, others: Iterable[TrialRecord] = ()
) -> ComputeOfBatch:
    """Forward and backward pass at ``micro_batch`` samples, over those of ``record``'s own.

    From the steps of one device alone, of which ``fixed_s`` (the optimizer) are none of it: where ``others`` have
    them at a second batch a line with an intercept, else in proportion to the batch.
    """
    own = record.config.batch_size
    if micro_batch == own:
        return ComputeOfBatch(1.0, 0.0, "")
    alone = _alone([record, *others], record.config)
    times = {batch: max(each.value - fixed_s, 0.1 * each.value) for batch, each in alone.items()}
    ratio = micro_batch / own
    if own not in times or len(times) < 2:
        fixed = FIXED_SHARE + (1 - FIXED_SHARE) * ratio
        words = f"computing in proportion to the batch: only batch {own:,} was measured"
        return ComputeOfBatch(ratio, abs(fixed - ratio), words)
    noise = max(each.relative_half_width for each in alone.values())
    if micro_batch in times:
        factor = times[micro_batch] / times[own]
        return ComputeOfBatch(
            factor, factor * noise, f"computing as one device measured it at batch {micro_batch:,}"
        )
    batches = sorted(times)
    slope, fixed_part = np.polyfit(
        batches, [times[each] for each in batches], 1, w=[1 / times[each] for each in batches]
    )
    factor = float(max(slope * micro_batch + fixed_part, 0.0)) / times[own]
    outside = max(min(batches) / micro_batch, micro_batch / max(batches), 1.0)
    words = "computing by a line through one device's batches " + ", ".join(f"{each:,}" for each in batches)
    return ComputeOfBatch(factor, factor * noise * outside, words)


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
