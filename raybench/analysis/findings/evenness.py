"""Are a trial's devices equal? The rank that makes the others wait, and devices that differ alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from raybench.analysis.findings.case import Case, less
from raybench.analysis.findings.finding import Finding, FindingName, Need, Reason, Severity
from raybench.analysis.stats.rounds import device_spread
from raybench.analysis.stats.statistics import (
    Estimate,
    geometric,
    simultaneous,
    simultaneous_difference,
    trimmed_mean,
)
from raybench.records.record import TrialRecord
from raybench.records.results import Block, StepsResult
from raybench.spec.workloads import OwnCodeSpec, TextSpec

LEAST_EXCESS = 0.02  # relative, of the slow rank
TAKEN_LEAST = 0.1  # of a core, by other processes: from here on they may be what slows a rank
MOST_LOOKED_AT = 20  # other trials, for whether a device is slow in them too


def straggler(case: Case) -> Finding | None:
    """The rank that the others wait for, or that is slow alone; every step waits for it."""
    return case.finding(slow_in_step) or slow_alone(case)


def slow_in_step(case: Case) -> Finding | None:
    """The rank that is certainly slower in ``local``, as one of all ranks."""
    slowest = slowest_rank(case.visits)
    if slowest is None:
        return None
    rank, ratio, excess_s = slowest
    if ratio.low <= 1 or ratio.value - 1 < LEAST_EXCESS:
        return None
    values = {"rank": rank, "excess_s": excess_s.value, "excess_ratio": ratio.value - 1, "rounds": ratio.n}
    return case.found(
        FindingName.STRAGGLER,
        Severity.WARNING,
        values,
        explains=excess_s.scaled(1 - 1 / case.config.world_size),
        reason=_why_slow(case, rank),
        named=node_of(case.record, rank),
    )


def slow_alone(case: Case) -> Finding | None:
    """The device that is slow alone, where no rank was certainly waited for."""
    spread = _spread(case.visits)
    if spread is None or not spread.is_certain or case.finding(slow_in_step) is not None:
        return None
    by, n = spread.by, case.config.world_size
    values = {
        "rank": spread.slow,
        "fast_rank": spread.fast,
        "spread_ratio": by.value,
        "blocks": spread.num_blocks,
    }
    # of one slow device and n - 1 others
    mean_s = case.parts.ideal.value if case.parts.ideal else case.step_s
    explains = by.scaled(mean_s / (1 + by.value / n) * (1 - 1 / n)) if n > 1 else None
    return case.found(
        FindingName.STRAGGLER,
        Severity.WARNING,
        values,
        explains=explains,
        reason=Reason.SLOW_ALONE,
        named=node_of(case.record, spread.slow),
    )


def node_of(record: TrialRecord, rank: int) -> dict[str, str]:
    """The rank's node, where the trial had several."""
    place = place_of(record, rank)
    is_known = (record.nodes or 1) > 1 and place < len(record.hostnames)
    return {"node": record.hostnames[place]} if is_known else {}


def place_of(record: TrialRecord, rank: int) -> int:
    """The rank's index in what the record has of each rank."""
    return record.ranks.index(rank) if rank in record.ranks else rank


def slowest_rank(visits: Sequence[StepsResult]) -> tuple[int, Estimate, Estimate] | None:
    """The rank that takes longest in ``local``, where no rank waits for another.

    Returns the rank, its time over the median of the others as a ratio, and the same as a difference in s,
    each as one of all ranks: the slowest of several equal ones is slow by chance. None where ranks cannot be
    compared.
    """
    rounds = chain.from_iterable(visit.rounds for visit in visits)
    blocks = [block for each in rounds if (block := each.block("local")) is not None]
    blocks = [block for block in blocks if block.ranks == blocks[0].ranks]
    if len(blocks) < 2 or len(blocks[0].ranks) < 2:
        return None
    times = np.array([block.step_time_s for block in blocks])
    ranks = times.shape[1]
    others = np.column_stack([np.median(np.delete(times, rank, axis=1), axis=1) for rank in range(ranks)])
    ratios = [geometric(times[:, rank] / others[:, rank]) for rank in range(ranks)]
    worst = max(range(ranks), key=lambda rank: ratios[rank].value)
    excess_s = trimmed_mean(times[:, worst] - others[:, worst])
    return (
        blocks[0].ranks[worst],
        simultaneous(ratios[worst], ranks),
        simultaneous_difference(excess_s, ranks),
    )


