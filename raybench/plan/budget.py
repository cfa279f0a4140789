"""How long trials take, as far as it is known, and what time is left for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from raybench.analysis.estimates.efficiency import throughput
from raybench.records.record import TrialRecord
from raybench.records.requests import Role, TrainingRequest, TrialRequest

ALONE = 0.5  # a trial on one device, in trials on several
# What a trial of one role costs in trials of another, until one of its own was seen: a trial of the curve
# has all variants, a confirmation has two synchronised ones, and a search may ask for wider intervals.
COST_IN_SEARCHES: dict[Role, float] = {
    "search": 1.0,
    "scaling": 3.0,
    "confirmation": 1.7,
    "training": 1.7,
    "verification": 1.7,
}


@dataclass
class Budget:
    """The time of one run of a plan."""

    deadline: float | None = None  # of ``monotonic``: when the last trial must be done; None: no limit
    epoch_samples: float | None = None  # of an epoch, evaluation included; None: not known beforehand
    _seconds: dict[tuple[Role, bool], list[float]] = field(default_factory=dict)
    _starts_s: list[float] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        """By the clock of the deadline."""
        return monotonic()

    @property
    def start_s(self) -> float:
        """Expected seconds until a new worker group is ready: as those before it; 0 if unknown."""
        return sum(self._starts_s) / len(self._starts_s) if self._starts_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    @property
    def knows(self) -> bool:
        """Whether a trial was seen."""
        return bool(self._seconds)

    def has(self, seconds: float) -> bool:
        """Whether there is time for that."""
        return self.deadline is None or monotonic() + seconds <= self.deadline

    def started(self, seconds: float) -> None:
        """Learn how long a worker group took to start."""
        self._starts_s.append(seconds)

    def took(self, request: TrialRequest, seconds: float) -> None:
        """Learn how long a trial took."""
        self._seconds.setdefault((request.role, request.config.world_size == 1), []).append(seconds)

    def cost(self, role: Role, world_size: int, max_seconds: float) -> float:
        """Expected seconds of a trial: as its like took, else by its ratio to those seen.

        ``max_seconds``: after which the rounds of any trial end.
        """
        alone = world_size == 1
        seen = self._seconds.get((role, alone))
        if seen:
            return sum(seen) / len(seen)
        searched = self._seconds.get(("search", False)) or self._seconds.get(("scaling", False))
        if not searched:
            return max_seconds * (ALONE if alone else 1.0)
        return sum(searched) / len(searched) * (ALONE if alone else COST_IN_SEARCHES[role])

    def training_cost(self, request: TrainingRequest, known: Sequence[TrialRecord]) -> float:
        """Expected seconds of a training trial: as its like took, else by its throughput; 0 if unknown."""
        alike = [
            each
            for each in known
            if each.config.world_size == request.config.world_size
            and each.config.setting == request.config.setting
        ]
        trained = [
            each.wall_time_s
            for each in alike
            if each.training is not None and not each.training.resumed_after
        ]
        if trained:
            return sum(trained) / len(trained)
        rates = [throughput(each).value for each in alike if each.steps is not None]
        if not rates or self.epoch_samples is None:
            return 0.0
        return request.training.epochs * self.epoch_samples / max(rates)
