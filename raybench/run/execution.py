"""Runs a plan's trials in order: suggestions, scaling curve, confirmation; each is on disk at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from raybench.analysis.estimates.efficiency import scaling
from raybench.analysis.labels import setting_words, shown_knobs
from raybench.analysis.largest_batch import Probe, decide, found_of, probe_of
from raybench.analysis.objectives import Candidate, pareto_front
from raybench.errors import GroupLostError
from raybench.launch import signals as interrupt
from raybench.launch.runner import TrialRunner
from raybench.plan.budget import Budget
from raybench.plan.search import Search, objective_values
from raybench.plan.trials import Plan, Suggestion
from raybench.records.messages import Outcome, Progress, Samples
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Role, TrialRequest
from raybench.report.wording import times
from raybench.spec.knobs import Setting

GIBIBYTE = 2**30
MAX_LOST_STARTS = 3  # groups in a row that do not start, before the study gives up


class Store(Protocol):
    """Where records go: ``store.ResultsDirectory``, or a list in tests."""

    def append(self, record: TrialRecord, samples: Sequence[Samples] = ()) -> None:
        """Keep one record and its step times."""
        ...

    def latest(self) -> dict[str, TrialRecord]:
        """The record that counts for each trial id."""
        ...


class Watcher(Protocol):
    """Who is told what goes on: ``display.Display``, or nobody."""

    def stage(self, text: str) -> None: ...  # noqa: D102
    def trial(self, words: str, *, done: int, total: int | None, left_s: float | None) -> None: ...  # noqa: D102
    def progress(self, progress: Progress) -> None: ...  # noqa: D102
    def trial_done(self, words: str) -> None: ...  # noqa: D102
    def best(self, words: str) -> None: ...  # noqa: D102


@dataclass(frozen=True)
class Task:
    """One trial to measure."""

    request: TrialRequest
    suggestion: int | None = None


@dataclass
class Execution:
    """One run of a plan."""

    plan: Plan
    runner: TrialRunner
    store: Store
    watcher: Watcher
    search: Search | None = None
    budget: Budget = field(default_factory=Budget)
    retry: frozenset[State] = frozenset()
    not_reached: list[str] = field(default_factory=list)  # what the time budget left out, in words
    notes: list[str] = field(default_factory=list)
    _lost_starts: int = 0
    _best_differs: bool = False  # from the default, as far as is known
    _candidates: dict[str, Candidate | None] = field(default_factory=dict)
    _retried: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Everything that the plan asks for, as far as the time allows.

        Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError``
        when no worker group starts.
        """
        if self.plan.study.knobs.has_max:
            self._find_largest()
            if next(self.plan.study.knobs.grid(self.plan.largest), None) is None:
                self.notes.append("no batch fits, in no combination of the knobs: nothing else was measured")
                return
        if self.plan.study.search.method == "optuna":
            winners = self._search()
            self._curve(winners)
        else:
            self._all([Task(request) for request in self.plan.requests()])
            winners = self._best_of_grid()
        self._confirm(winners)
        self._train()

    def _find_largest(self) -> None:
        """What ``batch_size = "max"`` stands for in each combination of the knobs that change memory."""
        combinations, sizes = self.plan.combinations(), self.plan.world_sizes
        each = f", for each of {len(combinations)} combinations" if len(combinations) > 1 else ""
        self.watcher.stage(f"Finding the largest batch that fits on {self._target_words()}{each}")
        for combination in combinations:
            key, done = combination.memory_key(self.plan.target), 0
            while True:
                # what --retry names is not known until it was tried again
                probes = [
                    record
                    for record in self.store.latest().values()
                    if record.request.kind == "probe"
                    and record.config.setting.memory_key(self.plan.target) == key
                    and not self._is_open(record.request)
                ]
                within = self.plan.rules(combination)
                found = decide(combination, self.plan.target, map(probe_of, probes), within)
                if found.next_batch is None:
                    break
                expected_s = 2 * max((record.wall_time_s for record in probes), default=0.0)  # it doubles
                if not self.budget.has(expected_s + self._reserve()):
                    words = setting_words(combination, [*_fitting_knobs(self.plan)] or ["precision"])
                    self.not_reached.append(f"the largest batch, exactly ({words})")
                    break
                self._measure(Task(self.plan.probe(combination, found.next_batch)), done=done, total=None)
                done += 1
        found_all = found_of(self.plan.study, self.store.latest().values(), sizes)
        self.plan = replace(self.plan, found=tuple(found_all))
        if self.search is not None:
            self.search.use(self.plan)

    def _search(self) -> list[Suggestion]:
        search = self.search or Search(self.plan)
        self._search_again()
        search.restore(self.store.latest().values())
        trials, tried = self.plan.study.search.trials, list[tuple[Suggestion, TrialRecord]]()
        tried += [
            (
                Suggestion(record.suggestion or 0, record.config.setting, record.config.environment),
                record,
            )
            for record in self.store.latest().values()
            if record.request.role == "search" and record.request.kind != "probe"
        ]
        self.watcher.stage(f"Searching for the best of {trials} suggestions at {self._target_words()}")
        while len(tried) < trials:
            # the first one shows what trials cost: until then the reserve is the worst case of each
            reserve = self._reserve() if self.budget.knows else 0.0
            if not self.budget.has(
                self._cost("search", self.plan.target) + reserve + self._training_reserve()
            ):
                self.not_reached.append(f"{trials - len(tried)} of {trials} suggestions")
                break
            suggestion = search.ask()
            if suggestion is None:
                break
            record = self._measure(
                Task(self.plan.search(suggestion), suggestion.number), done=len(tried), total=trials
            )
            search.tell(suggestion, record)
            tried.append((suggestion, record))
            self._announce_best(tried)
        return self._winners(tried)

    def _search_again(self) -> None:
        """The suggestions that --retry names: Optuna does not suggest what it knows."""
        again = [
            Task(record.request, record.suggestion)
            for record in self.store.latest().values()
            if record.request.role == "search"
            and record.request.kind != "probe"
            and self._is_open(record.request)
        ]
        if again:
            self.watcher.stage(f"Trying {len(again)} suggestions again")
        for done, task in enumerate(again):
            if not self.budget.has(self._cost("search", self.plan.target)):
                self.not_reached.append(f"{len(again) - done} suggestions to try again")
                return
            self._measure(task, done=done, total=len(again))

    def _curve(self, winners: list[Suggestion]) -> None:
        default = self.plan.default()
        tasks = [
            Task(request, suggestion.number)
            for suggestion in [default, *(winner for winner in winners if not self._same(winner, default))]
            for request in self.plan.curve(suggestion)
        ]
        unique = list({task.request.trial_id: task for task in tasks}.values())
        # the default first, at the target: were there time for one more trial only, it would be this one
        self._all(unique)

    def _all(self, tasks: list[Task]) -> None:
        if not tasks:
            return
        sizes = ", ".join(str(size) for size in self.plan.world_sizes)
        self.watcher.stage(f"Measuring {len(tasks)} trials at world sizes {sizes}")
        for done, task in enumerate(tasks):
            if not self._is_open(task.request):
                continue
            role, size = task.request.role, task.config.world_size
            if not self.budget.has(
                self._cost(role, size) + self._confirmation_cost() + self._training_reserve()
            ):
                rest = [self._words(task.request) for task in tasks[done:] if self._is_open(task.request)]
                self.not_reached.append(f"{len(rest)} trials: {'; '.join(rest)}")
                return
            self._measure(task, done=done, total=len(tasks))

    def _best_of_grid(self) -> list[Suggestion]:
        placement = self.plan.placements(self.plan.target)[0]
        tried = [
            (Suggestion(index, record.config.setting, record.config.environment), record)
            for index, record in enumerate(self.store.latest().values())
            if record.request.role == "scaling"
            and record.config.world_size == self.plan.target
            and record.config.placement == placement
        ]
        return self._winners(tried)

    def _confirm(self, winners: list[Suggestion]) -> None:
        default = self.plan.default()
        for winner in winners:
            if self._same(winner, default):
                continue
            if winner.environment != default.environment:
                self.notes.append(
                    "the best suggestion differs in process knobs, which need other processes: "
                    "it cannot be measured interleaved with the default, and is not confirmed"
                )
                continue
            if self.plan.target == 1 and winner.setting.on_one_device() == default.setting.on_one_device():
                continue
            request = self.plan.confirmation(winner, default)
            if self._is_open(request) and not self.budget.has(self._cost("confirmation", self.plan.target)):
                self.not_reached.append("the confirmation of the best suggestion against the default")
                return
            self.watcher.stage("Confirming the best suggestion against the default, interleaved")
            self._measure(Task(request, winner.number), done=0, total=1)

    def _train(self) -> None:
        """Whole epochs, on one device and on several; what is expected to take too long is named."""
        requests = self.plan.training()
        if any(self._is_open(request) for request in requests):
            self.watcher.stage(f"Training {len(requests)} trials to their last epoch")
        late = list[str]()
        for done, request in enumerate(requests):
            if self._is_open(request) and not self.budget.has(self._training_cost(request)):
                late.append(self._words(request))
            else:
                self._measure(Task(request), done=done, total=len(requests))
        if late:
            self.not_reached.append(f"{len(late)} training trials: {'; '.join(late)}")

    def _winners(self, tried: list[tuple[Suggestion, TrialRecord]]) -> list[Suggestion]:
        """The best suggestion, or the Pareto front for several objectives."""
        suggestions = {record.trial_id: suggestion for suggestion, record in tried}
        candidates = [found for _, record in tried if (found := self._candidate(record)) is not None]
        front = pareto_front(candidates, self.plan.study.search.objectives)
        return [suggestions[candidate.record.trial_id] for candidate in front]

    def _candidate(self, record: TrialRecord) -> Candidate | None:
        """The record with its objective values, which are worked out once."""
        if record.trial_id not in self._candidates:
            values = objective_values(record, self.plan)
            self._candidates[record.trial_id] = None if values is None else Candidate(record, tuple(values))
        return self._candidates[record.trial_id]

    def _announce_best(self, tried: list[tuple[Suggestion, TrialRecord]]) -> None:
        best = self._winners(tried)
        self._best_differs = any(not self._same(each, self.plan.default()) for each in best)
        if len(best) == 1:
            record = next(record for suggestion, record in tried if suggestion is best[0])
            rate = scaling(record).throughput_samples_per_s.value
            self.watcher.best(f"{self._words(record.request)}: {rate:,.0f} samples/s")

    def _measure(self, task: Task, *, done: int, total: int | None) -> TrialRecord:
        """The trial's record, from the disk where it is known already."""
        request = task.request
        known = self.store.latest().get(request.trial_id)
        if known is not None and not self._is_open(request):
            return known
        interrupt.check()
        self._retried.add(request.trial_id)
        left = self._left_s(total - done, request) if total else None
        self.watcher.trial(self._words(request), done=done, total=total, left_s=left)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        outcome = self._outcome(request)
        record = outcome.to_record(
            request, study=self.plan.study.name, suggestion=task.suggestion, started_at=started
        )
        self.store.append(record, outcome.samples)
        if record.state == "complete" and not request.fit and request.training is None:
            self.budget.took(request, outcome.wall_time_s)  # without the start of a worker group
        self.watcher.trial_done(self._result_words(record))
        return record

    def _is_open(self, request: TrialRequest) -> bool:
        """Whether the trial is to be measured: it is not known, or ended in a state to try again."""
        known = self.store.latest().get(request.trial_id)
        return known is None or (known.state in self.retry and known.trial_id not in self._retried)

    def _outcome(self, request: TrialRequest) -> Outcome:
        asked = [setting for setting in (request.config.setting, request.versus) if setting is not None]
        fault = next(filter(None, (setting.fault(self.plan.device) for setting in asked)), None)
        if fault is not None:
            return Outcome("invalid", 0.0, fault)
        while True:
            try:
                self.runner.start(self.plan.group_size, request.config.environment)
                outcome = self.runner.run(request, self.watcher.progress)
            except GroupLostError:
                self._lost_starts += 1
                if self._lost_starts >= MAX_LOST_STARTS:
                    raise
                continue
            self._lost_starts = 0
            return outcome

    def _cost(self, role: Role, world_size: int) -> float:
        return self.budget.cost(role, world_size, self.plan.study.measure.max_seconds)

    def _training_cost(self, request: TrialRequest) -> float:
        return self.budget.training_cost(request, list(self.store.latest().values()))

    def _training_reserve(self) -> float:
        """Seconds to keep back for training while steps are measured: what it needs, half of what is left.

        More would leave nothing measured where an epoch alone takes longer than the budget.
        """
        left = self.budget.left_s
        if left is None:
            return 0.0
        needed = sum(self._training_cost(each) for each in self.plan.training() if self._is_open(each))
        return min(needed, left / 2)

    def _confirmation_cost(self) -> float:
        return self._cost("confirmation", self.plan.target)

    def _reserve(self) -> float:
        """Seconds to keep back for what comes after the search: the curves and the confirmation."""
        sizes = [size for size in self.plan.world_sizes for _ in self.plan.placements(size)]
        curve = sum(self._cost("scaling", size) for size in sizes)
        return 2 * curve + self._confirmation_cost() if self._best_differs else curve

    def _left_s(self, trials: int, request: TrialRequest) -> float | None:
        if request.training is not None:
            return trials * self._training_cost(request) or None
        if not self.budget.knows:
            return None
        left = trials * self._cost(request.role, request.config.world_size)
        if request.role == "search":
            left += self._reserve()
        return left if self.budget.left_s is None else min(left, self.budget.left_s)

    def _target_words(self) -> str:
        return f"{self.plan.target} device{'s' if self.plan.target > 1 else ''}"

    def _words(self, request: TrialRequest) -> str:
        """The trial in words: its devices and the knobs that the study explores."""
        knobs: Iterable[str] = list(self.plan.knobs.explored()) or ["batch_size"]
        if request.fit:
            knobs = dict.fromkeys(["batch_size", *_fitting_knobs(self.plan)])
        knobs = shown_knobs(request.config.setting, list(knobs), request.config.world_size)
        varied = {
            n: v for n, v in request.config.environment.items() if len(self.plan.study.environment[n]) > 1
        }
        devices = f"{request.config.world_size} device{'s' if request.config.world_size > 1 else ''}"
        place = "" if len(self.plan.study.scaling.placement) == 1 else f" {request.config.placement}"
        seeds = self.plan.study.training.seeds if self.plan.study.training else ()
        seed = f", seed {request.config.seed}" if request.training is not None and len(seeds) > 1 else ""
        return f"{devices}{place}, {setting_words(request.config.setting, knobs, varied)}{seed}"

    def _result_words(self, record: TrialRecord) -> str:
        words = self._words(record.request)
        if record.state != "complete":
            return f"  {words}: {record.state}: {record.reason}"
        if record.request.kind == "probe":
            return f"  {words}: {_fit_words(probe_of(record))}"
        if record.training is not None:
            last = record.training.epochs[-1]
            return f"  {words}: {last.words(last.epoch)}, {last.train_s:.3g} s for the last epoch"
        found = scaling(record, list(self.store.latest().values()))
        rate = f"{found.throughput_samples_per_s.value:,.0f} samples/s"
        rounds = f"n={len(record.steps.rounds) if record.steps else 0}"
        if record.config.world_size == 1:
            return f"  {words}: {rate}, {rounds}"
        if record.request.role == "confirmation" or found.speedup is None:
            return f"  {words}: {rate} beside the default, {rounds}"
        return f"  {words}: {rate}, {times(found.speedup)}, {rounds}"

    def _same(self, one: Suggestion, other: Suggestion) -> bool:
        """Whether two suggestions are one trial at the target."""
        size = self.plan.target
        return one.setting.at(size) == other.setting.at(size) and one.environment == other.environment


def _fitting_knobs(plan: Plan) -> list[str]:
    """The knobs that change memory and have more than one value."""
    return [name for name in plan.study.knobs.explored() if name in Setting.MEMORY_KNOBS]


def _fit_words(probe: Probe) -> str:
    memory = f"{probe.memory_bytes / GIBIBYTE:.2f} GiB" if probe.memory_bytes else "memory unknown"
    share = "" if probe.share is None else f", {probe.share:.0%} of the memory"
    return f"{'too large' if probe.failure else 'fits'} ({memory}{share})"
