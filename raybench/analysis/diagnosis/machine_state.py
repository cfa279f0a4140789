"""What the machine did while a trial ran: clocks held down, fewer cores than workers."""

from __future__ import annotations

import numpy as np

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.estimates.rounds import level, step_series
from raybench.records.measurements import StepsResult

CLOCK_DROP = 0.10  # relative, from the fastest round


def oversubscribed(case: Case) -> Finding | None:
    """More workers than cores."""
    record, measurement = case.record, case.steps
    if not record.config.oversubscribed:
        return None
    return Finding(
        FindingName.OVERSUBSCRIBED,
        Severity.PROBLEM,
        record.trial_id,
        f"{record.config.world_size} workers shared fewer cores; step time {_milliseconds(measurement)}",
        "use it to see that a study works, not for its numbers: run on as many cores as workers",
        {"world_size": record.config.world_size},
    )


def _milliseconds(measurement: StepsResult) -> str:
    values = step_series(measurement)
    if values is None:
        return "unknown"
    step_ms = level(values).scaled(1e3)
    return f"{step_ms.value:.1f} ms [{step_ms.low:.1f}, {step_ms.high:.1f}], {step_ms.n} rounds"


def throttled(case: Case) -> Finding | None:
    """A device held its clock down, or says so."""
    record, measurement = case.record, case.steps
    num_rounds = len(measurement.rounds)
    slowed = [
        index for index, each in enumerate(measurement.rounds) if any(flag for flag in each.throttled if flag)
    ]
    ranks = sorted(
        {
            record.ranks[place] if place < len(record.ranks) else place
            for each in measurement.rounds
            for place, flag in enumerate(each.throttled)
            if flag
        }
    )
    drop = _clock_drop(measurement)
    if not slowed and drop < CLOCK_DROP:
        return None
    said = []
    if slowed:
        of_ranks = ", ".join(map(str, ranks))
        said.append(f"the device said so in {len(slowed)} of {num_rounds} rounds (rank {of_ranks})")
    if drop >= CLOCK_DROP:
        said.append(f"a clock fell by {drop:.0%} between rounds")
    return Finding(
        FindingName.THROTTLING,
        Severity.WARNING,
        record.trial_id,
        "; ".join(said),
        "look at temperature and power limit (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE), and at the governor",
        {"throttled_rounds": len(slowed), "rounds": num_rounds, "clock_drop_ratio": drop},
    )


def _clock_drop(measurement: StepsResult) -> float:
    """The largest fall of any device's clock below its fastest round, relative."""
    drops = [0.0]
    for place in range(max((len(each.clock_mhz) for each in measurement.rounds), default=0)):
        clocks = [
            clock
            for each in measurement.rounds
            if place < len(each.clock_mhz) and (clock := each.clock_mhz[place]) is not None
        ]
        # GPUs only change their mind for long; one low reading may be an idle moment, so the median counts.
        if len(clocks) >= 4:
            half = len(clocks) // 2
            drops.append(1 - float(np.median(clocks[half:])) / max(float(np.median(clocks[:half])), 1.0))
    return max(drops)
