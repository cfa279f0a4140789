"""Other load on the cores while a trial was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, median

from raybench.records.requests import Configuration
from raybench.records.results import StepsResult


@dataclass(frozen=True)
class Load:
    """Of the host that is worst off."""

    cores: int  # of the host
    spare: int  # of them, that the trial did not need
    taken: float  # cores' worth of time: the mean over visits, of which each is the median of its rounds
    rounds: tuple[float, ...] = ()  # ``lost`` of the worst host in each round of all visits

    @property
    def lost(self) -> float:
        """What others took beyond the cores to spare, as a share of all: at most so much of a step."""
        return max(0.0, self.taken - self.spare) / self.cores


def load_of(config: Configuration, visits: Iterable[StepsResult]) -> Load | None:
    """Of all rounds of a setting; None: it is not told."""
    each_needs, lost = config.cpus_per_worker + config.setting.workers, list[float]()
    of_visits = defaultdict[int, list[Load]](list)
    for steps in visits:
        of_host = defaultdict[int, list[Load]](list)
        for round_ in steps.rounds:
            places = zip(steps.hosts, round_.other_cores, steps.host_cores, strict=False)
            loads = {
                host: Load(cores, max(cores - each_needs * steps.hosts.count(host), 0), taken)
                for host, taken, cores in places  # ranks of one host tell the same
                if taken is not None
            }
            lost += [max(each.lost for each in loads.values())] if loads else []
            for host, each in loads.items():
                of_host[host].append(each)
        for host, loads_of in of_host.items():
            of_visits[host].append(replace(loads_of[0], taken=median(each.taken for each in loads_of)))
    found = [replace(each[0], taken=fmean(one.taken for one in each)) for each in of_visits.values()]
    worst = max(found, key=lambda each: (each.lost, each.taken - each.spare), default=None)
    return worst and replace(worst, rounds=tuple(lost))
