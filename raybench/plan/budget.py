"""How long trials take, as far as it is known, and what time is left for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic

from raybench.analysis.estimates.epochs import epochs_time
from raybench.analysis.estimates.stopping import LEAST_MEASURED
from raybench.records.measurements import StepsResult
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StepsRole, TrainingRequest
from raybench.spec.knobs import Setting

# Of a trial's time, until one was seen; the rest is set-up, warm-up and what is measured beside the rounds.
ROUNDS_SHARE = 0.7
# Of rounds: blocks shrink to fit ten into the time, and shorter ones than these leave say nothing. With less
# time than that for each trial some are left out.
LEAST_ROUNDS_S = 2.0
ALONE = 0.45  # a trial on one device, in trials on several
# What a trial of one role costs in trials of another, until one of its own was seen: a trial of the curve
# has all variants, a confirmation has two synchronised ones, and a search may ask for wider intervals. As in
# the default study on two cores: 1.6 to 2.6, 0.9; one device 0.4 to 0.5.
COST_IN_SEARCHES: dict[StepsRole, float] = {
    "search": 1.0,
    "scaling": 2.4,
    "confirmation": 1.0,
    "verification": 1.0,
}


# The default's trial of a search, by which buckets are predicted, in those of other suggestions.
COST_OF_PREDICTING = 1.7

MOST_BESIDE = 0.9  # of a trial's time


@dataclass(frozen=True)
class _Seen:
    """How long a trial of steps took."""

    role: StepsRole
    alone: bool  # on one device
    settings: tuple[Setting, ...]
    seconds: float
    beside_s: float  # of these: not of its rounds
    is_first: bool  # of its worker group: what is kept or compiled for all of them it has made
    least_rounds_s: float  # its rounds can hardly be shorter


@dataclass
class Budget:
    """The time of one run of a plan."""

    deadline: float | None = None  # of ``monotonic``: when the last trial must be done; None: no limit
    epoch_samples: float | None = None  # of an epoch, evaluation included; None: not known beforehand
    _seen: list[_Seen] = field(default_factory=list)
    _groups: set[int] = field(default_factory=set)  # worker groups of which a trial was seen
    _starts_s: list[float] = field(default_factory=list)
    _processes_s: list[float] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        """By the clock of the deadline."""
        return monotonic()

    @property
    def start_s(self) -> float:
        """Expected seconds until a new worker group is ready: as those before it; 0 if unknown."""
        return fmean(self._starts_s) if self._starts_s else 0.0

    @property
    def starting_s(self) -> float:
        """Seconds that the worker groups of this run took to start, together."""
        return sum(self._starts_s)

    @property
    def processes_s(self) -> float:
        """Expected seconds of a trial for processes of its own, beside its own time; 0: a group serves it."""
        return fmean(self._processes_s) if self._processes_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    @property
    def knows(self) -> bool:
        """Whether a trial was seen."""
        return bool(self._seen)

    def has(self, seconds: float) -> bool:
        """Whether there is time for that."""
        return self.deadline is None or monotonic() + seconds <= self.deadline

    def started(self, seconds: float) -> None:
        """Learn how long a worker group took to start."""
        self._starts_s.append(seconds)

    def processes_took(self, seconds: float) -> None:
        """Learn how long a trial took beside its own time, to start and end its processes."""
        self._processes_s.append(seconds)

    def took(
        self, request: StepsRequest, wall_time_s: float, steps: StepsResult, max_seconds: float, group: int
    ) -> None:
        """Learn how long a complete trial of ``group`` took, as if its rounds had had ``max_seconds``."""
        was_cut = steps.stopped_by == "max_seconds"
        seconds = wall_time_s + (max_seconds - request.measure.max_seconds if was_cut else 0.0)
        beside_s = max(wall_time_s - steps.measure_s, 0.0)
        alone, rounds = request.config.world_size == 1, len(steps.rounds)
        in_haste = rounds < request.measure.min_rounds  # steps are long, blocks as short as they get
        least_s = LEAST_MEASURED * steps.measure_s / rounds if in_haste else LEAST_ROUNDS_S
        if request.role == "search" and "local" in request.variants:
            seconds, beside_s = seconds / COST_OF_PREDICTING, beside_s / COST_OF_PREDICTING
        is_first = group not in self._groups
        self._groups.add(group)
        self._seen.append(_Seen(request.role, alone, request.settings, seconds, beside_s, is_first, least_s))

    def cost(
        self, role: StepsRole, world_size: int, max_seconds: float, settings: Sequence[Setting] = ()
    ) -> float:
        """Expected seconds of a trial of ``settings`` (none: not known yet), from those seen.

        What its settings took in the search, times what a trial of its kind takes of that. ``max_seconds``:
        after which the rounds of any trial end; taken where nothing was seen.
        """
        alone = world_size == 1
        alike = [seen for seen in self._seen if seen.role == role and seen.alone == alone]
        searched_s = self._searched(settings)
        if searched_s is None:
            seen_s = alike or [seen for seen in self._seen if seen.role == "scaling" and not seen.alone]
            if not seen_s:
                return max_seconds * (ALONE if alone else 1.0)
            mean_s = fmean(seen.seconds for seen in seen_s)
            return mean_s if alike else mean_s * (ALONE if alone else 1.0)
        if not alike:
            return searched_s * (ALONE if alone else COST_IN_SEARCHES[role])
        if role == "search":
            return searched_s
        return searched_s * fmean(seen.seconds / (self._searched(seen.settings) or 1.0) for seen in alike)

    def in_time(
        self, request: StepsRequest, expected_s: float, steps_s: float, fixed_s: float = 0.0
    ) -> StepsRequest | None:
        """``request`` with so much time for its rounds that all that follows it gets its share.

        Still to be measured are trials of steps that are expected to take ``steps_s``, ``expected_s`` of it
        this one, and ``fixed_s`` of what cannot be cut short. None where there is not time for all of it.
        """
        left_s = self.left_s
        if left_s is None or steps_s + fixed_s <= left_s:
            return request
        share = (left_s - fixed_s) / steps_s
        if share < self._least_share(request, expected_s):
            return None
        return self._cut(request, expected_s, share)

    def shortest(
        self, request: StepsRequest, expected_s: float, after_s: float, fixed_s: float = 0.0
    ) -> StepsRequest | None:
        """``request`` with the least time for its rounds in which it says something; None without that.

        After it come trials of steps that are expected to take ``after_s``, cut as it is, and ``fixed_s`` of
        what cannot be cut short.
        """
        share = self._least_share(request, expected_s)
        if not self.has(share * (expected_s + after_s) + fixed_s):
            return None
        return self._cut(request, expected_s, share)

    def _cut(self, request: StepsRequest, expected_s: float, share: float) -> StepsRequest:
        """``request`` in this share of the time that it is expected to take: its rounds are cut."""
        rounds_s = max(expected_s * (share - self._beside_share), LEAST_ROUNDS_S)
        cut = {"max_seconds": min(rounds_s, request.measure.max_seconds)}
        measure = request.measure.model_copy(update=cut)
        return request.model_copy(update={"measure": measure})

    @property
    def _beside_share(self) -> float:
        """Of a trial's time, what is not of its rounds; without what a group's first trial takes longer."""
        if not self._seen:
            return 1 - ROUNDS_SHARE
        most_s = max((seen.beside_s for seen in self._seen if not seen.is_first), default=math.inf)
        return fmean(min(_beside_share(seen, most_s), MOST_BESIDE) for seen in self._seen)

    def _least_share(self, request: StepsRequest, expected_s: float) -> float:
        """Of the time that it is expected to take, without which a trial says nothing."""
        if request.measure.steps is not None or not expected_s:  # a fixed number of rounds cannot be cut
            return 1.0
        rounds_s = self._least_rounds_s(request)
        return min(self._beside_share + rounds_s / expected_s, 1.0)

    def _least_rounds_s(self, request: StepsRequest) -> float:
        """As the last trial of the same settings showed; a slow setting says nothing of a fast one."""
        alone, settings = request.config.world_size == 1, set(request.settings)
        alike = (seen for seen in reversed(self._seen) if seen.alone == alone)
        same = (seen.least_rounds_s for seen in alike if settings.intersection(seen.settings))
        return next(same, LEAST_ROUNDS_S)

    def _searched(self, settings: Sequence[Setting]) -> float | None:
        """Mean seconds of the search's trials of ``settings``, or of all of them; None without any."""
        every = [seen for seen in self._seen if seen.role == "search"]
        own = [seen for seen in every if seen.settings[0] in settings]
        return fmean(seen.seconds for seen in own or every) if every else None

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
        stepped = [each for each in alike if each.steps is not None]
        if not stepped or self.epoch_samples is None:
            return 0.0
        epochs, samples = request.training.epochs, self.epoch_samples
        return min(epochs_time(each, epochs * samples, epochs).value for each in stepped)


def _beside_share(seen: _Seen, most_s: float) -> float:
    """Of the trial's time, what is not of its rounds, had it been ``most_s`` at most."""
    longer_s = max(seen.beside_s - most_s, 0.0)
    return (seen.beside_s - longer_s) / (seen.seconds - longer_s)
