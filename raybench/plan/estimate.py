"""How long a study takes, before anything is started: bounds, from what its trials may take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from raybench.analysis.same_buckets import known_buckets
from raybench.plan.budget import ROUNDS_SHARE
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StepsRole, StudyRequest

# As measured on two cores: Ray and a worker group until its first trial, ending both and the report, and
# processes of a trial's own.
START_S = (10.0, 25.0)
FINISH_S = 11.0
OWN_PROCESSES_S = (12.0, 25.0)
# At least, of a block of steps, as the devices ask for it; less where ten rounds do not fit into max_seconds.
BLOCK_S = {"cpu": 0.15, "cuda": 0.3}
SET_UP_S = 0.5  # at least, of a trial: its models, its first steps


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds from the command to the report, between bounds; without trainings and probes of "max"."""

    least_s: float
    most_s: float
    num_trials: int  # of steps, the confirmation among them
    num_starts: int  # of worker groups; with ``own_processes`` one a trial
    until_first_s: tuple[float, float]  # until the workers of the first trial have started, between bounds

    @property
    def beside_trials_s(self) -> tuple[float, float]:
        """What a study takes before it measures and after it, with one start of the workers."""
        least_s, most_s = self.until_first_s
        return least_s + FINISH_S, most_s + FINISH_S


def estimate(plan: Plan, *, own_processes: bool = False, known: Sequence[TrialRecord] = ()) -> TimeEstimate:
    """Of the trials of steps: the least rounds of the shortest blocks, and all the time that rounds may have.

    What is found best is not known yet: of a search the second curve is taken to be as long as the default's.
    ``known``: of a run that goes on, what it does not measure again.
    """
    trials = _trials(plan, known)
    least_s, most_s = (math.fsum(each[end] for each in map(_bounds, trials)) for end in (0, 1))
    starts = 1 if own_processes else len(plan.environments()) * plan.study.measure.starts
    start = tuple(seconds * starts for seconds in START_S)
    if own_processes:
        start = tuple(begun + each * len(trials) for begun, each in zip(start, OWN_PROCESSES_S, strict=True))
    first = START_S if not own_processes else tuple(map(sum, zip(START_S, OWN_PROCESSES_S, strict=True)))
    return TimeEstimate(
        start[0] + least_s + FINISH_S,
        start[1] + most_s + FINISH_S,
        len(trials),
        starts,
        (first[0], first[1]),
    )


def open_trials(plan: Plan, known: Sequence[TrialRecord]) -> Callable[[StudyRequest], bool]:
    """Whether a trial is still to be measured: neither it nor one of equal buckets is among ``known``."""
    ids, buckets = {record.trial_id for record in known}, known_buckets(plan.study, known)

    def is_open(request: StudyRequest) -> bool:
        other = buckets.stand_in(request)
        return ids.isdisjoint({request.trial_id, (other or request).trial_id})

    return is_open


def num_known(known: Iterable[TrialRecord], role: StepsRole) -> int:
    """How many trials of ``role`` there are."""
    return sum(record.request.role == role for record in known)


def _trials(plan: Plan, known: Sequence[TrialRecord]) -> Sequence[StepsRequest]:
    default, is_open = plan.default(), open_trials(plan, known)
    confirmation = [plan.confirmation(default, default)] * (num_known(known, "confirmation") == 0)
    if plan.study.search.method != "optuna":
        return [*filter(is_open, _of_steps(trial.request for trial in plan.trials())), *confirmation]
    number = min(plan.study.search.trials, plan.study.knobs.num_combinations * len(plan.environments()))
    curve = plan.curve(default)
    searched = [plan.search(default)] * (number - num_known(known, "search"))
    of_default = list(filter(is_open, curve))
    known_of_best = num_known(known, "scaling") - (len(curve) - len(of_default))
    return [*searched, *of_default, *curve[max(known_of_best, 0) :], *confirmation]


def _of_steps(requests: Iterable[object]) -> list[StepsRequest]:
    return [each for each in requests if isinstance(each, StepsRequest)]


def _bounds(request: StepsRequest) -> tuple[float, float]:
    """The least and the most seconds of a trial."""
    measure, blocks = request.measure, len(request.variants)
    rounds_s = min(measure.min_rounds * blocks * BLOCK_S[request.config.device], measure.max_seconds)
    if measure.steps is not None:  # as long as so many steps take
        return SET_UP_S, measure.timeout_seconds
    return SET_UP_S + rounds_s, measure.max_seconds / ROUNDS_SHARE
