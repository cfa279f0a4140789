"""The processes of a plan's trials: groups that are started as trials need them, and again where one dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from raybench.driver.time_budget import TimeBudget
from raybench.errors import ClusterBusyError, GroupLostError, NoRoomError
from raybench.launch.runner import TrialRunner
from raybench.plan.sweep_plan import SweepPlan
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest

OnGroup = Callable[[int, float | None], None]
_Variables = frozenset[tuple[str, str]]  # of an environment
ENDED_STATES = ("timeout", "crashed")  # as which a trial ends whose processes were ended
RANKS_APART_S = 1.0  # at most, when they begin a trial
MAX_LOST_STARTS = 3  # groups in a row that do not start, before the study gives up


class EndedTrial(NamedTuple):
    """A trial that has ended."""

    outcome: Outcome
    started_at: str  # ISO 8601
    was_cut: bool = False  # the time budget has ended it, before its own time-out would have


class Groups:
    """Runs trials of a plan; ``on_group`` is called as ``Watcher.group``.

    The worker group has the plan's whole size or, since nodes were lost, the largest that fits.
    """

    def __init__(
        self,
        runner: TrialRunner,
        budget: TimeBudget,
        plan: Plan | SweepPlan,
        on_group: OnGroup = lambda num_workers, seconds: None,
        served: Iterable[TrialRequest] = (),  # what worker groups served before, in a run that goes on
    ) -> None:
        self._runner, self._budget, self._plan, self._on_group = runner, budget, plan, on_group
        self._fitting = 0  # workers, since nodes were lost
        self._variables: _Variables | None = None  # of the last worker group
        self._number = 0  # of the last worker group
        self._start: int | None = None  # of the curve, which it serves
        # the last in each environment that had workers
        self._served: dict[_Variables, TrialRequest] = {_variables(each): each for each in served}
        self._unfit: dict[_Variables, str] = {}  # environments in which no group starts, and what is recorded

    def run(self, request: TrialRequest, on_progress: OnProgress, *, expected_s: float = 0.0) -> EndedTrial:
        """Run a trial, which is expected to take so long (0: not known).

        Raises ``Interrupted``, ``GroupLostError`` when no group starts, ``NoRoomError`` where none fits.
        """
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        fault = None if request.kind == "collectives" else request.config.setting.fault(self._plan.device)
        if fault is not None:
            return EndedTrial(Outcome("invalid", 0.0, fault), started_at)
        variables, num_lost = _variables(request), 0
        while variables not in self._unfit:
            try:
                self._start_group(request)
                bounded = self._budget.bounded(request, expected_s)
                outcome = self._runner.run(bounded, on_progress)
            except GroupLostError as lost:
                num_lost += 1
                if isinstance(lost, ClusterBusyError):  # it was waited for in vain
                    raise
                if num_lost >= MAX_LOST_STARTS:
                    self._blame_variables(variables, lost)
                continue
            if outcome.group:  # 0: no group served it
                self._served[variables] = request
            return EndedTrial(outcome, started_at, _was_cut(request, bounded, outcome))
        return EndedTrial(Outcome("crashed", 0.0, self._unfit[variables]), started_at)

    def start_cost_s(self, request: TrialRequest) -> float:
        """Expected seconds until a worker group is there that may serve ``request``: 0 where one runs."""
        is_other = self._variables not in (None, _variables(request))
        return self._budget.start_s if is_other or self._is_next_start(request) else 0.0

    def _is_next_start(self, request: TrialRequest) -> bool:
        """Whether the last worker group serves another start of the curve than that of ``request``."""
        start = _start_of_curve(request)
        return None not in (self._start, start) and self._start != start

    def _blame_variables(self, variables: _Variables, lost: GroupLostError) -> None:
        """Note that no group starts with them. Raises ``lost`` unless one with others did, and does."""
        other = next(iter(self._served.values()), None)
        if other is None or variables in self._served:
            raise lost
        try:
            self._start_group(other)
        except (GroupLostError, NoRoomError):  # the cluster is what has changed
            raise lost from None
        named = ", ".join(f"{name}={value}" for name, value in sorted(variables))
        self._unfit[variables] = f"with {named} no worker group starts, with other variables one does: {lost}"

    def _start_group(self, request: TrialRequest) -> None:
        """A worker group for ``request``; of the curve one group serves one start only."""
        began_s = self._budget.now_s
        self._on_group(self._plan.group_size, None)
        group = self._fitting_group(request, anew=self._is_next_start(request))
        start_s = self._budget.now_s - began_s - group.waited_s
        is_new = group.number != self._number
        if is_new:
            self._number, self._start = group.number, None
            self._budget.starts_s.append(start_s)
        if group.members:  # else every trial has its own, which are not there yet
            self._on_group(len(group.members), start_s if is_new else 0.0)
        self._variables = _variables(request)
        start = _start_of_curve(request)
        self._start = self._start if start is None else start

    def _fitting_group(self, request: TrialRequest, *, anew: bool) -> GroupInfo:
        """A group that serves ``request``; the whole size again where the smaller one is too small.

        Raises ``NoRoomError`` where none fits, and what the runner's ``start`` raises.
        """
        environment, least, fitting = request.config.environment, self._least_size(request), self._fitting
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


def _was_cut(request: TrialRequest, bounded: TrialRequest, outcome: Outcome) -> bool:
    """Whether the time budget has ended the trial: ``bounded`` is ``request`` with the time that it had.

    Where one rank ends first, others may report a broken connection in the same moment.
    """
    in_time = outcome.wall_time_s < bounded.timeout_s - RANKS_APART_S
    return bounded.timeout_s < request.timeout_s and not in_time and outcome.state in ENDED_STATES


def _variables(request: TrialRequest) -> _Variables:
    return frozenset(request.config.environment.items())


def _start_of_curve(request: TrialRequest) -> int | None:
    """In which start of the workers a trial of the curve is to be; None: any serves."""
    return request.start if request.kind == "steps" and request.role == "scaling" else None
