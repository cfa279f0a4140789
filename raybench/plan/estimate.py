"""How long a study takes, before anything is started: bounds, from what its trials may take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raybench.plan.budget import ROUNDS_SHARE
from raybench.plan.trials import Plan
from raybench.records.requests import StepsRequest

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


def estimate(plan: Plan, *, own_processes: bool = False) -> TimeEstimate:
    """Of the trials of steps: the least rounds of the shortest blocks, and all the time that rounds may have.

    What is found best is not known yet: of a search the second curve is taken to be as long as the default's.
    """
    trials = _trials(plan)
    least_s, most_s = (math.fsum(bounds) for bounds in zip(*map(_bounds, trials), strict=True))
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


def _trials(plan: Plan) -> Sequence[StepsRequest]:
    default = plan.default()
    confirmation = plan.confirmation(default, default)
    if plan.study.search.method != "optuna":
        return [*_of_steps(trial.request for trial in plan.trials()), confirmation]
    number = min(plan.study.search.trials, plan.study.knobs.num_combinations * len(plan.environments()))
    curve = plan.curve(default)
    searched = [plan.search(default)] * number
    return [*searched, *curve, *curve, confirmation]


def _of_steps(requests: Iterable[object]) -> list[StepsRequest]:
    return [each for each in requests if isinstance(each, StepsRequest)]


def _bounds(request: StepsRequest) -> tuple[float, float]:
    """The least and the most seconds of a trial."""
    measure, blocks = request.measure, len(request.variants)
    rounds_s = min(measure.min_rounds * blocks * BLOCK_S[request.config.device], measure.max_seconds)
    if measure.steps is not None:  # as long as so many steps take
        return SET_UP_S, measure.timeout_seconds
    return SET_UP_S + rounds_s, measure.max_seconds / ROUNDS_SHARE
