"""The trials of a run that have begun, as many at once as the runner has room for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raybench.errors import ClusterBusyError, GroupLostError, NoRoomError
from raybench.launch.runner import OnProgress, Submitted, TrialRunner
from raybench.plan.budget import ROUNDS_SHARE, Budget
from raybench.plan.trials import Trial
from raybench.records.messages import Outcome, Progress
from raybench.records.requests import StudyRequest
from raybench.run.asking import MAX_LOST_STARTS, FittingGroup, outcome_of

OnGroup = Callable[[int, float | None], None]
_Variables = frozenset[tuple[str, str]]  # of an environment
ENDED_STATES = ("timeout", "crashed")  # as which a trial ends whose processes were ended
RANKS_APART_S = 1.0  # at most, when they begin a trial
LEAST_GRACE_S = 10.0  # past the time budget, for a trial of which nothing is expected: to set up


@dataclass(eq=False)
class Begun:
    """A trial that has begun."""

    trial: Trial
    started_at: str  # ISO 8601
    submitted: Submitted
    expected_s: float = 0.0  # what it is expected to take; 0: not known
    num_lost: int = 0  # in a row, of its processes before it began

    def was_cut(self, outcome: Outcome) -> bool:
        """Whether the time budget has ended it, before its own time-out would have.

        Where one rank ends first, others may tell of a broken connection in the same moment.
        """
        timeout_s = self.submitted.request.timeout_s
        in_time = outcome.wall_time_s < timeout_s - RANKS_APART_S
        return timeout_s < self.trial.request.timeout_s and not in_time and outcome.state in ENDED_STATES


class UnderWay:
    """Begins trials and waits for them; ``group_size``: of the worker group that serves a whole study.

    ``environments``: all that it has; ``on_group`` is told as ``Watcher.group``.
    """

    def __init__(
        self,
        runner: TrialRunner,
        budget: Budget,
        *,
        group_size: int,
        device: str,
        environments: Sequence[Mapping[str, str]],
        on_group: OnGroup,
    ) -> None:
        self._runner, self._budget = runner, budget
        self._group, self._device = FittingGroup(runner, group_size), device
        self._begun: list[Begun] = []
        self._environments, self._on_group, self._group_size = environments, on_group, group_size
        self._start_of: dict[int, int | None] = {}  # what each worker group serves, by number
        self._served: dict[_Variables, StudyRequest] = {}  # the last in each environment that had workers
        self._unfit: dict[_Variables, str] = {}  # environments in which no group starts, and how it is told

    def __len__(self) -> int:
        return len(self._begun)

    @property
    def requests(self) -> list[StudyRequest]:
        """What was asked of the trials under way."""
        return [each.trial.request for each in self._begun]

    def capacity(self, request: StudyRequest) -> int:
        """How many trials like ``request`` the runner has room for."""
        config = request.config
        return self._runner.capacity(request.kind, config.world_size, spread=config.placement == "spread")

    def has_room(self, request: StudyRequest) -> bool:
        """Whether ``request`` may begin beside these: the largest decides how many there may be."""
        asked = [request, *self.requests]
        return len(asked) <= min(self.capacity(each) for each in asked)

    def begin(self, trial: Trial, started_at: str, on_progress: OnProgress, expected_s: float) -> None:
        """Begin a trial. Raises ``GroupLostError`` when no group starts, ``NoRoomError`` where none fits."""
        begun = Begun(trial, started_at, Submitted(trial.request, on_progress), expected_s)
        self._submit(begun)
        self._begun.append(begun)

    def next_ended(self) -> tuple[Begun, Outcome]:
        """The trial that ends first.

        Raises ``Interrupted``, ``GroupLostError`` when no group starts, ``NoRoomError`` for a trial that had
        not begun when its nodes were lost, and is not under way any more.
        """
        while True:
            submitted = self._runner.wait([each.submitted for each in self._begun])
            ended = next(each for each in self._begun if each.submitted is submitted)
            try:
                outcome = submitted.outcome()
            except GroupLostError as lost:
                try:
                    if not self._given_up(ended, lost):
                        self._submit(ended)
                except NoRoomError:  # with its processes its nodes are gone
                    self._begun.remove(ended)
                    raise
                continue
            self._begun.remove(ended)
            if outcome.group:  # 0: no group served it
                self._served[_variables(ended.trial.request)] = ended.trial.request
            return ended, outcome

    def is_unfit(self, request: StudyRequest) -> bool:
        """Whether it is known that no worker group starts with the variables of ``request``."""
        return _variables(request) in self._unfit

    def aside(self, request: StudyRequest) -> Outcome:
        """How a trial ends that is of no record, while none is under way. Raises as ``begin``."""
        assert not self._begun
        return outcome_of(
            lambda: self._start_group(request),
            lambda: self._runner.wait([self._runner.submit(self._bounded(request), _unheard)]).outcome(),
        )

    def start_cost_s(self, request: StudyRequest) -> float:
        """Expected seconds until a worker group is there that may serve ``request``, of those started yet."""
        served = next(reversed(self._start_of.values()), None)
        asked = _start_asked(request)
        return self._budget.start_s if served is not None and asked not in (None, served) else 0.0

    def _submit(self, begun: Begun) -> None:
        request, on_progress = begun.trial.request, begun.submitted.on_progress
        asked = [request.config.setting]
        if request.kind == "steps" and request.versus is not None:
            asked.append(request.versus)
        fault = next(filter(None, (setting.fault(self._device) for setting in asked)), None)
        if fault is not None:
            begun.submitted.ended = Outcome("invalid", 0.0, fault)
            return
        unfit = self._unfit.get(_variables(request))
        if unfit is not None:
            begun.submitted.ended = Outcome("crashed", 0.0, unfit)
            return
        while True:
            try:
                self._start_group(request)
                begun.submitted = self._runner.submit(self._bounded(request, begun.expected_s), on_progress)
                return
            except GroupLostError as lost:
                if self._given_up(begun, lost):
                    return

    def _given_up(self, begun: Begun, lost: GroupLostError) -> bool:
        """Whether its variables end the trial: no group starts with them, and one with others does.

        Raises ``lost`` where it is one too many in a row whatever the variables, or the cluster was waited
        for in vain.
        """
        begun.num_lost += 1
        if isinstance(lost, ClusterBusyError):
            raise lost
        if begun.num_lost < MAX_LOST_STARTS:
            return False
        variables = _variables(begun.trial.request)
        other = next(iter(self._served.values()), None) or self._with_others(begun.trial.request)
        if other is None or variables in self._served:
            raise lost
        try:
            self._start_group(other)
        except (GroupLostError, NoRoomError):  # the cluster is what has changed
            raise lost from None
        named = ", ".join(f"{name}={value}" for name, value in sorted(variables))
        self._unfit[variables] = f"with {named} no worker group starts, with other variables one does: {lost}"
        begun.submitted.ended = Outcome("crashed", 0.0, self._unfit[variables])
        return True

    def _with_others(self, request: StudyRequest) -> StudyRequest | None:
        """``request`` with the first other variables that a group may start with; None: there are none."""
        own = request.config.environment
        for each in self._environments:
            if each != own and frozenset(each.items()) not in self._unfit:
                config = request.config.model_copy(update={"environment": dict(each)})
                return request.model_copy(update={"config": config})
        return None

    def _bounded(self, request: StudyRequest, expected_s: float = 0.0) -> StudyRequest:
        """``request``, ended soon after the time budget: its processes are there, and the clock runs.

        What is left, and a grace: what the trial is expected to take, its rounds at least, and a start of its
        processes. A trial that is ended so takes far longer than was expected when it began.
        """
        left_s = self._budget.left_s
        if left_s is None:
            return request
        grace_s = max(expected_s, LEAST_GRACE_S)
        if request.kind == "steps":
            grace_s = max(grace_s, request.measure.max_seconds / ROUNDS_SHARE)
        timeout_s = math.ceil(left_s + grace_s + self._budget.start_s + self._budget.processes_s)
        if timeout_s >= request.timeout_s:
            return request
        shorter: dict[str, object] = {"timeout_seconds": float(timeout_s)}
        if request.kind == "steps":
            shorter = {"measure": request.measure.model_copy(update=shorter)}
        elif request.kind == "training":
            shorter = {"training": request.training.model_copy(update=shorter)}
        return request.model_copy(update=shorter)

    def _start_group(self, request: StudyRequest) -> None:
        """A worker group for ``request``; of the curve one group serves one start only."""
        environment, began_s = request.config.environment, self._budget.now_s
        least = self._least_size(request)
        self._on_group(self._group_size, None)
        group = self._group.start(environment, least)
        is_new = group.number not in self._start_of
        served, asked = self._start_of.setdefault(group.number, None), _start_asked(request)
        if served is not None and asked is not None and served != asked:
            group, is_new = self._group.start(environment, least, anew=True), True
        number, start_s = group.number, self._budget.now_s - began_s - group.waited_s
        if is_new:
            self._budget.started(start_s)
        if group.members:  # else every trial has its own, which are not there yet
            self._on_group(len(group.members), start_s if is_new else 0.0)
        if asked is not None:
            self._start_of[number] = asked

    def _least_size(self, request: StudyRequest) -> int:
        """The workers of the smallest group that can serve ``request``: with every rank that it names.

        Few that are spread stand on the nodes of all: on fewer nodes it would be another trial.
        """
        placement, world_size = request.config.placement, request.config.world_size
        if placement == "spread" and world_size > 1:
            return self._group_size
        return world_size if isinstance(placement, str) else max(placement) + 1


def _unheard(progress: Progress) -> None:
    """Of a trial aside nothing is told."""


def _variables(request: StudyRequest) -> _Variables:
    return frozenset(request.config.environment.items())


def _start_asked(request: StudyRequest) -> int | None:
    """In which start of the workers a trial of the curve is to be; None: any serves."""
    return request.start if request.kind == "steps" and request.role == "scaling" else None
