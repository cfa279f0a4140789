"""What a restart of the loader costs, and the time of many steps."""

from __future__ import annotations

from raybench.analysis.stats.statistics import POSITIVE, Estimate, inverse, sum_of, trimmed_mean, within
from raybench.records.record import TrialRecord


def restart_time(record: TrialRecord) -> Estimate | None:
    """What a restart of the loader adds to an epoch's steps, in s; n counts restarts.

    None where it was not measured: synthetic input, trials of a search, a loader that failed.
    """
    restarts = record.steps.restarts if record.steps is not None else ()
    return trimmed_mean([restart.cost_s for restart in restarts]) if len(restarts) > 1 else None


def steps_time(record: TrialRecord, samples: float, rate: Estimate | None = None) -> Estimate:
    """``samples`` by the steps of a complete record, in s; ``rate`` is its throughput where it is known."""
    return inverse(rate).scaled(samples)


def epochs_time(record: TrialRecord, samples: float, epochs: float, rate: Estimate | None = None) -> Estimate:
    """The same with a restart of the loader in each of ``epochs``, as far as it was measured."""
    steps_s, restart_s = steps_time(record, samples, rate), restart_time(record)
    if restart_s is None or not epochs:
        return steps_s
    return within(sum_of(steps_s, restart_s.scaled(epochs)), POSITIVE)  # few restarts have a wide interval
