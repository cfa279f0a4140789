"""The seconds that trials are expected to take, and what of the budget is kept for later ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raybench.plan.budget import Budget
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StepsRole, StudyRequest, TrainingRequest
from raybench.run.under_way import UnderWay
from raybench.spec.knobs import Setting

UNKNOWN_BEST = 0.5  # of the default's curve, for that of a better setting that is not found yet
RESERVED = 0.85  # of what the parts after the search would take at their full length


@dataclass
class ExpectedTime:
    """Expected seconds of a run's trials, from those it has measured.

    ``records``, ``is_open``: the session's; ``verify``: whether proposed changes are tested in the end.
    """

    plan: Plan
    budget: Budget
    under_way: UnderWay
    records: Callable[[], list[TrialRecord]]
    is_open: Callable[[StudyRequest], bool]
    verify: bool
    # the best so far, but for the default: what will be confirmed; None: nothing is known of it
    best: tuple[Setting, ...] | None = None

    def start_cost_s(self, request: StudyRequest) -> float:
        """Expected seconds until a worker group is there that may serve ``request``, of those started yet."""
        return self.under_way.start_cost_s(request)

    def cost_s(self, role: StepsRole, world_size: int, *settings: Setting) -> float:
        """Expected seconds of a trial of steps; ``settings``: what it measures, as far as that is known."""
        rounds_s = self.budget.cost(role, world_size, self.plan.study.measure.max_seconds, settings)
        return rounds_s + self.budget.processes_s

    def trial_cost_s(self, request: StepsRequest) -> float:
        """Expected seconds of this one."""
        return self.cost_s(request.role, request.config.world_size, *request.settings)

    def own_cost_s(self, request: StudyRequest) -> float:
        """Expected seconds of any trial; 0 if unknown."""
        if request.kind == "training":
            return self.training_cost_s(request)
        if request.kind == "steps":
            return self.trial_cost_s(request)
        return self.cost_s(request.role, request.config.world_size)

    def training_cost_s(self, request: TrainingRequest) -> float:
        """Expected seconds of a training trial; 0 if unknown."""
        epochs_s = self.budget.training_cost(request, self.records())
        return epochs_s + self.budget.processes_s if epochs_s else 0.0

    def in_time(
        self, rest: Sequence[StepsRequest], *, fixed_s: float, steps_s: float = 0.0
    ) -> StepsRequest | None:
        """The first of ``rest`` with the time for its rounds that it may take; see ``Budget.in_time``.

        After them come trials of steps that are expected to take ``steps_s``, and ``fixed_s`` of what cannot
        be cut short; processes of the trials' own are known here.
        """
        under_way = self.under_way.requests
        asked = [*rest, *(each for each in under_way if each.kind == "steps")]
        processes_s = self.budget.processes_s
        costs_s = [self.trial_cost_s(each) - processes_s for each in asked]
        steps_s += self._side_by_side_s(costs_s, asked)
        fixed_s += self._side_by_side_s([processes_s] * len(asked), asked)
        return self.budget.in_time(rest[0], costs_s[0], steps_s, fixed_s)

    def one_in_time(self, request: StepsRequest) -> StepsRequest | None:
        """``request`` with the time that its processes' start, the training and a verification leave it."""
        fixed_s = self.training_reserve_s() + self.start_cost_s(request)
        return self.in_time([request], fixed_s=fixed_s, steps_s=self.verification_cost_s())

    def shortest(self, request: StepsRequest, *, fixed_s: float, after_s: float) -> StepsRequest | None:
        """``request`` with the least time that says something: see ``Budget.shortest``."""
        return self._shortest(request, self.trial_cost_s(request), fixed_s, after_s)

    def _shortest(
        self, request: StepsRequest, cost_s: float, fixed_s: float, after_s: float
    ) -> StepsRequest | None:
        processes_s = self.budget.processes_s
        if processes_s:  # of what comes after it too, and they cannot be cut
            fixed_s, after_s = fixed_s + after_s, 0.0
        return self.budget.shortest(request, cost_s - processes_s, after_s, fixed_s + processes_s)

    def suggestion_in_time(self, number: int) -> StepsRequest | None:
        """The request of a suggestion, with the time for its rounds; ``number`` are still to be made.

        Time is kept for what comes after the search, cut as short as this one. None where there is none.
        """
        request, processes_s = self.plan.search(self.plan.default()), self.budget.processes_s
        # the first one shows what trials cost: until then the reserve is the worst case of each
        reserve_s = self.search_reserve_s() if self.budget.knows else 0.0
        expected_s = self.cost_s("search", self.plan.target) - processes_s
        left = [request] * number
        steps_s = self._side_by_side_s([expected_s] * number, left) + reserve_s
        fixed_s = self._side_by_side_s([processes_s] * number, left) + self.training_reserve_s()
        in_time = self.budget.in_time(request, expected_s, steps_s, fixed_s)
        if in_time is not None:
            return in_time
        return self._shortest(request, expected_s + processes_s, self.training_reserve_s(), reserve_s)

    def _side_by_side_s(self, costs_s: Sequence[float], requests: Sequence[StudyRequest]) -> float:
        """Seconds that ``requests`` take, of which each takes its part of ``costs_s``."""
        at_once = min((self.under_way.capacity(each) for each in requests), default=1)
        return max(sum(costs_s) / at_once, max(costs_s, default=0.0))

    def training_reserve_s(self) -> float:
        """Seconds to keep back for training while steps are measured: what it needs, half of what is left.

        More would leave nothing measured where an epoch alone takes longer than the budget.
        """
        left_s = self.budget.left_s
        if left_s is None:
            return 0.0
        open_ = [each for each in training_requests(self.plan, self.records()) if self.is_open(each)]
        needed_s = self._side_by_side_s([self.training_cost_s(each) for each in open_], open_)
        return min(needed_s, left_s / 2)

    def search_reserve_s(self) -> float:
        """Seconds to keep back for what comes after the search: the curves and the confirmation.

        Of the default and of one other setting at least, as a better one may still be found: it is faster. As
        much as they need with somewhat shorter rounds: what is left in the end is divided among them.
        """
        starts, default = self.plan.study.measure.starts, self._default()
        curves_s = self._default_curve_s() + sum(self._curve_s(each) for each in self.best or ())
        confirmation_s = self.confirmation_cost_s()
        if not self.best:
            curves_s += UNKNOWN_BEST * self._curve_s(*default)
            confirmation_s = self.cost_s("confirmation", self.plan.target, *default)
            confirmation_s += self.verification_cost_s()
        curve = self.plan.curve(self.plan.default(), in_answer=True)
        curves_s /= min(map(self.under_way.capacity, curve), default=1)
        return RESERVED * (curves_s + confirmation_s) + (starts - 1) * self.budget.start_s

    def _default_curve_s(self) -> float:
        """Expected seconds of what is still to be measured of the default's curve."""
        if not self._default():
            return self._curve_s()
        curve = self.plan.curve(self.plan.default(), in_answer=True)
        return sum(self.trial_cost_s(request) for request in curve if self.is_open(request))

    def _curve_s(self, *settings: Setting) -> float:
        """Expected seconds of the trials of one curve."""
        sizes, starts = self.plan.curve_sizes, self.plan.study.measure.starts
        return starts * sum(self.cost_s("scaling", size, *settings) for size in sizes)

    def confirmation_cost_s(self) -> float:
        """Expected seconds of the confirmations: none where the default is the best so far.

        One verification with them, where the diagnosis is to be verified.
        """
        target, default = self.plan.target, self._default()
        verification_s = self.verification_cost_s()
        if self.best is None:
            return self.cost_s("confirmation", target) + verification_s
        confirmed = sum(self.cost_s("confirmation", target, each, *default) for each in self.best)
        return confirmed + verification_s

    def verification_cost_s(self) -> float:
        """Expected seconds of the verification that time is kept for: of the first finding's change."""
        if not self.verify:
            return 0.0
        return self.cost_s("verification", self.plan.target, *self._default())

    def _default(self) -> tuple[Setting, ...]:
        """The default's setting; none while what "max" stands for is not known."""
        is_unknown = self.plan.study.knobs.has_max and not self.plan.fits
        return () if is_unknown else (self.plan.default().setting,)

    def left_s(self, request: StudyRequest, trials: int) -> float | None:
        """Seconds until so many trials like ``request`` are done, and what follows them; None: not known."""
        if request.kind == "training":
            return trials * self.training_cost_s(request) / self.under_way.capacity(request) or None
        if not self.budget.knows:
            return None
        left_s = trials * self.own_cost_s(request) / self.under_way.capacity(request)
        if request.role == "search":
            left_s += self.search_reserve_s()
        elif request.role == "scaling":
            left_s += (self.plan.study.measure.starts - 1 - request.start) * self.budget.start_s
        return left_s if self.budget.left_s is None else min(left_s, self.budget.left_s)
