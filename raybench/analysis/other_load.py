"""Other load on the cores while a trial was measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from raybench.records.requests import Configuration
from raybench.records.results import StepsResult


@dataclass(frozen=True)
class Load:
    """Of the host that is worst off."""

    host: int
    cores: int  # of the host
    spare: int  # of them, that the trial did not need
    taken: float  # cores' worth of time: the median of the host's rounds, in the visit in which it is most
    rounds: tuple[float, ...] = ()  # ``lost`` in each round in which it was told, of all visits

    @property
    def lost(self) -> float:
        """What others took beyond the cores to spare, as a share of all: at most so much of a step."""
        return max(0.0, self.taken - self.spare) / self.cores


def load_of(config: Configuration, visits: Iterable[StepsResult]) -> Load | None:
    """Of all rounds of a setting; None: it is not told."""
    each_needs, found = config.cpus_per_worker + config.setting.workers, list[Load]()
    for steps in visits:
        rounds = list[Load]()
        for round_ in steps.rounds:
            places = zip(steps.hosts, round_.other_cores, steps.host_cores, strict=False)
            loads = [
                Load(host, cores, max(cores - each_needs * steps.hosts.count(host), 0), taken)
                for host, taken, cores in set(places)  # ranks of one host tell the same
                if taken is not None
            ]
            rounds += sorted(loads, key=lambda one: (one.lost, one.taken - one.spare))[-1:]
        if rounds:
            # one round may have another host: the typical one is of the host that the middle round has
            typical = sorted(rounds, key=lambda each: each.lost)[len(rounds) // 2]
            taken = median(each.taken for each in rounds if each.host == typical.host)
            found.append(replace(typical, taken=taken, rounds=tuple(each.lost for each in rounds)))
    worst = max(found, key=lambda each: (each.lost, each.taken), default=None)
    return worst and replace(worst, rounds=tuple(itertools.chain(*(each.rounds for each in found))))
