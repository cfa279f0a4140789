"""What makes a setting's figures those of a slower machine, or limits what they are good for."""

from __future__ import annotations

from typing import get_args

import numpy as np

from raybench.analysis.findings.case import LEAST_SHARE, MUCH, Case
from raybench.analysis.findings.evenness import node_of
from raybench.analysis.findings.finding import Finding, FindingName, Need, Reason, Severity
from raybench.analysis.strategies import loss_parity
from raybench.records.results import Beside, StepsResult

RARE_LEAST = 0.03  # of the typical step: a difference of less is not worth a word
CLOCK_DROP = 0.10  # relative, from the fastest round
WARMER_C = 5.0  # degrees, from the first round to the last
FP16S = "grad_scaler.py"  # torch's own, which has to know whether a gradient is finite
NAMED_LINES = 3


def rare_slow_steps(case: Case) -> Finding | None:
    """The mean step, of which totals are made, is far above the typical one."""
    share = case.scaling.mean_step_s.value / case.step_s - 1
    if share <= RARE_LEAST:
        return None
    severity = Severity.WARNING if share >= MUCH else Severity.NOTE
    values = {"share_ratio": share, "seconds_per_step": share * case.step_s}
    return case.found(FindingName.RARE_SLOW_STEPS, severity, values)


def too_few_cores(case: Case) -> Finding | None:
    """More workers than cores, or a container that had used up its quota of CPU time."""
    if case.config.oversubscribed:  # no figure of it says how fast workers with cores of their own are
        values = {"world_size": float(case.config.world_size)}
        return case.found(FindingName.TOO_FEW_CORES, Severity.PROBLEM, values, reason=Reason.OVERSUBSCRIBED)
    # of the scheduler's periods, on the rank that met it most often
    share = max((each for each in case.steps.quota_used_up if each is not None), default=0.0)
    if share < LEAST_SHARE:
        return None
    values = {"used_up_share": share}
    return case.found(FindingName.TOO_FEW_CORES, Severity.WARNING, values, reason=Reason.QUOTA)


def throttling(case: Case) -> Finding | Need | None:
    """A device held its clock down, or its clock fell by a tenth."""
    rounds, ranks = case.steps.rounds, case.record.ranks
    slowed, drop = sum(any(each.throttled) for each in rounds), _clock_drop(case.steps)
    if slowed or drop >= CLOCK_DROP:
        flags = (zip(ranks, each.throttled, strict=False) for each in rounds)
        reported = sorted({rank for of_round in flags for rank, is_slow in of_round if is_slow})
        return case.found(
            FindingName.THROTTLING,
            Severity.WARNING,
            {"throttled_rounds": slowed, "rounds": len(rounds), "clock_drop_ratio": drop},
            reason=None if slowed else Reason.CLOCK_FELL,
            named={"ranks": ", ".join(map(str, reported))},
        )
    has_clocks = any(clock for each in rounds for clock in each.clock_mhz)
    return Need.CLOCKS if case.is_cuda and not has_clocks else None


def _clock_drop(measurement: StepsResult) -> float:
    """The largest fall of any device's clock below its fastest round, relative."""
    drops = [0.0]
    for of_rank in zip(*(each.clock_mhz for each in measurement.rounds), strict=False):
        clocks = [clock for clock in of_rank if clock is not None]
        # GPUs only change their mind for long; one low reading may be an idle moment, so the median counts.
        if len(clocks) >= 4:
            half = len(clocks) // 2
            drops.append(1 - float(np.median(clocks[half:])) / max(float(np.median(clocks[:half])), 1.0))
    return max(drops)


def still_warming(case: Case) -> Finding | None:
    """GPUs that grew warmer in the rounds: what they reach for seconds they may not keep for hours."""
    by_rank = dict(
        zip(
            case.record.ranks,
            zip(*(each.temperature_c for each in case.steps.rounds), strict=False),
            strict=False,
        )
    )
    rises = {rank: each[-1] - each[0] for rank, each in by_rank.items() if None not in (each[0], each[-1])}
    if not rises or max(rises.values()) < WARMER_C:
        return None
    rank = max(rises, key=lambda each: rises[each])
    values = {"rank": rank, "warmer_c": rises[rank], "temperature_c": by_rank[rank][-1]}
    named = node_of(case.record, rank)
    return case.found(FindingName.STILL_WARMING, Severity.NOTE, values, named=named)


def host_synchronization(case: Case) -> Finding | None:
    """A step waits for its GPU in the middle, for a value or a size."""
    lines = {
        line: number for line, number in (case.steps.host_waits or {}).items() if not line.startswith(FP16S)
    }
    if not lines:
        return None
    named = {"lines": ", ".join(list(lines)[:NAMED_LINES])}
    return case.found(
        FindingName.HOST_SYNCHRONIZATION, Severity.NOTE, {"waits": sum(lines.values())}, named=named
    )


def narrow_pcie(case: Case) -> Finding | None:
    """A link to the host that could be faster: it slows copies, and transfers between GPUs without NVLink."""
    links = zip(case.record.ranks, case.steps.pcie_links, strict=False)
    narrow = {rank: link for rank, link in links if link is not None and link.is_narrow}
    if not narrow:
        return None
    rank, link = next(iter(narrow.items()))
    values = {"ranks": len(narrow), "rank": rank, "lanes": link.lanes, "most_lanes": link.most_lanes}
    named = node_of(case.record, rank)
    return case.found(FindingName.NARROW_PCIE, Severity.WARNING, values, named=named)


def little_memory(case: Case) -> Finding | None:
    """Torch's allocator found a GPU full, and emptied its cache to go on."""
    retries = sum(case.steps.allocator_retries)  # in the rounds, on all ranks
    if not retries:
        return None
    values = {"retries": retries, "rounds": len(case.steps.rounds)}
    return case.found(FindingName.LITTLE_MEMORY, Severity.WARNING, values)


def losses_disagree(case: Case) -> Finding | None:
    """The first losses or gradient are not one device's: a problem unless the model explains it."""
    verdict = loss_parity(case.record)
    if verdict is None or verdict.agrees:
        return None
    values = {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance}
    if verdict.gradient_difference is not None:
        values["gradient_difference"] = verdict.gradient_difference
    named = {"strategy": case.config.setting.strategy, "why": ", ".join(verdict.may_differ)}
    of_gradient = verdict.relative_difference <= verdict.tolerance
    if verdict.may_differ:
        reason = Reason.LEGITIMATE_GRADIENT if of_gradient else Reason.LEGITIMATE
        return case.found(FindingName.LOSSES_DISAGREE, Severity.NOTE, values, reason=reason, named=named)
    which = Reason.GRADIENT if of_gradient else None
    return case.found(FindingName.LOSSES_DISAGREE, Severity.PROBLEM, values, reason=which, named=named)


def not_all_measured(case: Case) -> Finding | None:
    """What failed when the rounds were done: they stand, and what belongs to them is missing."""
    missing = {name: case.steps.missing[name] for name in get_args(Beside) if name in case.steps.missing}
    if not missing:
        return None
    named = {"missing": ", ".join(f"{name.replace('_', ' ')}: {why}" for name, why in missing.items())}
    return case.found(FindingName.NOT_ALL_MEASURED, Severity.NOTE, {}, named=named)
