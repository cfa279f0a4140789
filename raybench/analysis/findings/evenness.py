"""What makes a setting's figures those of a slower machine, or limits what they are good for.

A rank that makes the others wait, devices that differ alone, clocks, cores, links and memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from raybench.analysis.findings.case import LEAST_SHARE, MUCH, Case
from raybench.analysis.findings.finding import Finding, FindingName, Reason, Severity
from raybench.analysis.parity import wrong_losses
from raybench.analysis.stats.rounds import blocks_of
from raybench.analysis.stats.statistics import (
    Estimate,
    of_log,
    simultaneous,
    sum_of,
    t_quantile,
    trimmed_mean,
)
from raybench.records.record import TrialRecord
from raybench.records.results import Beside, Round, StepsResult
from raybench.spec.workloads import OwnCodeSpec, ScriptSpec, TextSpec

LEAST_EXCESS = 0.02  # relative, of the slow rank
RARE_LEAST = 0.03  # of the typical step: a difference of less is not worth a word
CLOCK_DROP = 0.10  # relative, from the fastest round
WARMER_C = 5.0  # degrees, from the first round to the last
FP16S = "grad_scaler.py"  # torch's own, which has to know whether a gradient is finite
NAMED_LINES = 3
PAIRS_SIGNIFICANCE = 0.01  # with 0.05, one steady trial in twenty would have devices apart


def straggler(case: Case) -> Finding | None:
    """The rank that the others wait for, or that is slow alone; every step waits for it."""
    return case.finding(slow_in_step) or slow_alone(case)


def slow_in_step(case: Case) -> Finding | None:
    """The rank that is certainly slower in ``local``, as one of all ranks."""
    slowest = slowest_rank(case.visits, case.fit.pool.spreads.unit)
    if slowest is None:
        return None
    rank, ratio, excess_s = slowest
    if ratio.low <= 1 or ratio.value - 1 < LEAST_EXCESS:
        return None
    values = {"excess_s": excess_s.value, "excess_ratio": ratio.value - 1, "rounds": ratio.n}
    explains = excess_s.scaled(1 - 1 / case.config.world_size)
    return _straggler(case, rank, values, explains, _why_slow(case, rank))


def slow_alone(case: Case) -> Finding | None:
    """The device that is slow alone, where no rank was certainly waited for."""
    spread = _spread(case)
    if spread is None or not spread.is_certain or case.finding(slow_in_step) is not None:
        return None
    by, n = spread.by, case.config.world_size
    values = {"fast_rank": spread.fast, "spread_ratio": by.value, "blocks": by.n}
    # of one slow device and n - 1 others
    mean_s = case.parts.ideal.value if case.parts.ideal else case.step_s
    explains = by.scaled(mean_s / (1 + by.value / n) * (1 - 1 / n)) if n > 1 else None
    return _straggler(case, spread.slow, values, explains, Reason.SLOW_ALONE)


def _straggler(
    case: Case, rank: int, values: Mapping[str, float], explains: Estimate | None, reason: Reason | None
) -> Finding:
    return case.found(
        FindingName.STRAGGLER,
        Severity.WARNING,
        {"rank": rank, **values},
        explains=explains,
        reason=reason,
        named=node_of(case.record, rank),
    )


def node_of(record: TrialRecord, rank: int) -> dict[str, str]:
    """The rank's node, where the trial had several."""
    place = record.ranks.index(rank) if rank in record.ranks else rank
    is_known = (record.nodes or 1) > 1 and place < len(record.hostnames)
    return {"node": record.hostnames[place]} if is_known else {}


