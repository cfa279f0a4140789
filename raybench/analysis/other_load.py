"""Other load on the cores while a trial was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from raybench.records.requests import Configuration
from raybench.records.results import StepsResult


@dataclass(frozen=True)
class Load:
    """Of the host that is worst off."""

    rounds: tuple[float, ...]  # cores' worth of time taken, in each round in which it was told
    cores: int  # of the host
    spare: int  # of them, that the trial did not need

    @property
    def taken(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    def lost(self, taken: float) -> float:
        """What others took beyond the cores to spare, as a share of all: at most so much of a step."""
        return max(0.0, taken - self.spare) / self.cores


def load_of(config: Configuration, visits: Iterable[StepsResult]) -> Load | None:
    """Of all rounds of a setting; None: it is not told."""
    each_needs, found = config.cpus_per_worker + config.setting.workers, list[Load]()
    for steps, round_ in ((visit, each) for visit in visits for each in visit.rounds):
        places = list(zip(steps.hosts, round_.other_cores, steps.host_cores, strict=False))
        loads = [
            Load((taken,), cores, max(cores - each_needs * steps.hosts.count(host), 0))
            for host, taken, cores in set(places)  # ranks of one host tell the same
            if taken is not None
        ]
        found += sorted(loads, key=lambda one: one.taken - one.spare)[-1:]
    if not found:
        return None
    fullest = min(found, key=lambda each: each.spare)
    return replace(fullest, rounds=tuple(each.taken for each in found))