@dataclass(frozen=True)
class Spread:
    """The slowest and the fastest device, each alone; relative, with a 99% interval."""

    slow: int
    fast: int
    by: Estimate
    num_blocks: int

    @property
    def is_certain(self) -> bool:
        """2% at least, and more than the noise."""
        return self.by.value >= LEAST_EXCESS and self.by.low >= 0


def _spread(visits: Sequence[StepsResult]) -> Spread | None:
    """By the plain blocks, each on one device alone, over the mean of their visit."""
    blocks, logs = list[Block](), list[float]()
    for visit in visits:
        there = [block for each in visit.rounds if (block := each.block("plain")) is not None]
        own = np.log([block.step_time_s[0] for block in there])
        blocks += there
        logs += (own - own.mean()).tolist() if there else []
    found = device_spread(np.array(logs), [block.ranks[0] for block in blocks])
    if found is None:
        return None
    apart, half = found.apart, found.half
    ends = [math.expm1(each) for each in (apart, apart - half, apart + half)]
    by = Estimate(ends[0], ends[1], ends[2], len(blocks))
    return Spread(found.slow, found.fast, by, len(blocks))


def _why_slow(case: Case, rank: int) -> Reason | None:
    """Whether it is the device itself; None where nothing is known of the devices alone."""
    spread = _spread(case.visits)
    if spread is None:
        return None
    if not spread.is_certain or spread.slow != rank:
        return Reason.NOT_ALONE
    if _cores_of_others(case, rank) >= TAKEN_LEAST:
        return Reason.UNDER_LOAD
    return Reason.DEVICE if _is_slow_elsewhere(case, rank) else Reason.NOT_ELSEWHERE


def _cores_of_others(case: Case, rank: int) -> float:
    """What other processes took of the rank's host, in cores: the median over the rounds."""
    place = place_of(case.record, rank)
    known = [each.other_cores[place] for each in case.steps.rounds if place < len(each.other_cores)]
    taken = [each for each in known if each is not None]
    return float(np.median(taken)) if taken else 0.0


def _is_slow_elsewhere(case: Case, rank: int) -> bool:
    """Whether half of the other trials that compare devices at least have the same slow one."""
    peers, own = case.peers, case.record
    there = {each.trial_id for each in peers.records} | {own.trial_id}
    others = chain(
        (each for each in peers.records if each.trial_id != own.trial_id),
        (each for each in peers.elsewhere if each.trial_id not in there and _has_device(each, own, rank)),
    )
    spreads = (_spread([each.steps]) for each in islice(others, MOST_LOOKED_AT) if each.steps is not None)
    known = [each for each in spreads if each is not None]
    same = sum(each.is_certain and each.slow == rank for each in known)
    return bool(known) and 2 * same >= len(known)


def _has_device(other: TrialRecord, own: TrialRecord, rank: int) -> bool:
    """Whether the rank worked in a trial of another world size or placement, on the same host."""
    hosts = [
        each.hostnames[place] if (place := place_of(each, rank)) < len(each.hostnames) else ""
        for each in (own, other)
    ]
    return rank in other.ranks and hosts[0] == hosts[1]


def jitter(case: Case) -> Finding | Need | None:
    """Skew less a straggler's: by uneven batches, else by the machine."""
    skew, slow = case.parts.skew, case.finding(slow_in_step)
    if skew is None:
        return case.needs_variants
    rest = less(skew, slow.explains.value if slow and slow.explains else 0.0)
    if not case.is_notable(rest):
        return None
    values = {"waited_s": rest.value, "waited_share": case.share(rest)}
    reason = Reason.BATCHES if _may_vary(case) else None
    return case.part(FindingName.JITTER, rest, values, reason=reason)


def _may_vary(case: Case) -> bool:
    """Whether batches may be longer on one rank than on another.

    Of texts that are padded to the longest they are; a workload of the user's own does not report it.
    """
    workload = case.config.workload
    is_padded = isinstance(workload, TextSpec) and workload.padding == "longest"
    return workload.input == "real" and (is_padded or isinstance(workload, OwnCodeSpec))