def slowest_rank(visits: Sequence[StepsResult], unit: float) -> tuple[int, Estimate, Estimate] | None:
    """The rank that takes longest in ``local``, where no rank waits for another.

    Returns the rank, its time over the median of the others as a ratio, and the same as a difference in s,
    each as one of all ranks: the slowest of several equal ones is slow by chance. ``unit``: by how much one
    rank differs from trial to trial, relative. None where ranks cannot be compared.
    """
    blocks = [block for visit in visits for block in blocks_of(visit.rounds, "local")]
    blocks = [block for block in blocks if block.ranks == blocks[0].ranks]
    if len(blocks) < 2 or len(blocks[0].ranks) < 2:
        return None
    times = np.array([block.step_time_s for block in blocks])
    ranks = times.shape[1]
    others = np.column_stack([np.median(np.delete(times, rank, axis=1), axis=1) for rank in range(ranks)])
    logs = [trimmed_mean(np.log(times[:, rank] / others[:, rank])) for rank in range(ranks)]
    worst = max(range(ranks), key=lambda rank: logs[rank].value)
    half = t_quantile(math.inf) * unit * math.sqrt(ranks / (ranks - 1) / len(visits))
    of_trials = Estimate(0.0, -half, half, len(blocks))
    log = simultaneous(sum_of(logs[worst], of_trials), ranks)
    of_trials_s = of_trials.scaled(float(np.median(others[:, worst])))
    excess_s = sum_of(trimmed_mean(times[:, worst] - others[:, worst]), of_trials_s)
    return blocks[0].ranks[worst], log.map(math.exp), simultaneous(excess_s, ranks)


@dataclass(frozen=True)
class Spread:
    """The slowest and the fastest device, each alone; relative, with a 99% interval, n counts blocks."""

    slow: int
    fast: int
    by: Estimate
    ranks: frozenset[int]  # of all devices that ran alone

    @property
    def is_certain(self) -> bool:
        """2% at least, and more than the noise."""
        return self.by.value >= LEAST_EXCESS and self.by.low >= 0


def _spread(case: Case) -> Spread | None:
    """By the plain blocks, each on one device alone, over the mean of their visit.

    Two-sample t, Bonferroni over all pairs of devices, and what a device differs by from trial to trial. None
    with one device, or fewer than two blocks more than devices.
    """
    devices, logs = list[int](), list[float]()
    for visit in case.visits:
        there = blocks_of(visit.rounds, "plain")
        own = np.log([block.step_time_s[0] for block in there])
        devices += [block.ranks[0] for block in there]
        logs += (own - own.mean()).tolist() if there else []
    names, turns = np.unique(np.array(devices, dtype=np.int64), return_inverse=True)
    degrees = len(devices) - len(names)
    if len(names) < 2 or degrees < 2:
        return None
    counts, values = np.bincount(turns), np.array(logs)
    means = np.bincount(turns, values) / counts
    within = float(((values - means[turns]) ** 2).sum())
    slow, fast = int(means.argmax()), int(means.argmin())
    error = math.sqrt(within / degrees * (1 / counts[slow] + 1 / counts[fast]))
    num_pairs = len(names) * (len(names) - 1) / 2
    confidence = 1 - PAIRS_SIGNIFICANCE / num_pairs
    of_trials = case.fit.pool.spreads.unit * math.sqrt(2 / len(case.visits))
    half = math.hypot(t_quantile(degrees, confidence) * error, t_quantile(math.inf, confidence) * of_trials)
    by = of_log(float(means[slow] - means[fast]), half, len(devices)).plus(-1)
    return Spread(int(names[slow]), int(names[fast]), by, frozenset(devices))


def _why_slow(case: Case, rank: int) -> Reason | None:
    """Whether it is the device itself; None where nothing is known of the device alone."""
    spread = _spread(case)
    if spread is None or rank not in spread.ranks:
        return None
    return Reason.DEVICE if spread.is_certain and spread.slow == rank else Reason.NOT_ALONE


def jitter(case: Case) -> Finding | None:
    """Skew less a straggler's: by uneven batches, else by the machine."""
    skew, slow = case.parts.skew, case.finding(slow_in_step)
    if skew is None:
        return None
    rest = skew.plus(-slow.explains.value) if slow and slow.explains else skew
    reason = Reason.BATCHES if _may_vary(case) else None
    return case.part(FindingName.JITTER, rest, "waited", reason=reason)


