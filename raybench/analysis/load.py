"""Other load on the cores while a trial was measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from raybench.records.record import TrialRecord
from raybench.records.results import Round, StepsResult


@dataclass(frozen=True)
class Load:
    """Of the host that is worst off."""

    taken: float  # cores' worth of time, the median of the rounds
    cores: int  # of the host
    needed: int  # of them by the trial

    @property
    def spare(self) -> int:
        """Cores that the trial did not need."""
        return self.cores - self.needed

    @property
    def lost(self) -> float:
        """What others took beyond the cores to spare, as a share of all: at most so much of a step."""
        return max(0.0, self.taken - self.spare) / self.cores


def load_of(record: TrialRecord) -> Load | None:
    """Of the rounds of a trial; None: it is not told."""
    loads = loads_of(record)
    if not loads:
        return None
    fullest = min(loads, key=lambda each: each.spare)
    return replace(fullest, taken=median(each.taken for each in loads))


def loads_of(record: TrialRecord) -> list[Load]:
    """Of each round of a trial in which it was told."""
    steps = record.steps
    if steps is None or not steps.host_cores:
        return []
    return [told for each in steps.rounds if (told := _of_round(record, steps, each))]


def _of_round(record: TrialRecord, steps: StepsResult, round_: Round) -> Load | None:
    config, found = record.config, list[Load]()
    places = list(zip(steps.hosts, round_.other_cores, steps.host_cores, strict=False))
    each_needs = config.cpus_per_worker + config.setting.workers
    for host, taken, cores in set(places):  # ranks of one host tell the same
        ranks = sum(each[0] == host for each in places)
        if taken is not None:
            found.append(Load(taken, cores, min(ranks * each_needs, cores)))
    return max(found, key=lambda one: one.taken - one.spare, default=None)
