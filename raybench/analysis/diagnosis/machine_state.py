"""What the machine did while a trial ran: other load, clocks held down, fewer cores than workers."""

from __future__ import annotations

import numpy as np

from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.estimates.rounds import level, step_series
from raybench.records.measurements import Round, StepsResult
from raybench.records.record import TrialRecord

WORTH_TELLING, MUCH = 0.02, 0.10  # of the cores of a host
CLOCK_DROP = 0.10  # relative, from the fastest round


def oversubscribed(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    """More workers than cores."""
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


def other_processes(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    """Other processes took cores that the trial's workers needed: Ray's own are among them."""
    taken = [round_taken for each in measurement.rounds if (round_taken := _taken(record, measurement, each))]
    if not taken:
        return None
    others, cores = (float(np.median([pair[place] for pair in taken])) for place in range(2))
    # the kernel's sum over cores counts in ticks, that of programs exactly, where they can be seen
    others = max(others, sum(measurement.other_programs.values()))
    spare = max(0.0, min(cores - needed for _, cores, needed in taken))
    lost = max(0.0, others - spare) / cores
    if lost < WORTH_TELLING:
        return None
    named = ", ".join(f"{name} {used:.2f}" for name, used in measurement.other_programs.items())
    return Finding(
        FindingName.OTHER_PROCESSES,
        Severity.WARNING if lost >= MUCH else Severity.NOTE,
        record.trial_id,
        f"{others:.2f} of {cores:.0f} cores went to other processes during the rounds "
        f"({len(taken)} rounds{f'; {named}' if named else ''}), the trial's workers need "
        f"{cores - spare:.0f}: steps of all of them are up to {lost:.0%} longer than on an idle host",
        "leave a core of each host free: fewer workers or loader processes; see what runs there (top)",
        {"other_cores": others, "host_cores": cores, "lost_ratio": lost, "rounds": len(taken)},
    )


def _taken(record: TrialRecord, measurement: StepsResult, round_: Round) -> tuple[float, float, float] | None:
    """Of the host that is worst off: cores that others took, cores there are, cores that the trial needs."""
    config, found = record.config, list[tuple[float, float, float]]()
    places = list(zip(measurement.hosts, round_.other_cores, measurement.host_cores, strict=False))
    each_needs = config.cpus_per_worker + config.setting.workers
    for host, others, cores in set(places):  # ranks of one host tell the same
        ranks = sum(each[0] == host for each in places)
        if others is not None:
            found.append((others, cores, min(ranks * each_needs, cores)))
    return max(found, key=lambda one: one[0] - (one[1] - one[2]), default=None)


def throttled(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    """A device held its clock down, or says so."""
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