def _may_vary(case: Case) -> bool:
    """Whether batches may be longer on one rank than on another.

    Of texts that are padded to the longest they are; scripts and workloads of the user's own do not say.
    """
    workload = case.config.workload
    is_padded = isinstance(workload, TextSpec) and workload.padding == "longest"
    is_real = workload.input == "real" and (is_padded or isinstance(workload, OwnCodeSpec))
    return is_real or isinstance(workload, ScriptSpec)


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
    shares = (each for visit in case.visits for each in visit.quota_used_up if each is not None)
    share = max(shares, default=0.0)
    if share < LEAST_SHARE:
        return None
    values = {"used_up_share": share}
    return case.found(FindingName.TOO_FEW_CORES, Severity.WARNING, values, reason=Reason.QUOTA)


def throttling(case: Case) -> Finding | None:
    """A device held its clock down; or its clock fell by a tenth, and it cannot say why."""
    rounds, ranks = case.rounds, case.record.ranks
    slowed = sum(any(each.throttled) for each in rounds)
    drop = max(_clock_drop(visit.rounds) for visit in case.visits)
    told = [flag for each in rounds for flag in each.throttled if flag is not None]
    if slowed or (drop >= CLOCK_DROP and not told):  # one that has no such reason is at its power cap
        flags = (zip(ranks, each.throttled, strict=False) for each in rounds)
        reported = sorted({rank for of_round in flags for rank, is_slow in of_round if is_slow})
        return case.found(
            FindingName.THROTTLING,
            Severity.WARNING,
            {"throttled_rounds": slowed, "rounds": len(rounds), "clock_drop_ratio": drop},
            reason=None if slowed else Reason.CLOCK_FELL,
            named={"ranks": ", ".join(map(str, reported))},
        )
    return None


def _clock_drop(rounds: Sequence[Round]) -> float:
    """The largest fall of any rank's clock from the first half of the rounds to the second, relative."""
    drops = [0.0]
    for of_rank in zip(*(each.clock_mhz for each in rounds), strict=False):
        clocks = [clock for clock in of_rank if clock is not None]
        # GPUs only change their mind for long; one low reading may be an idle moment, so the median counts.
        if len(clocks) >= 4:
            half = len(clocks) // 2
            drops.append(1 - float(np.median(clocks[half:])) / max(float(np.median(clocks[:half])), 1.0))
    return max(drops)


def still_warming(case: Case) -> Finding | None:
    """GPUs that were warmer at the end than before: what they reach for seconds they may not keep for hours.

    Before is the setting's visit before the last: the load was the same. Of one visit it is its first round.
    """
    every = case.fit.visits(case.record)
    last = every[-1]
    assert last.steps is not None
    # in another group a rank may have another GPU
    earlier = [each.steps.rounds[-1] for each in every[:-1] if each.steps and each.group == last.group]
    before, after = earlier[-1] if earlier else last.steps.rounds[0], last.steps.rounds[-1]
    told = zip(last.ranks, before.temperature_c, after.temperature_c, strict=False)
    rank, then, now = max(
        ((rank, then, now) for rank, then, now in told if then is not None and now is not None),
        key=lambda each: each[2] - each[1],
        default=(0, 0.0, 0.0),
    )
    if now - then < WARMER_C:
        return None
    values = {"rank": rank, "before_c": then, "after_c": now}
    for name, round_ in (("before_mhz", before), ("after_mhz", after)):
        clock = dict(zip(last.ranks, round_.clock_mhz, strict=False)).get(rank)
        values |= {} if clock is None else {name: clock}
    named = node_of(last, rank)
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
    own, most = f"{link.generation} x{link.lanes}", f"{link.most_generation} x{link.most_lanes}"
    values, named = {"ranks": len(narrow), "rank": rank}, {"link": own, "most_link": most}
    named |= node_of(case.record, rank)
    return case.found(FindingName.NARROW_PCIE, Severity.WARNING, values, named=named)


