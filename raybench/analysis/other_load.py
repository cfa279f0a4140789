"""Other load on the cores while a trial was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import NamedTuple

from raybench.records.requests import Configuration
from raybench.records.results import StepsResult


@dataclass(frozen=True)
class Load:
    """Of the host that is worst off."""

    cores: int  # of the host
    spare: int  # of them, that the trial did not need
    taken: float  # cores' worth of time: the mean over visits, of which each is the median of its rounds
    # What they took beyond the cores to spare, as a share of all: at most so much of a step. The mean too.
    lost: float


class _Host(NamedTuple):
    """Equal for hosts of several visits that may be one."""

    number: int  # in its visit
    cores: int
    spare: int

    def lost(self, taken: float) -> float:
        """As ``Load.lost``, of one visit."""
        return max(0.0, taken - self.spare) / self.cores


def load_of(config: Configuration, visits: Iterable[StepsResult]) -> Load | None:
    """Of all rounds of a setting; None: it is not told."""
    each_needs = config.cpus_per_worker + config.setting.workers
    of_visits = defaultdict[_Host, list[Load]](list)
    for steps in visits:
        of_host = defaultdict[_Host, list[float]](list)
        for round_ in steps.rounds:
            places = zip(steps.hosts, round_.other_cores, steps.host_cores, strict=False)
            loads = {
                _Host(host, cores, max(cores - each_needs * steps.hosts.count(host), 0)): taken
                for host, taken, cores in places  # ranks of one host tell the same
                if taken is not None
            }
            for host, taken in loads.items():
                of_host[host].append(taken)
        for host, each in of_host.items():
            taken = median(each)
            of_visits[host].append(Load(host.cores, host.spare, taken, host.lost(taken)))
    found = [
        replace(each[0], taken=fmean(one.taken for one in each), lost=fmean(one.lost for one in each))
        for each in of_visits.values()
    ]
    return max(found, key=lambda each: (each.lost, each.taken - each.spare), default=None)
