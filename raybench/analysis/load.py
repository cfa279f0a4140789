"""What other processes took of a host while a trial was measured."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from raybench.records.record import TrialRecord

LOADED = 0.10  # of the cores of a host, by other processes


@dataclass(frozen=True)
class Load:
    """Of the host where others took most."""

    taken: float  # cores' worth of time, the median of the rounds
    cores: int  # of the host

    @property
    def is_much(self) -> bool:
        """Whether a measurement is one of a loaded machine."""
        return self.taken >= LOADED * self.cores

    def is_much_more_than(self, other: Load | None) -> bool:
        """Whether others took more, by what counts as much, than in another trial."""
        return self.is_much and (other is None or self.taken - other.taken >= LOADED * self.cores)


def load_of(record: TrialRecord) -> Load | None:
    """Of the rounds of a trial; None: it is not told."""
    steps = record.steps
    if steps is None or not steps.host_cores:
        return None
    known = ([one for one in each.other_cores if one is not None] for each in steps.rounds)
    taken = [max(of_hosts) for of_hosts in known if of_hosts]
    return Load(median(taken), max(steps.host_cores)) if taken else None


def load_words(load: Load | None) -> str:
    """What other processes took of a host's cores."""
    if load is None:
        return "what else ran was not told"
    return f"other processes took {load.taken:.2f} of {load.cores} cores"