def far_cores(case: Case) -> Finding | None:
    """A rank without a core on its GPU's NUMA node: what it costs is known where the rank is the slow one."""
    nodes = zip(case.record.ranks, case.steps.numa_nodes, strict=False)
    far = {rank: each.node for rank, each in nodes if each is not None and not each.cores}
    if not far or case.config.setting.strategy == "dp":  # one process, which reads one GPU's
        return None
    slow = case.finding(straggler)
    is_slow = slow is not None and slow.values["rank"] in far
    rank = int(slow.values["rank"]) if slow is not None and is_slow else next(iter(far))
    values, named = {"ranks": len(far), "rank": rank, "numa_node": far[rank]}, node_of(case.record, rank)
    severity, reason = (Severity.WARNING, Reason.SLOW_TOO) if is_slow else (Severity.NOTE, None)
    return case.found(FindingName.FAR_CORES, severity, values, reason=reason, named=named)


def little_memory(case: Case) -> Finding | None:
    """Torch's allocator found a GPU full, and emptied its cache to go on."""
    retries = sum(sum(visit.allocator_retries) for visit in case.visits)  # on all ranks
    if not retries:
        return None
    values = {"retries": retries, "rounds": len(case.rounds)}
    return case.found(FindingName.LITTLE_MEMORY, Severity.WARNING, values)


def losses_disagree(case: Case) -> Finding | None:
    """The first losses or gradient are not one device's."""
    verdict = wrong_losses(case.fit.visits(case.record))
    if verdict is None:
        return None
    values = {"relative_difference": verdict.relative_difference, "tolerance": verdict.tolerance}
    if verdict.gradient_difference is not None:
        values["gradient_difference"] = verdict.gradient_difference
    named = {"strategy": case.config.setting.strategy}
    which = Reason.GRADIENT if verdict.relative_difference <= verdict.tolerance else None
    return case.found(FindingName.LOSSES_DISAGREE, Severity.PROBLEM, values, reason=which, named=named)


def same_samples(case: Case) -> Finding | None:
    """Each rank goes through the whole data set: more devices finish an epoch no sooner."""
    if not case.steps.same_samples:
        return None
    return case.found(FindingName.SAME_SAMPLES, Severity.PROBLEM, {})


def not_all_measured(case: Case) -> Finding | None:
    """What failed when the rounds were done: they stand, and what belongs to them is missing."""
    found = case.steps.missing
    # losses are compared where they can be; that they are not is nothing to act on
    missing = {name: found[name] for name in get_args(Beside) if name in found and name != "parity"}
    if not missing:
        return None
    named = {"missing": ", ".join(f"{name.replace('_', ' ')}: {why}" for name, why in missing.items())}
    return case.found(FindingName.NOT_ALL_MEASURED, Severity.NOTE, {}, named=named)


def unfused_optimizer(case: Case) -> Finding | None:
    """Its update, timed alone, takes longer than a fused one: of the optimizer's phase the same share.

    On CPUs Adam's took 3 to 24 times as long (torch 2.14.1), the more the smaller the tensors.
    """
    took, own_s, fused_s = case.phases().get("optimizer"), case.steps.update_s, case.steps.fused_update_s
    if took is None or own_s is None or fused_s is None:
        return None
    # the phase has more in it than the update, as clipping
    saved = took.scaled(min(1 - fused_s / own_s, (own_s - fused_s) / took.value))
    values = {"optimizer_s": took.value, "fused_s": took.value - saved.value}
    fix = {"optimizer_kernels": "fused"}
    return case.part(FindingName.UNFUSED_OPTIMIZER, saved, "saved", values, fix=fix)
