"""From a study to trials: which world sizes, which settings, in which order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raybench.analysis import choice
from raybench.analysis.largest_batch import LargestFit, Rules, knobs_in_numbers, largest_by_setting, rules
from raybench.records.record import TrialRecord
from raybench.records.requests import (
    Configuration,
    ProbeRequest,
    StepsRequest,
    StepsRole,
    StudyRequest,
    Variant,
)
from raybench.spec.knobs import Knobs, LargestBatch, Setting
from raybench.spec.placement import Placement
from raybench.spec.study import MeasureSpec, Study

# A search asks for efficiency alone; the waterfall is taken of what it finds.
SEARCH_VARIANTS: tuple[Variant, ...] = ("plain", "ddp")
# of the default, where other buckets are to be predicted before any is measured
PREDICTING_VARIANTS: tuple[Variant, ...] = ("plain", "local", "ddp", "replay")
MOST_FAULTS = 1000  # settings with a fault, before a combination of knobs is taken to have no other
ALL_VARIANTS: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp", "replay")


@dataclass(frozen=True)
class Suggestion:
    """One assignment of the knobs, those of the processes included."""

    number: int
    setting: Setting
    environment: dict[str, str]


@dataclass(frozen=True)
class Trial:
    """One trial to measure, and the number of the suggestion that it is of."""

    request: StudyRequest
    suggestion: int | None = None

    @property
    def start(self) -> int:
        """The start of the workers in which it is measured; 0 where that does not matter."""
        return self.request.start if self.request.kind == "steps" else 0


@dataclass(frozen=True)
class Plan:
    """A study with its world sizes resolved for what there is."""

    study: Study
    device: str
    world_sizes: tuple[int, ...]  # ascending
    target: int  # where suggestions are measured
    num_devices: int
    fits: tuple[LargestFit, ...] | None = None  # what "max" stands for; None: not looked for yet
    left_out: tuple[int, ...] = ()  # of all world sizes those over which a global batch cannot be divided
    num_nodes: int = 1

    @property
    def group_size(self) -> int:
        """Workers of the group: the largest world size, and every rank that a placement names.

        Every device where few workers are to be spread over several nodes: they must be there first.
        """
        placements = self.study.scaling.placement
        named = [max(p) + 1 for p in placements if not isinstance(p, str)]
        everyone = [self.num_devices] if self.num_nodes > 1 and "spread" in placements else []
        return max([*self.world_sizes, *named, *everyone])

    @property
    def oversubscribed(self) -> bool:
        """Whether the group has more workers than there are devices."""
        return self.group_size > self.num_devices

    @property
    def study_in_numbers(self) -> Study:
        """The study, with what is known in the place of ``batch_size = "max"``."""
        return self.study.model_copy(update={"knobs": self.knobs}) if self.study.knobs.has_max else self.study

    @property
    def curve_sizes(self) -> list[int]:
        """The world size of each trial of a curve."""
        return [size for size in self.world_sizes for _ in choice.placements(self.study, size)]

    def environments(self) -> list[dict[str, str]]:
        """Every combination of the process knobs, the default first."""
        names = list(self.study.environment)
        values = itertools.product(*self.study.environment.values())
        return [dict(zip(names, combination, strict=True)) for combination in values]

    def default(self) -> Suggestion:
        """The study's default, number 0."""
        setting = choice.default_setting(self.study, self.largest)
        return Suggestion(0, setting, choice.default_environment(self.study))

    def suggestion_of(self, record: TrialRecord) -> Suggestion:
        """The suggestion that a record is of.

        One that was measured on one device has there the default's values of the knobs without effect: on
        several devices it is the default with what was found.
        """
        setting, default = record.config.setting, self.default().setting
        if record.config.world_size == 1:
            names = ("strategy", *default.indifferent(1))
            setting = setting.model_copy(update={name: getattr(default, name) for name in names})
        return Suggestion(record.suggestion or 0, setting, record.config.environment)

    @property
    def knobs(self) -> Knobs:
        """The values to explore, with what is known in the place of "max"."""
        return knobs_in_numbers(self.study.knobs, self.largest, self.fits or (), self.device)

    def largest(self, setting: Setting) -> int | None:
        """What "max" stands for with the setting's other knobs; until it is found the smallest batch."""
        if self.fits is None:
            return self.rules(setting).smallest
        return self._found(setting)

    @cached_property
    def _found(self) -> LargestBatch:
        """Asked for every point of a space, which may have a million."""
        fits = self.fits or ()
        return largest_by_setting(fits, self.study, self.world_sizes, self.target, self.device)

    def rules(self, setting: Setting) -> Rules:
        """Between which batches the largest is looked for."""
        return rules(self.study, setting, self.world_sizes, self.device)

    def combinations(self) -> list[Setting]:
        """The combinations of the knobs that change memory, each with its smallest batch.

        The other knobs have the first values that go with them.
        """
        knobs, found = self.study.knobs, dict[object, Setting]()
        memory = Setting.MEMORY_KNOBS
        others = [name for name in Setting.model_fields if name not in (*memory, "batch_size")]
        for chosen in itertools.product(*(knobs.values(name) for name in memory)):
            rest = itertools.product(*(knobs.values(name) for name in others))
            for values in itertools.islice(rest, MOST_FAULTS):
                given = zip((*memory, *others), (*chosen, *values), strict=True)
                setting = Setting(**dict(given), batch_size=1)
                if setting.fault(self.device) is None:
                    smallest = setting.model_copy(update={"batch_size": self.rules(setting).smallest})
                    found.setdefault(setting.memory_key(self.target), smallest)
                    break
        return list(found.values())

    def probe(self, combination: Setting, batch_size: int) -> ProbeRequest:
        """A few steps at the target world size: does this batch fit?"""
        setting = combination.model_copy(update={"batch_size": batch_size})
        suggestion = Suggestion(0, setting, choice.default_environment(self.study))
        return ProbeRequest(
            config=self.config(suggestion, self.target, self.placement(self.target)),
            timeout_seconds=self.study.measure.timeout_seconds,
        )

    def suggestions(self) -> Iterator[Suggestion]:
        """What is measured where nothing is searched for: the grid, or the ablation; the default first."""
        pairs = self._ablation() if self.study.search.method == "ablation" else self._grid()
        for number, (environment, setting) in enumerate(pairs):
            yield Suggestion(number, setting, environment)

    def _grid(self) -> Iterator[tuple[dict[str, str], Setting]]:
        """Every combination, those of one worker group together."""
        for environment in self.environments():
            for setting in self.study.knobs.grid(self.largest):
                yield environment, setting

    def _ablation(self) -> Iterator[tuple[dict[str, str], Setting]]:
        """The default, every change of it alone, and the last values of all lists together."""
        knobs, variables, default = self.study.knobs, self.study.environment, self.default()
        for setting in knobs.one_at_a_time(self.device, self.largest, whole_steps=self._whole_steps):
            yield default.environment, setting
        for name, values in variables.items():
            for value in values[1:]:
                yield {**default.environment, name: value}, default.setting
        varied = len(knobs.explored()) + sum(len(values) > 1 for values in variables.values())
        together = self.all_changes()
        if together is not None and varied > 1:
            yield together

    def all_changes(self) -> tuple[dict[str, str], Setting] | None:
        """The last value of every list; None where no batch fits."""
        together = self.study.knobs.all_together(self.device, self.largest, whole_steps=self._whole_steps)
        variables = {name: values[-1] for name, values in self.study.environment.items()}
        return None if together is None else (variables, together)

    @property
    def _whole_steps(self) -> bool:
        """Whether an ablation's batch is that of a step, and grows with the accumulation."""
        return self.study.scaling.mode == "strong"

    def search(self, suggestion: Suggestion) -> StepsRequest:
        """The suggestion at the target world size; of the default what predicts other buckets."""
        request = self._steps(suggestion, "search", self.target, self.placement(self.target))
        if not self._predicts_buckets(request):
            return request
        rest = tuple(name for name in request.variants if name not in SEARCH_VARIANTS)
        return request.model_copy(update={"variants": (*rest, *PREDICTING_VARIANTS)})

    def _predicts_buckets(self, request: StepsRequest) -> bool:
        config, explored = request.config, self.study.knobs.explored()
        is_ddp = config.setting.strategy == "ddp" and config.world_size > 1
        return is_ddp and "bucket_cap_mb" in explored and choice.is_default(self.study_in_numbers, config)

    def curve(self, suggestion: Suggestion, *, in_answer: bool = False) -> list[StepsRequest]:
        """The suggestion at every world size and placement, the largest first; ``single`` on one device.

        All of one start of the workers, then all of the next. ``in_answer``: it is the default, or the best.
        """
        requests = [
            self._steps(suggestion, "scaling", size, placement, start)
            for start in range(self.study.measure.starts)
            for size in reversed(self.world_sizes)
            for placement in choice.placements(self.study, size)
            if size == 1 or suggestion.setting.strategy != "single"
        ]
        return [self.profiled(each) if in_answer and self._is_reference(each) else each for each in requests]

    def curves(self, winners: Sequence[TrialRecord]) -> list[Trial]:
        """The default and ``winners`` of a search at every world size, each trial once.

        The default first, at the target: were there time for one more trial only, it would be this one. All
        of one start of the workers come before the next start.
        """
        suggestions = [self.default(), *map(self.suggestion_of, self._changed(winners))]
        trials = [
            Trial(request, suggestion.number)
            for suggestion in suggestions
            for request in self.curve(suggestion, in_answer=True)
        ]
        unique = {trial.request.trial_id: trial for trial in trials}
        return sorted(unique.values(), key=lambda trial: trial.start)

    def confirmations(self, winners: Sequence[TrialRecord]) -> list[StepsRequest]:
        """Each winner and the default in the same rounds; not of one that needs other processes."""
        default = self.default()
        return [
            self.confirmation(self.suggestion_of(each), default)
            for each in self._changed(winners)
            if each.config.environment == default.environment
        ]

    def _changed(self, winners: Sequence[TrialRecord]) -> list[TrialRecord]:
        return [each for each in winners if not choice.is_default(self.study_in_numbers, each.config)]

    def taken_apart(self, suggestion: Suggestion) -> StepsRequest:
        """The suggestion with all variants where it was searched, as a point of a curve is."""
        return self._steps(suggestion, "scaling", self.target, self.placement(self.target))

    def repeated(self, record: TrialRecord, number: int) -> StepsRequest:
        """A trial of the curve again, for the ``number``-th time."""
        config = record.config
        request = self._steps(self.suggestion_of(record), "scaling", config.world_size, config.placement)
        return request.model_copy(update={"again": number})

    def _is_reference(self, request: StepsRequest) -> bool:
        """Whether a trial of a curve is the one that its setting is compared by."""
        config = request.config
        there = (self.target, self.placement(self.target))
        return (config.world_size, config.placement) == there and request.start == 0

    def profiled(self, request: StepsRequest) -> StepsRequest:
        """``request`` with the traces and the snapshot of memory that the study asks for of chosen trials."""
        asked = self.study.measure
        chosen = {"profile": asked.profile, "memory_snapshot": asked.memory_snapshot}
        return request.model_copy(update={"measure": request.measure.model_copy(update=chosen)})

    def confirmation(self, winner: Suggestion, default: Suggestion) -> StepsRequest:
        """The winner and the default in the same rounds."""
        placement = self.placement(self.target)
        request = self._steps(winner, "confirmation", self.target, placement)
        return request.model_copy(update={"anchor": default.setting.at(self.target)})

    def verification(
        self, unchanged: Configuration, setting: Setting, environment: dict[str, str]
    ) -> StepsRequest:
        """A change of a trial in the same rounds as the trial without it; alone in other processes."""
        changed = unchanged.model_copy(update={"setting": setting, "environment": environment})
        paired = environment == unchanged.environment
        return StepsRequest(
            role="verification",
            config=changed,
            variants=("ddp", "anchor") if paired else ("ddp",),
            measure=self._measure("verification"),
            anchor=unchanged.setting if paired else None,
        )

    def trials(self) -> list[Trial]:
        """Those of all suggestions, each once: by start of the workers, by process knobs, by world size.

        The largest world size first. Starts are as far apart in time as they can be. From the second start on
        the worker groups of different process knobs come in shuffled order: what changes with time, or with
        the group before, must not look like a variable's effect.
        """
        first = self.default()
        default = (first.setting, first.environment)
        asked = [
            Trial(request, suggestion.number)
            for suggestion in self.suggestions()
            for request in self.curve(
                suggestion, in_answer=(suggestion.setting, suggestion.environment) == default
            )
        ]
        unique: dict[str, Trial] = {}
        for trial in asked:
            unique.setdefault(trial.request.trial_id, trial)
        variables = [tuple(trial.request.config.environment.items()) for trial in asked]
        environments = list(dict.fromkeys(variables))
        orders = [environments]
        for start in range(1, self.study.measure.starts):
            shuffled = random.Random(f"{self.study.seed} {start}")
            orders.append(shuffled.sample(environments, len(environments)))

        def order(trial: Trial) -> tuple[int, int, int]:
            config = trial.request.config
            group = orders[trial.start].index(tuple(config.environment.items()))
            return trial.start, group, -config.world_size

        return sorted(unique.values(), key=order)

    def placement(self, world_size: int) -> Placement:
        """Of suggestions, of the confirmation and of training."""
        return choice.default_placement(self.study, world_size)

    def config(self, suggestion: Suggestion, world_size: int, placement: Placement) -> Configuration:
        """The suggestion on so many devices, with what the study sets for every trial."""
        study = self.study
        return Configuration(
            workload=study.workload,
            optimizer=study.optimizer,
            setting=suggestion.setting.at(world_size),
            environment=suggestion.environment,
            scaling=study.scaling.mode,
            world_size=world_size,
            placement=placement,
            data=study.data,
            device="cuda" if self.device == "cuda" else "cpu",
            cpus_per_worker=study.resources.cpus_per_worker,
            oversubscribed=self.oversubscribed,
            seed=study.seed,
        )

    def _steps(
        self, suggestion: Suggestion, role: StepsRole, world_size: int, placement: Placement, start: int = 0
    ) -> StepsRequest:
        return StepsRequest(
            role=role,
            start=start,
            config=self.config(suggestion, world_size, placement),
            variants=self._variants(role, world_size, suggestion.setting.strategy),
            measure=self._measure(role),
        )

    def _measure(self, role: StepsRole) -> MeasureSpec:
        """As the study says; a search may be coarser, and few trials are profiled."""
        changed: dict[str, Any] = {"profile": False, "memory_snapshot": False}
        if role == "search" and self.study.search.half_width is not None:
            changed["half_width"] = self.study.search.half_width
        return self.study.measure.model_copy(update=changed)

    def _variants(self, role: StepsRole, world_size: int, strategy: str) -> tuple[Variant, ...]:
        if role == "confirmation":
            return ("ddp", "anchor")
        if world_size == 1:
            return ("plain",)
        whole = role != "search" and strategy == "ddp"  # the others have no wrapper, buckets or hooks
        variants = ALL_VARIANTS if whole else SEARCH_VARIANTS
        return ("base", *variants) if self.study.scaling.mode == "strong" else variants
