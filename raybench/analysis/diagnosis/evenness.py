"""Are a trial's devices alike? The rank that makes the others wait, and ranks that take turns in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.words import ms
from raybench.analysis.estimates.simultaneous import simultaneous, simultaneous_difference
from raybench.analysis.estimates.statistics import Estimate, geometric, trimmed_mean
from raybench.records.measurements import StepsResult
from raybench.records.record import TrialRecord
from raybench.spec.workloads import FactorySpec, TextSpec

UNEVEN_LEAST = 0.02  # relative
UNEVEN_SIGNIFICANCE = 0.01  # with 0.05, one steady trial in twenty would have it
STRAGGLER_LEAST = 0.02  # relative


@dataclass(frozen=True)
class _Spread:
    """The slowest and the fastest device, each alone; relative, with a 99% interval."""

    slow: int
    fast: int
    by: Estimate
    num_blocks: int

    @property
    def is_certain(self) -> bool:
        """2% at least, and more than the noise."""
        return self.by.value >= UNEVEN_LEAST and self.by.low >= 0


def uneven(case: Case) -> Finding | None:
    """Devices that differ alone, where nobody was seen to wait for them (else they are a straggler's)."""
    spread = _spread(case.steps)
    if spread is None or not spread.is_certain or case.finding(straggling) is not None:
        return None
    n = case.config.world_size
    mean_s = (
        case.parts.ideal.value if case.parts.ideal else case.step_s
    )  # of one slow device and n - 1 others
    waits_s = spread.by.scaled(mean_s / (1 + spread.by.value / n) * (1 - 1 / n))
    return Finding(
        FindingName.UNEVEN_DEVICES,
        Severity.WARNING,
        case.record.trial_id,
        f"{_alone_words(case.record, spread)} (99% interval, {spread.num_blocks} plain blocks)",
        f"every step waits for {_where(case.record, spread.slow)}: compare its clock, temperature and "
        "power limit "
        "with the others', or leave it out with scaling.placement",
        {
            "slow_rank": spread.slow,
            "fast_rank": spread.fast,
            "spread_ratio": spread.by.value,
            "blocks": spread.num_blocks,
        },
        explains=waits_s if n > 1 else None,
    )


def _spread(measurement: StepsResult) -> _Spread | None:
    """Two-sample t on the logarithms of the plain blocks, Bonferroni over all pairs of devices."""
    by_rank: dict[int, list[float]] = {}
    for each in measurement.rounds:
        block = each.block("plain")
        if block is not None:
            by_rank.setdefault(block.ranks[0], []).append(math.log(block.step_time_s[0]))
    num_blocks, num_ranks = sum(map(len, by_rank.values())), len(by_rank)
    degrees = num_blocks - num_ranks
    if num_ranks < 2 or degrees < 2:
        return None
    means = {rank: float(np.mean(logs)) for rank, logs in by_rank.items()}
    within = sum(float(((np.array(logs) - means[rank]) ** 2).sum()) for rank, logs in by_rank.items())
    slow, fast = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    error = math.sqrt(within / degrees * (1 / len(by_rank[slow]) + 1 / len(by_rank[fast])))
    num_pairs = len(list(combinations(by_rank, 2)))
    apart = means[slow] - means[fast]
    half = float(stdtrit(degrees, 1 - UNEVEN_SIGNIFICANCE / 2 / num_pairs)) * error
    ends = [math.expm1(each) for each in (apart, apart - half, apart + half)]
    return _Spread(slow, fast, Estimate(ends[0], ends[1], ends[2], num_blocks), num_blocks)


def _alone_words(record: TrialRecord, spread: _Spread) -> str:
    slow = _where(record, spread.slow)
    return (
        f"alone, {slow} takes {spread.by.value:.1%} [{spread.by.low:.1%}, {spread.by.high:.1%}] longer "
        "than rank "
        f"{spread.fast}"
    )


def straggler(measurement: StepsResult) -> tuple[int, Estimate, Estimate] | None:
    """The rank that takes longest in ``local``, where no rank waits for another.

    Returns the rank, its time over the median of the others as a ratio, and the same as a difference in s,
    each as one of so many ranks: the slowest of several that are alike is slow by chance. None where ranks
    cannot be compared.
    """
    blocks = [block for each in measurement.rounds if (block := each.block("local")) is not None]
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


def straggling(case: Case) -> Finding | None:
    """The rank that the others wait for: slower than they are in ``local``, by 2% at least.

    It explains what the mean rank waits for it: its excess over the others, less its own part of the mean.
    Whether it is slow alone too tells the device from what runs beside it.
    """
    slowest = straggler(case.steps)
    if slowest is None:
        return None
    rank, ratio, excess_s = slowest
    if ratio.low <= 1 or ratio.value - 1 < STRAGGLER_LEAST:
        return None
    spread, where = _spread(case.steps), _where(case.record, rank)
    alone = spread is not None and spread.is_certain and spread.slow == rank
    if alone and spread is not None:
        cause = f"; {_alone_words(case.record, spread)}: it is the device itself"
        step = f"compare the clock, temperature and power limit of {where} with the others'"
    elif spread is not None:
        cause = "; alone it is not certainly slower: it is what runs beside it"
        step = f"find out what else uses the device or host of {where} (top, nvidia-smi)"
    else:
        cause, step = "", f"find out what else uses the device or host of {where}"
    return Finding(
        FindingName.STRAGGLER,
        Severity.WARNING,
        case.record.trial_id,
        f"{where} takes {ms(excess_s)} longer than the others in every step, {ratio.value - 1:.1%} "
        f"({ratio.n} rounds, no communication){cause}",
        f"{step}, or leave it out with scaling.placement",
        {"rank": rank, "excess_s": excess_s.value, "excess_ratio": ratio.value - 1, "rounds": ratio.n},
        explains=excess_s.scaled(1 - 1 / case.config.world_size),
    )


def uneven_batches(case: Case) -> Finding | None:
    """Ranks that wait for now one, now another: skew beyond what a straggler explains, by 5% of the step.

    Only texts and one's own data may be longer on one rank than on another; batches of one shape are made
    uneven by the machine: then it is jitter.
    """
    skew, straggles = case.parts.skew, case.finding(straggling)
    if skew is None:
        return None
    constant_s = straggles.explains.value if straggles and straggles.explains else 0.0
    rest = Estimate(
        skew.value - constant_s, skew.low - constant_s, skew.high - constant_s, skew.n, skew.starts
    )
    if not case.is_worth_telling(rest):
        return None
    workload = case.config.workload
    may_vary = isinstance(workload, FactorySpec) or (
        isinstance(workload, TextSpec) and workload.input == "real"
    )
    even = not may_vary
    words = f"ranks wait {ms(rest)} in a step for one that is another from step to step"
    return Finding(
        FindingName.JITTER if even else FindingName.UNEVEN_BATCHES,
        case.severity(rest),
        case.record.trial_id,
        f"{words}, though all batches have one shape: the hosts do other work that comes and goes"
        if even
        else f"{words}: batches of uneven length, or other work that comes and goes; the times do not "
        "tell which",
        "a core of each host for what runs beside the workers; see what that is (top)"
        if even
        else "give all ranks batches of like length (sort by length, or pad to one shape); else see what "
        "runs on the hosts",
        {"waited_s": rest.value, "waited_share": rest.value / case.step_s},
        explains=rest,
    )


def _where(record: TrialRecord, rank: int) -> str:
    """The rank, and its node where the trial had several."""
    names = record.hostnames
    place = record.ranks.index(rank) if rank in record.ranks else rank
    if (record.nodes or 1) > 1 and place < len(names):
        return f"rank {rank} on node {names[place]}"
    return f"rank {rank}"
