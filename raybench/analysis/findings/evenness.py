"""Are a trial's devices alike? The rank that makes the others wait, and devices that differ alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Self

import numpy as np

from raybench.analysis.findings.case import Case, OfTrial, PartOfStep
from raybench.analysis.findings.finding import FindingName, Need, Severity
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
from raybench.spec.workloads import TextSpec

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
        spread = _spread(case.visits)
        if spread is None or not spread.is_certain or case.finding(Straggler) is not None:
            return None
        return cls(case, spread)

    @property
    def explains(self) -> Estimate | None:
        case, n, by = self.case, self.case.config.world_size, self.spread.by
        # of one slow device and n - 1 others
        mean_s = case.parts.ideal.value if case.parts.ideal else case.step_s
        return by.scaled(mean_s / (1 + by.value / n) * (1 - 1 / n)) if n > 1 else None

    @property
    def values(self) -> dict[str, float]:
        return {
            "slow_rank": self.spread.slow,
            "fast_rank": self.spread.fast,
            "spread_ratio": self.spread.by.value,
            "blocks": self.spread.num_blocks,
        }


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


def straggler(visits: Sequence[StepsResult]) -> tuple[int, Estimate, Estimate] | None:
    """The rank that takes longest in ``local``, where no rank waits for another.

    Returns the rank, its time over the median of the others as a ratio, and the same as a difference in s,
    each as one of so many ranks: the slowest of several that are alike is slow by chance. None where ranks
    cannot be compared.
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
        slowest = straggler(case.visits)
        if slowest is None:
            return None
        rank, ratio, excess_s = slowest
        if ratio.low <= 1 or ratio.value - 1 < STRAGGLER_LEAST:
            return None
        return cls(case, rank, ratio, excess_s, _spread(case.visits))

    @property
    def explains(self) -> Estimate | None:
        return self.excess_s.scaled(1 - 1 / self.case.config.world_size)

    @property
    def slow_alone(self) -> Spread | None:
        spread = self.spread
        return spread if spread is not None and spread.is_certain and spread.slow == self.rank else None

    @property
    def is_under_load(self) -> bool:
        """Whether other processes took so much of its host that they may be what slows it."""
        return self.cores_of_others >= TAKEN_LEAST

    @cached_property
    def cores_of_others(self) -> float:
        """What other processes took of the rank's host, in cores: the median over the rounds."""
        place = place_of(self.case.record, self.rank)
        told = [each.other_cores[place] for each in self.case.steps.rounds if place < len(each.other_cores)]
        known = [each for each in told if each is not None]
        return float(np.median(known)) if known else 0.0

    @cached_property
    def in_other_trials(self) -> bool | None:
        """Whether half of the other trials at least have the same slow device; None: none tells."""
        beside, own = self.case.beside, self.case.record
        there = {each.trial_id for each in beside.records} | {own.trial_id}
        others = chain(
            (each for each in beside.records if each.trial_id != own.trial_id),
            (each for each in beside.elsewhere if each.trial_id not in there and self._has_device(each)),
        )
        spreads = (_spread([each.steps]) for each in islice(others, MOST_LOOKED_AT) if each.steps is not None)
        told = [each for each in spreads if each is not None]
        if not told:
            return None
        same = sum(each.is_certain and each.slow == self.rank for each in told)
        return 2 * same >= len(told)

    def _has_device(self, other: TrialRecord) -> bool:
        """Whether the rank worked in a trial of another world size or placement, on the same host."""
        own = self.case.record
        hosts = [
            each.hostnames[place] if (place := place_of(each, self.rank)) < len(each.hostnames) else ""
            for each in (own, other)
        ]
        return self.rank in other.ranks and hosts[0] == hosts[1]

    @property
    def values(self) -> dict[str, float]:
        return {
            "rank": self.rank,
            "excess_s": self.excess_s.value,
            "excess_ratio": self.ratio.value - 1,
            "rounds": self.ratio.n,
        }


def place_of(record: TrialRecord, rank: int) -> int:
    """The rank's index in what the record has of each rank."""
    return record.ranks.index(rank) if rank in record.ranks else rank


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

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return case.needs_variants(case.parts.skew)

    @property
    def name(self) -> FindingName:
        return FindingName.UNEVEN_BATCHES if varies(self.case) else FindingName.JITTER

    @property
    def values(self) -> dict[str, float]:
        return {"waited_s": self.part_s.value, "waited_share": self.share.value}


def varies(case: Case) -> bool:
    """Whether batches are longer on one rank than on another: of texts that are padded to the longest."""
    workload = case.config.workload
    return isinstance(workload, TextSpec) and workload.input == "real" and workload.padding == "longest"
