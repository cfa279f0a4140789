"""Are a trial's devices alike? Each alone, and the rank that makes the others wait."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.estimates.statistics import Estimate, geometric, trimmed_mean
from raybench.records.measurements import StepsResult
from raybench.records.record import TrialRecord

UNEVEN_LEAST = 0.02  # relative
UNEVEN_SIGNIFICANCE = 0.01  # with 0.05, one steady trial in twenty would have it
STRAGGLER_LEAST = 0.02  # relative


def uneven(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    """Devices whose own step times differ: two-sample t on the logarithms, Bonferroni over all pairs."""
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
    if math.expm1(apart) < UNEVEN_LEAST or apart < half:
        return None
    return Finding(
        FindingName.UNEVEN_DEVICES,
        Severity.WARNING,
        record.trial_id,
        f"alone, rank {slow} takes {math.expm1(apart):.1%} [{math.expm1(apart - half):.1%}, "
        f"{math.expm1(apart + half):.1%}] longer than rank {fast} (99% interval, {num_blocks} plain blocks)",
        f"every step waits for rank {slow}: compare its clock, temperature and power limit with the others', "
        "or leave it out with scaling.placement",
        {"slow_rank": slow, "fast_rank": fast, "spread_ratio": math.expm1(apart), "blocks": num_blocks},
    )


def straggler(measurement: StepsResult) -> tuple[int, Estimate, Estimate] | None:
    """The rank that takes longest in ``local``, where no rank waits for another.

    Returns the rank, its time over the median of the others as a ratio, and the same as a difference in s;
    None where ranks cannot be compared.
    """
    blocks = [block for each in measurement.rounds if (block := each.block("local")) is not None]
    if len(blocks) < 2 or len(blocks[0].ranks) < 2:
        return None
    times = np.array([block.step_time_s for block in blocks])
    ranks = times.shape[1]
    others = np.column_stack([np.median(np.delete(times, rank, axis=1), axis=1) for rank in range(ranks)])
    ratios = [geometric(times[:, rank] / others[:, rank]) for rank in range(ranks)]
    worst = max(range(ranks), key=lambda rank: ratios[rank].value)
    return blocks[0].ranks[worst], ratios[worst], trimmed_mean(times[:, worst] - others[:, worst])


def straggling(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    """The rank that the others wait for: slower than they are in ``local``, by 2% at least."""
    slowest = straggler(measurement)
    if slowest is None:
        return None
    rank, ratio, excess_s = slowest
    if ratio.low <= 1 or ratio.value - 1 < STRAGGLER_LEAST:
        return None
    return Finding(
        FindingName.STRAGGLER,
        Severity.WARNING,
        record.trial_id,
        f"rank {rank} takes {excess_s.value * 1e3:.2f} ms [{excess_s.low * 1e3:.2f}, "
        f"{excess_s.high * 1e3:.2f}] longer than the others in every step, {ratio.value - 1:.1%} "
        f"({ratio.n} rounds, no communication)",
        f"find out what else uses rank {rank}'s device or host, or leave it out with scaling.placement",
        {"rank": rank, "excess_s": excess_s.value, "excess_ratio": ratio.value - 1, "rounds": ratio.n},
    )
