"""Are a trial's devices alike? The rank that makes the others wait, and devices that differ alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Self

import numpy as np

from raybench.analysis.findings.case import Case, OfTrial, PartOfStep
from raybench.analysis.findings.finding import Evidence, FindingName, NextStep, Severity, ms
from raybench.analysis.stats.rounds import device_spread
from raybench.analysis.stats.statistics import (
    Estimate,
    geometric,
    simultaneous,
    simultaneous_difference,
    trimmed_mean,
)
from raybench.records.record import TrialRecord
from raybench.records.results import StepsResult
from raybench.spec.workloads import FactorySpec, TextSpec

UNEVEN_LEAST = 0.02  # relative
STRAGGLER_LEAST = 0.02  # relative
TAKEN_LEAST = 0.1  # of a core, by other processes: from here on they may be what slows a rank
MOST_LOOKED_AT = 20  # other trials, for whether a device is slow in them too


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
        return self.by.value >= UNEVEN_LEAST and self.by.low >= 0


@dataclass(frozen=True)
class UnevenDevices(OfTrial):
    """Devices that differ alone, where nobody was seen to wait for them (else they are a straggler's)."""

    name = FindingName.UNEVEN_DEVICES
    severity = Severity.WARNING  # every step waits for the slow one
    spread: Spread

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """By 2% at least, certainly."""
        spread = _spread(case.steps)
        if spread is None or not spread.is_certain or case.finding(Straggler) is not None:
            return None
        return cls(case, spread)

    @property
    def explains(self) -> Estimate | None:
        case, n, by = self.case, self.case.config.world_size, self.spread.by
        # of one slow device and n - 1 others
        mean_s = case.parts.ideal.value if case.parts.ideal else case.step_s
        return by.scaled(mean_s / (1 + by.value / n) * (1 - 1 / n)) if n > 1 else None

    def evidence(self) -> Evidence:
        spread = self.spread
        return Evidence(
            f"{_alone_words(self.case.record, spread)} (99% interval, {spread.num_blocks} plain blocks)",
            {
                "slow_rank": spread.slow,
                "fast_rank": spread.fast,
                "spread_ratio": spread.by.value,
                "blocks": spread.num_blocks,
            },
        )

    def next_step(self) -> NextStep:
        return NextStep(
            f"every step waits for {_where(self.case.record, self.spread.slow)}: compare its clock, "
            "temperature and power limit with the others', or leave it out, where there are devices to spare "
            "(scaling.placement)"
        )


def _spread(measurement: StepsResult) -> Spread | None:
    """By the plain blocks, each on one device alone."""
    blocks = [block for each in measurement.rounds if (block := each.block("plain")) is not None]
    logs = np.log([block.step_time_s[0] for block in blocks])
    found = device_spread(logs, [block.ranks[0] for block in blocks])
    if found is None:
        return None
    apart, half = found.apart, found.half
    ends = [math.expm1(each) for each in (apart, apart - half, apart + half)]
    by = Estimate(ends[0], ends[1], ends[2], len(blocks))
    return Spread(found.slow, found.fast, by, len(blocks))


def _alone_words(record: TrialRecord, spread: Spread) -> str:
    slow = _where(record, spread.slow)
    return (
        f"alone, {slow} takes {spread.by.value:.1%} [{spread.by.low:.1%}, {spread.by.high:.1%}] longer "
        f"than rank {spread.fast}"
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


@dataclass(frozen=True)
class Straggler(OfTrial):
    """The rank that the others wait for: slower than they are in ``local``, by 2% at least.

    Whether it is slow alone too tells the device from what runs beside it.
    """

    name = FindingName.STRAGGLER
    severity = Severity.WARNING  # every step waits for it
    rank: int
    ratio: Estimate  # of its time to the median of the others'
    excess_s: Estimate
    spread: Spread | None  # of the devices alone

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Certainly slower, as one of so many ranks."""
        slowest = straggler(case.steps)
        if slowest is None:
            return None
        rank, ratio, excess_s = slowest
        if ratio.low <= 1 or ratio.value - 1 < STRAGGLER_LEAST:
            return None
        return cls(case, rank, ratio, excess_s, _spread(case.steps))

    @property
    def explains(self) -> Estimate | None:
        return self.excess_s.scaled(1 - 1 / self.case.config.world_size)

    @property
    def _slow_alone(self) -> Spread | None:
        spread = self.spread
        return spread if spread is not None and spread.is_certain and spread.slow == self.rank else None

    @cached_property
    def _doubt(self) -> str:
        """Why it may not be the device though it is slow alone too; empty where nothing else explains it."""
        others = self._cores_of_others()
        if others >= TAKEN_LEAST:
            return f"other processes took {others:.2f} cores of its host meanwhile"
        same = self._in_other_trials()
        if same is False:
            return "in the study's other trials that tell it is not the slowest"
        return "" if same else "no other trial of the study tells it"

    def _cores_of_others(self) -> float:
        """What other processes took of the rank's host, in cores: the median over the rounds."""
        place = _place(self.case.record, self.rank)
        told = [each.other_cores[place] for each in self.case.steps.rounds if place < len(each.other_cores)]
        known = [each for each in told if each is not None]
        return float(np.median(known)) if known else 0.0

    def _in_other_trials(self) -> bool | None:
        """Whether half of the other trials at least have the same slow device; None: none tells."""
        beside, own = self.case.beside, self.case.record
        there = {each.trial_id for each in beside.records} | {own.trial_id}
        others = chain(
            (each for each in beside.records if each.trial_id != own.trial_id),
            (each for each in beside.elsewhere if each.trial_id not in there and self._has_device(each)),
        )
        spreads = (_spread(each.steps) for each in islice(others, MOST_LOOKED_AT) if each.steps is not None)
        told = [each for each in spreads if each is not None]
        if not told:
            return None
        same = sum(each.is_certain and each.slow == self.rank for each in told)
        return 2 * same >= len(told)

    def _has_device(self, other: TrialRecord) -> bool:
        """Whether the rank worked in a trial of another world size or placement, on the same host."""
        own = self.case.record
        hosts = [
            each.hostnames[place] if (place := _place(each, self.rank)) < len(each.hostnames) else ""
            for each in (own, other)
        ]
        return self.rank in other.ranks and hosts[0] == hosts[1]

    def evidence(self) -> Evidence:
        record, alone = self.case.record, self._slow_alone
        if alone is not None:
            told = (
                f"perhaps the device itself, but {self._doubt}" if self._doubt else "it is the device itself"
            )
            cause = f"; {_alone_words(record, alone)}: {told}"
        elif self.spread is not None:
            cause = "; alone it is not certainly slower: it is what runs beside it"
        else:
            cause = ""
        excess = self.ratio.value - 1
        return Evidence(
            f"{_where(record, self.rank)} takes {ms(self.excess_s)} longer than the others in every step, "
            f"{excess:.1%} ({self.ratio.n} rounds, no communication){cause}",
            {
                "rank": self.rank,
                "excess_s": self.excess_s.value,
                "excess_ratio": excess,
                "rounds": self.ratio.n,
            },
        )

    def next_step(self) -> NextStep:
        where = _where(self.case.record, self.rank)
        if self._slow_alone is not None and self._doubt:
            step = f"measure again with nothing else at work; if {where} stays slow, compare its clock"
        elif self._slow_alone is not None:
            step = f"compare the clock, temperature and power limit of {where} with the others'"
        elif self.spread is not None:
            step = f"find out what else uses the device or host of {where} (top, nvidia-smi)"
        else:
            step = f"find out what else uses the device or host of {where}"
        return NextStep(f"{step}, or leave it out, where there are devices to spare (scaling.placement)")


def _place(record: TrialRecord, rank: int) -> int:
    return record.ranks.index(rank) if rank in record.ranks else rank


def _where(record: TrialRecord, rank: int) -> str:
    """The rank, and its node where the trial had several."""
    names, place = record.hostnames, _place(record, rank)
    if (record.nodes or 1) > 1 and place < len(names):
        return f"rank {rank} on node {names[place]}"
    return f"rank {rank}"


class TakingTurns(PartOfStep):
    """Ranks that wait for now one, now another, by 5% of the step: uneven batches, else the machine."""

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Skew less a straggler's is worth telling."""
        skew = case.parts.skew
        if skew is None:
            return None
        straggles = case.finding(Straggler)
        constant_s = straggles.explains.value if straggles and straggles.explains else 0.0
        rest = Estimate(
            skew.value - constant_s, skew.low - constant_s, skew.high - constant_s, skew.n, skew.starts
        )
        return cls(case, rest) if case.is_worth_telling(rest) else None

    @property
    def name(self) -> FindingName:
        return FindingName.UNEVEN_BATCHES if _varies(self.case) else FindingName.JITTER

    def evidence(self) -> Evidence:
        workload = self.case.config.workload
        if _varies(self.case):
            why = ": batches of uneven length, or other work that comes and goes; the times do not tell which"
        elif isinstance(workload, FactorySpec) and workload.input == "real":
            why = (
                ": the hosts do other work that comes and goes, or batches differ in length, which is not "
                "told of a workload of one's own"
            )
        else:
            why = ", though all batches have one shape: the hosts do other work that comes and goes"
        return Evidence(
            f"ranks wait {ms(self.part_s)} in a step for one that is another from step to step{why}",
            {"waited_s": self.part_s.value, "waited_share": self.share.value},
        )

    def next_step(self) -> NextStep:
        if _varies(self.case):
            return NextStep(
                "give all ranks batches of like length (sort by length, or pad to one shape); else see what "
                "runs on the hosts"
            )
        return NextStep("see what else runs on the hosts (top): stop it, or measure when it is done")


def _varies(case: Case) -> bool:
    workload = case.config.workload
    return isinstance(workload, TextSpec) and workload.input == "real" and workload.padding == "longest"
