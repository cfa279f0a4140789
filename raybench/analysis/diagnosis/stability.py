"""Is a trial's measurement steady, and are its devices alike? Each doubt is a ``Finding``."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.estimates.rounds import Series, level, series
from raybench.analysis.estimates.statistics import TRIM, Estimate, geometric, trimmed_mean
from raybench.analysis.estimates.stopping import asked_half_width, reached_half_width
from raybench.analysis.loss_parity import loss_parity
from raybench.records.measurements import StepsResult
from raybench.records.record import TrialRecord

OUTLIER_SCORE = 3.5  # modified z-score
OUTLIER_LEAST = 0.10  # relative; less is no outlier, however quiet the other rounds
DRIFT_SIGNIFICANCE = 0.01
DRIFT_LEAST = 0.02  # relative, from the first round to the last
UNEVEN_LEAST = 0.02  # relative
UNEVEN_SIGNIFICANCE = 0.01  # with 0.05, one steady trial in twenty would have it
STRAGGLER_LEAST = 0.02  # relative
IDLE_LOAD = 1.0  # processes that any machine may run
CLOCK_DROP = 0.10  # relative, from the fastest round


def findings(record: TrialRecord) -> list[Finding]:
    """What is to be said against the measurement of a record; nothing for one that is not complete."""
    if record.steps is None:
        return []
    every = [check(record, record.steps) for check in _CHECKS]
    return [finding for finding in every if finding is not None]


def outlier_rounds(values: Series) -> NDArray[np.intp]:
    """The rounds whose logarithm has a modified z-score over 3.5 and that are 10% off the median at least.

    Iglewicz and Hoaglin (1993), "How to detect and handle outliers": 0.6745 (x - median) / MAD.
    """
    logs = np.log(values)
    off = np.abs(logs - np.nanmedian(logs))
    spread = float(np.nanmedian(off)) / 0.6745
    return np.flatnonzero((off > OUTLIER_SCORE * spread) & (off > OUTLIER_LEAST))


def mann_kendall(values: Series) -> float:
    """The two-sided significance of a monotone trend, normal approximation with continuity correction.

    Mann (1945), "Nonparametric tests against trend", Econometrica 13. Outliers do not sway it.
    """
    n = len(values)
    later = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    score = float(later.sum())
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = (abs(score) - 1) / deviation if score else 0.0
    return float(2 * ndtr(-max(z, 0.0)))


def theil_sen(at: Series, values: Series) -> float:
    """The median slope over all pairs of points: Sen (1968), J. Am. Stat. Assoc. 63."""
    i, j = np.triu_indices(len(values), 1)
    apart = at[j] - at[i]
    slopes = (values[j] - values[i])[apart > 0] / apart[apart > 0]
    return float(np.median(slopes)) if len(slopes) else 0.0


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


def _watched(measurement: StepsResult) -> Series | None:
    values = series(measurement, "synced")
    return values if values is not None else series(measurement, "plain")


def _outliers(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    values = _watched(measurement)
    if values is None:
        return None
    found, num_rounds = outlier_rounds(values), len(measurement.rounds)
    if not len(found):
        return None
    furthest = found[np.argmax(np.abs(np.log(values[found] / np.nanmedian(values))))]
    worst = float(values[furthest] / np.nanmedian(values))
    too_many = len(found) > 2 * TRIM * num_rounds
    return Finding(
        FindingName.OUTLIER_ROUNDS,
        Severity.WARNING if too_many else Severity.NOTE,
        record.trial_id,
        f"{len(found)} of {num_rounds} rounds lie apart from the rest (rounds "
        f"{', '.join(str(int(index)) for index in found[:8])}{', ...' if len(found) > 8 else ''}); "
        f"the furthest took {worst:.2f} times the median",
        "something else used the machine: stop it and measure again"
        if too_many
        else "the trimmed mean leaves them out: nothing to do",
        {"rounds": num_rounds, "outliers": len(found), "worst_ratio": worst},
    )


def _drift(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    values = _watched(measurement)
    if values is None:
        return None
    kept = np.isfinite(values)
    at_s = np.array([each.at_s for each in measurement.rounds])[kept]
    logs = np.log(values[kept])
    significance = mann_kendall(logs)
    total = math.expm1(theil_sen(at_s, logs) * float(at_s[-1] - at_s[0]))
    if significance >= DRIFT_SIGNIFICANCE or abs(total) < DRIFT_LEAST:
        return None
    return Finding(
        FindingName.DRIFT,
        Severity.NOTE,
        record.trial_id,
        f"the step time changed by {total:+.1%} over {at_s[-1] - at_s[0]:.1f} s ({len(logs)} rounds, "
        f"Theil-Sen; Mann-Kendall p = {significance:.1g})",
        "efficiency is made of ratios within rounds, in which drift cancels; for the step time itself, warm "
        "up longer (measure.warmup_steps) or look at clocks and temperature",
        {"change_ratio": total, "significance": significance, "rounds": len(logs)},
    )


def _noisy(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    reached, request = reached_half_width(measurement.rounds), record.request
    assert request.kind == "steps"  # it has a measurement of steps
    asked = asked_half_width(request.measure, request.config.device)
    if reached is None or measurement.stopped_by != "max_seconds" or reached <= asked:
        return None
    num_rounds = len(measurement.rounds)
    needed_s = measurement.measure_s * (reached / asked) ** 2
    return Finding(
        FindingName.NOISY_MEASUREMENT,
        Severity.WARNING,
        record.trial_id,
        f"the half-width is {reached:.1%} after {num_rounds} rounds in {measurement.measure_s:.0f} s, "
        f"{asked:.1%} was asked",
        f"it shrinks with the square root of time: --set measure.max_seconds={_rounded_up(needed_s)}, or a "
        "quieter machine",
        {
            "half_width_ratio": reached,
            "asked_ratio": asked,
            "needed_s": needed_s,
            "rounds": num_rounds,
        },
    )


def _uneven(record: TrialRecord, measurement: StepsResult) -> Finding | None:
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


def _straggler(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    found = straggler(measurement)
    if found is None:
        return None
    rank, ratio, excess_s = found
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


def _load(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    loads = [each.load_average for each in measurement.rounds if each.load_average is not None]
    if not loads:
        return None
    config = record.config
    ours = config.world_size * (config.cpus_per_worker + config.setting.workers)
    load = float(np.median(loads))
    if load <= 1.25 * ours + IDLE_LOAD:
        return None
    return Finding(
        FindingName.LOADED_MACHINE,
        Severity.WARNING,
        record.trial_id,
        f"the host's load average was {load:.1f}, of which {ours} are this trial's ({len(loads)} rounds)",
        "see what else runs there (top), and measure again without it",
        {"load": load, "own_load": ours, "rounds": len(loads)},
    )


def _throttled(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    num_rounds = len(measurement.rounds)
    throttled = [
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
    if not throttled and drop < CLOCK_DROP:
        return None
    said = []
    if throttled:
        said.append(f"the device said so in {len(throttled)} of {num_rounds} rounds (rank {_listed(ranks)})")
    if drop >= CLOCK_DROP:
        said.append(f"a clock fell by {drop:.0%} between rounds")
    return Finding(
        FindingName.THROTTLING,
        Severity.WARNING,
        record.trial_id,
        "; ".join(said),
        "look at temperature and power limit (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE), and at the governor",
        {"throttled_rounds": len(throttled), "rounds": num_rounds, "clock_drop_ratio": drop},
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


def _oversubscribed(record: TrialRecord, measurement: StepsResult) -> Finding | None:
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
    values = _watched(measurement)
    if values is None:
        return "unknown"
    found = level(values).scaled(1e3)
    return f"{found.value:.1f} ms [{found.low:.1f}, {found.high:.1f}], {found.n} rounds"


def _listed(ranks: list[int]) -> str:
    return ", ".join(str(rank) for rank in ranks)


def _losses(record: TrialRecord, measurement: StepsResult) -> Finding | None:
    verdict = loss_parity(record)
    if verdict is None or verdict.agrees:
        return None
    strategy, gradient = record.config.setting.strategy, ""
    if verdict.gradient_difference is not None:
        gradient = (
            f", its first gradient by {verdict.gradient_difference:.2g} "
            f"(tolerance {verdict.gradient_tolerance:g})"
        )
    evidence = (
        f"{strategy}'s losses of the first {verdict.steps} steps differ from one device's on the same "
        f"samples by up to {verdict.relative_difference:.2g} (relative, tolerance {verdict.tolerance:g})"
        f"{gradient}"
    )
    explained = verdict.may_differ
    return Finding(
        FindingName.LOSSES_DISAGREE,
        Severity.NOTE if explained else Severity.PROBLEM,
        record.trial_id,
        f"{evidence}: {'; '.join(explained)}" if explained else evidence,
        "compare accuracies, not losses step by step"
        if explained
        else "find out what the strategy computes otherwise before its speed is used",
        {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance},
    )


def _rounded_up(seconds: float) -> int:
    digits: int = 10 ** max(len(str(int(seconds))) - 2, 0)
    return int(math.ceil(seconds / digits) * digits)


_CHECKS: tuple[Callable[[TrialRecord, StepsResult], Finding | None], ...] = (
    _oversubscribed,
    _noisy,
    _outliers,
    _drift,
    _load,
    _throttled,
    _uneven,
    _straggler,
    _losses,
)
