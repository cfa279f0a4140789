"""The trials in flight: as many as there is room for, retried when groups die."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from raybench.driver.time_budget import TimeBudget
from raybench.errors import ClusterBusyError, GroupLostError, NoRoomError
from raybench.launch.runner import Submitted, TrialRunner
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest

OnGroup = Callable[[int, float | None], None]
_Variables = frozenset[tuple[str, str]]  # of an environment
ENDED_STATES = ("timeout", "crashed")  # as which a trial ends whose processes were ended
RANKS_APART_S = 1.0  # at most, when they begin a trial
MAX_LOST_STARTS = 3  # groups in a row that do not start, before the study gives up


class GroupPlan(Protocol):
    """What trials need workers for: ``plan.trials.Plan`` or ``driver.sweep.SweepPlan``."""

    @property
    def group_size(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def oversubscribed(self) -> bool: ...


@dataclass(eq=False)
class Begun:
    """A trial that has begun."""

    request: TrialRequest
    suggestion: int | None
    started_at: str  # ISO 8601
    submitted: Submitted
    expected_s: float = 0.0  # what it is expected to take; 0: not known
    num_lost: int = 0  # in a row, of its processes before it began

    def was_cut(self, outcome: Outcome) -> bool:
        """Whether the time budget has ended it, before its own time-out would have.

        Where one rank ends first, others may report a broken connection in the same moment.
        """
        timeout_s = self.submitted.request.timeout_s
        in_time = outcome.wall_time_s < timeout_s - RANKS_APART_S
        return timeout_s < self.request.timeout_s and not in_time and outcome.state in ENDED_STATES


class InFlight:
    """Begins trials of a plan and waits for them; ``on_group`` is called as ``Watcher.group``.

    The worker group has the plan's whole size or, since nodes were lost, the largest that fits.
    """

    def __init__(
        self,
        runner: TrialRunner,
        budget: TimeBudget,
        plan: GroupPlan,
        on_group: OnGroup = lambda num_workers, seconds: None,
        served: Iterable[TrialRequest] = (),  # what worker groups served before, in a run that goes on
    ) -> None:
        self._runner, self._budget, self._plan, self._on_group = runner, budget, plan, on_group
        self._fitting: int | None = None  # workers, since nodes were lost
        self._variables: _Variables | None = None  # of the last worker group
        self._begun: list[Begun] = []
        self._start_of: dict[int, int | None] = {}  # what each worker group serves, by number
        # the last in each environment that had workers
        self._served: dict[_Variables, TrialRequest] = {_variables(each): each for each in served}
        self._unfit: dict[_Variables, str] = {}  # environments in which no group starts, and what is recorded

    def __len__(self) -> int:
        return len(self._begun)

    @property
    def requests(self) -> list[TrialRequest]:
        """The requests of the trials in flight."""
        return [each.request for each in self._begun]

    def capacity(self, request: TrialRequest) -> int:
        """How many trials like ``request`` the runner has room for."""
        config = request.config
        return self._runner.capacity(request.kind, config.world_size, spread=config.placement == "spread")

    def has_room(self, request: TrialRequest) -> bool:
        """Whether ``request`` may begin alongside these: the largest decides how many there may be."""
        asked = [request, *self.requests]
        return len(asked) <= min(self.capacity(each) for each in asked)

    def begin(
        self,
        request: TrialRequest,
        on_progress: OnProgress,
        *,
        suggestion: int | None = None,
        expected_s: float = 0.0,
    ) -> None:
        """Begin a trial. Raises ``GroupLostError`` when no group starts, ``NoRoomError`` where none fits."""
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        begun = Begun(request, suggestion, started_at, Submitted(request, on_progress), expected_s)
        self._submit(begun)
        self._begun.append(begun)

    def next_ended(self) -> tuple[Begun, Outcome]:
        """The trial that ends first.

        Raises ``Interrupted``, ``GroupLostError`` when no group starts, ``NoRoomError`` for a trial that had
        not begun when its nodes were lost, and is not in flight any more.
        """
        while True:
            submitted = self._runner.wait([each.submitted for each in self._begun])
            ended = next(each for each in self._begun if each.submitted is submitted)
            self._begun.remove(ended)
            try:
                outcome = submitted.outcome()
            except GroupLostError as lost:
                if not self._given_up(ended, lost):
                    self._submit(ended)
                self._begun.append(ended)
                continue
            if outcome.group:  # 0: no group served it
                self._served[_variables(ended.request)] = ended.request
            return ended, outcome

    def run(self, request: TrialRequest, on_progress: OnProgress) -> tuple[Begun, Outcome]:
        """Begin a trial while none is in flight, and wait for it. Raises as the two do."""
        assert not self._begun
        self.begin(request, on_progress)
        return self.next_ended()

    def start_cost_s(self, request: TrialRequest) -> float:
        """Expected seconds until a worker group is there that may serve ``request``: 0 where one runs."""
        served, start = next(reversed(self._start_of.values()), None), _start_of_curve(request)
        is_next = served is not None and start not in (None, served)
        is_other = self._variables not in (None, _variables(request))
        return self._budget.start_s if is_next or is_other else 0.0

    def _submit(self, begun: Begun) -> None:
        request, on_progress = begun.request, begun.submitted.on_progress
        fault = None if request.kind == "collectives" else request.config.setting.fault(self._plan.device)
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
                begun.submitted = self._runner.submit(
                    self._budget.bounded(request, begun.expected_s), on_progress
                )
                return
            except GroupLostError as lost:
                if self._given_up(begun, lost):
                    return

    def _given_up(self, begun: Begun, lost: GroupLostError) -> bool:
        """Whether its variables end the trial: no group starts with them, and one with others did, and does.

        Raises ``lost`` where it is one too many in a row whatever the variables, or the cluster was waited
        for in vain.
        """
        begun.num_lost += 1
        if isinstance(lost, ClusterBusyError):
            raise lost
        if begun.num_lost < MAX_LOST_STARTS:
            return False
        variables = _variables(begun.request)
        other = next(iter(self._served.values()), None)
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

    def _start_group(self, request: TrialRequest) -> None:
        """A worker group for ``request``; of the curve one group serves one start only."""
        environment, began_s = request.config.environment, self._budget.now_s
        least = self._least_size(request)
        self._on_group(self._plan.group_size, None)
        group = self._fitting_group(environment, least)
        is_new = group.number not in self._start_of
        served, start = self._start_of.setdefault(group.number, None), _start_of_curve(request)
        if served is not None and start is not None and served != start:
            group, is_new = self._fitting_group(environment, least, anew=True), True
        self._variables = _variables(request)
        number, start_s = group.number, self._budget.now_s - began_s - group.waited_s
        if is_new:
            self._budget.starts_s.append(start_s)
        if group.members:  # else every trial has its own, which are not there yet
            self._on_group(len(group.members), start_s if is_new else 0.0)
        if start is not None:
            self._start_of[number] = start

    def _fitting_group(self, environment: dict[str, str], least: int, *, anew: bool = False) -> GroupInfo:
        """A group of ``least`` workers or more; the whole size again where the smaller one is too small.

        Raises ``NoRoomError`` where not even ``least`` fit, and what the runner's ``start`` raises.
        """
        fitting = self._fitting or 0
        size = fitting if fitting >= least else self._plan.group_size
        try:
            return self._runner.start(size, environment, anew=anew)
        except NoRoomError as lost:
            if lost.places < least:
                raise
            self._fitting = lost.places
            return self._runner.start(lost.places, environment, anew=anew)

    def _least_size(self, request: TrialRequest) -> int:
        """The workers of the smallest group that can serve ``request``: with every rank that it names.

        Few that are spread use the nodes of all: on fewer nodes it would be another trial.
        """
        placement, world_size = request.config.placement, request.config.world_size
        if placement == "spread" and world_size > 1:
            return self._plan.group_size
        return world_size if isinstance(placement, str) else max(placement) + 1


def _variables(request: TrialRequest) -> _Variables:
    return frozenset(request.config.environment.items())


def _start_of_curve(request: TrialRequest) -> int | None:
    """In which start of the workers a trial of the curve is to be; None: any serves."""
    return request.start if request.kind == "steps" and request.role == "scaling" else None
