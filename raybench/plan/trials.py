"""From a study to trials: which world sizes, which settings, in which order."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from raybench.analysis import choice
from raybench.analysis.largest_batch import LargestFit, Rules, knobs_in_numbers, largest_by_setting, rules
from raybench.analysis.laws import DOUBLINGS
from raybench.analysis.simulate.as_if import as_if_on
from raybench.analysis.stats.stopping import LEAST_MEASURED, asked_half_width
from raybench.records.record import TrialRecord
from raybench.records.requests import (
    AS_IF,
    COMPARED_ROLES,
    AsIf,
    Configuration,
    ProbeRequest,
    StepsRequest,
    StepsRole,
    Variant,
)
from raybench.spec.knobs import MAX, Knobs, KnobValue, LargestBatch, Setting, setting_in_numbers
from raybench.spec.placement import Placement
from raybench.spec.study import COMPILING, MeasureSpec, Study
from raybench.spec.workloads import ScriptSpec

# A search asks for efficiency alone; the waterfall is taken of what it finds.
SEARCH_VARIANTS: tuple[Variant, ...] = ("plain", "ddp")
WIDEST = 0.99  # of a half-width that is asked for, relative
# A script is started for each trial, and one device is a trial of its own; it has no step without wrapper.
SCRIPT_VARIANTS: tuple[Variant, ...] = ("local", "ddp")
ALL_VARIANTS: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp", "replay")


@dataclass(frozen=True)
class Suggestion:
    """One assignment of the knobs, those of the processes included."""

    setting: Setting
    environment: dict[str, str] = field(hash=False)


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
        is_spread = self.num_nodes > 1 and "spread" in self.study.scaling.placement
        return max(self.study.least_workers, self.num_devices if is_spread else 0)

    @property
    def is_search(self) -> bool:
        """Whether Optuna chooses settings."""
        return self.study.search.method == "optuna"

    @property
    def oversubscribed(self) -> bool:
        """Whether the group has more workers than there are devices."""
        return self.group_size > self.num_devices

    @property
    def study_in_numbers(self) -> Study:
        """The study, with what is known in the place of ``batch_size = "max"``."""
        return self.study.model_copy(update={"knobs": self.knobs}) if self.study.knobs.has_max else self.study

    def environments(self) -> list[dict[str, str]]:
        """Every combination of the process knobs, the default first."""
        values = itertools.product(*self.study.environment.values())
        return [dict(zip(self.study.environment, combination, strict=True)) for combination in values]

    def default(self) -> Suggestion:
        """The study's default."""
        setting = choice.default_setting(self.study, self.largest)
        return Suggestion(setting, choice.default_environment(self.study))

    def suggestion_of(self, record: TrialRecord) -> Suggestion:
        """The suggestion that a record is of.

        One that was measured on one device has there the default's values of the knobs without effect: on
        several devices it is the default with what was found.
        """
        setting, default = record.config.setting, self.default().setting
        if record.config.world_size == 1:
            names = ("strategy", *default.indifferent(1))
            setting = setting.model_copy(update={name: getattr(default, name) for name in names})
        return Suggestion(setting, record.config.environment)

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
        return largest_by_setting(self.fits or (), self.study, self.world_sizes, self.target, self.device)

    def rules(self, setting: Setting) -> Rules:
        """Between which batches the largest is looked for."""
        return rules(self.study, setting, self.world_sizes, self.device)

    def combinations(self) -> list[Setting]:
        """The combinations of the knobs that change memory, each with its smallest batch.

        The other knobs have the first values that go with them.
        """
        found = dict[object, Setting]()
        matter = {*Setting.MEMORY_KNOBS, *Setting.FAULT_KNOBS}
        for setting in self.study.knobs.grid(lambda _: 1, matter):
            key = setting.memory_key(self.target)
            if key not in found and setting.fault(self.device) is None:
                found[key] = setting.model_copy(update={"batch_size": self.rules(setting).smallest})
        return list(found.values())

    def probe(self, combination: Setting, batch_size: int) -> ProbeRequest:
        """A few steps at the target world size: does this batch fit?"""
        setting = combination.model_copy(update={"batch_size": batch_size})
        suggestion = Suggestion(setting, choice.default_environment(self.study))
        return ProbeRequest(
            config=self.config(suggestion, self.target, self.placement(self.target)),
            timeout_seconds=self._timeout_s(setting),
        )

    def suggestions(self) -> Iterator[Suggestion]:
        """What is measured where nothing is searched for: the grid, or the ablation; the default first."""
        if self.study.search.method == "ablation":
            yield from self._ablation()
            return
        for environment in self.environments():  # those of one worker group together
            for setting in self.study.knobs.grid(self.largest):
                yield Suggestion(setting, environment)

    def _ablation(self) -> Iterator[Suggestion]:
        """The default, every change of it alone, and the last values of all lists together."""
        knobs, variables, default = self.study.knobs, self.study.environment, self.default()
        yield default
        for name, value in [(name, value) for name, values in knobs.explored().items() for value in values]:
            setting = self._changed({name: value})
            if setting is not None and setting != default.setting:
                yield Suggestion(setting, default.environment)
        for name, values in variables.items():
            for value in values[1:]:
                yield Suggestion(default.setting, {**default.environment, name: value})
        varied = len(knobs.explored()) + sum(len(values) > 1 for values in variables.values())
        if varied > 1 and (together := self.all_changes()) is not None:
            yield together

    def all_changes(self) -> Suggestion | None:
        """The last value of every list; None where no batch fits."""
        last = {name: values[-1] for name, values in self.study.knobs.explored().items()}
        together = self._changed(last)
        variables = {name: values[-1] for name, values in self.study.environment.items()}
        return None if together is None else Suggestion(together, variables)

    def _changed(self, changes: Mapping[str, KnobValue]) -> Setting | None:
        """The default with these knobs changed; None where no batch fits.

        It keeps its batch, also where "max" stands for that: beside another knob it would be another batch.
        Under strong scaling a batch is that of a step, and grows with the accumulation, so that the passes
        stay as they are: of a given step accumulation would make smaller passes, sent as often.
        """
        default = self.default().setting
        values: dict[str, Any] = {**vars(default), **changes}
        if self.study.scaling.mode == "strong" and values["batch_size"] != MAX:
            now = values["batch_size"] * values["gradient_accumulation"]
            values["batch_size"] = now // default.gradient_accumulation
        return setting_in_numbers(values, self.largest)

    def search(self, suggestion: Suggestion | None = None) -> StepsRequest:
        """The suggestion at the target world size; None: any one, as a forecast counts it."""
        return self._steps(suggestion, "search", self.target, self.placement(self.target))

    def curve(self, suggestion: Suggestion, visit: int = 0) -> list[StepsRequest]:
        """A visit of the suggestion at every world size and placement, the target first.

        ``single`` on one device only.
        """
        return [
            self._visit(suggestion, size, placement, visit)
            for size in reversed(self.world_sizes)
            for placement in choice.placements(self.study, size)
            if size == 1 or suggestion.setting.strategy != "single"
        ]

    def first_visits(self) -> list[StepsRequest]:
        """What is measured before default and winner are visited again, but for a search's suggestions."""
        return self.curve(self.default()) if self.is_search else self.trials()

    def visits(self, winners: Iterable[TrialRecord]) -> list[StepsRequest]:
        """The visits of default and winners that follow the first, at every world size and placement.

        In shuffled order within a start of the workers and the environment of its group, which comes in
        shuffled order too: what changes with time must not look like an effect. Of a winner that was searched
        for, the suggestion is the first visit at the target.
        """
        suggestions = dict.fromkeys((self.default(), *map(self.suggestion_of, winners)))
        first = {request.trial_id for request in self.curve(self.default())}
        unique = {
            request.trial_id: request
            for suggestion in suggestions
            for request in self.visits_of_winner(suggestion)
            if request.trial_id not in first
        }
        requests, shuffled = list(unique.values()), random.Random(self.study.seed)
        shuffled.shuffle(requests)
        groups = shuffled.sample(self.environments(), len(self.environments()))

        def order(request: StepsRequest) -> tuple[int, int]:
            return request.start, groups.index(request.config.environment)

        return sorted(requests, key=order) + self._last_visit()

    def visits_of_winner(self, suggestion: Suggestion) -> list[StepsRequest]:
        """Those of a suggestion that follow the first; of one that was searched for its whole curve."""
        return [
            request
            for visit in range(self.num_visits)
            for request in self.curve(suggestion, visit)
            if visit or (self.is_search and not self.is_there(request))
        ]

    def _last_visit(self) -> list[StepsRequest]:
        """One more visit of the default, as if on more nodes; short of time, the first that is left out."""
        if not self.next_doublings:
            return []
        visit = self._visit(self.default(), self.target, self.placement(self.target), self.num_visits)
        as_if = tuple(AsIf(world_size=size) for size in self.next_doublings)
        variants = (*visit.variants, *AS_IF[: len(as_if)])
        return [visit.model_copy(update={"as_if": as_if, "variants": variants})]

    def is_extra(self, request: StepsRequest) -> bool:
        """Whether nobody asked for it: it is not missed where there is no time for it."""
        return self.study.scaling.as_if is None and bool(request.as_if)

    @property
    def next_doublings(self) -> list[int]:
        """The next two, as which the default is measured where nobody said; empty within one node.

        The network between the nodes that there are is then known. That within a node says nothing of it.
        """
        study, default = self.study, self.default().setting
        several = self.num_nodes > 1 and self.target == self.num_devices and not self.oversubscribed
        is_ddp = default.strategy == "ddp" and not isinstance(study.workload, ScriptSpec)
        if study.scaling.as_if is not None or not several or not is_ddp:
            return []
        sizes = [self.target * factor for factor in DOUBLINGS[:2]]
        is_weak, step = study.scaling.mode == "weak", default.batch_size  # "max" as a number by now
        return [size for size in sizes if is_weak or step % (size * default.gradient_accumulation) == 0]

    @property
    def num_visits(self) -> int:
        """Visits of default and winner at each world size: one in each start of the workers at least."""
        return max(self.study.measure.visits, self.study.measure.starts)

    def is_there(self, request: StepsRequest) -> bool:
        """Whether it is where suggestions are measured."""
        config = request.config
        return (config.world_size, config.placement) == (self.target, self.placement(self.target))

    def verification(self, unchanged: Configuration, setting: Setting) -> StepsRequest:
        """A change of a trial in the same rounds as the trial without it."""
        return StepsRequest(
            role="verification",
            config=unchanged.model_copy(update={"setting": setting}),
            variants=("ddp", "anchor"),
            measure=self._measure("verification", setting, unchanged.setting),
            anchor=unchanged.setting,
        )

    def trials(self) -> list[StepsRequest]:
        """The first visit of every suggestion, each trial once: the default's curve, then the others.

        By process knobs, the default's first, and by world size, the target first, then the largest.
        """
        first = {request.trial_id: request for request in self.curve(self.default())}
        every = {request.trial_id: request for each in self.suggestions() for request in self.curve(each)}
        others = [request for request in every.values() if request.trial_id not in first]
        groups, sizes = self.environments(), [*reversed(self.world_sizes)]

        def order(request: StepsRequest) -> tuple[int, int]:
            return groups.index(request.config.environment), sizes.index(request.config.world_size)

        return [*first.values(), *sorted(others, key=order)]

    def placement(self, world_size: int) -> Placement:
        """Of suggestions and of training."""
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

    def _visit(
        self, suggestion: Suggestion, world_size: int, placement: Placement, visit: int
    ) -> StepsRequest:
        request = self._steps(suggestion, "scaling", world_size, placement)
        start = min(visit, self.num_visits - 1) * self.study.measure.starts // self.num_visits
        # the default's first visit at the target is profiled, and the winner's first after it was chosen
        shown = self.is_there(request) and visit == (0 if suggestion == self.default() else 1)
        measure = request.measure.model_copy(update={"profile": shown and self.study.measure.profile})
        return request.model_copy(update={"visit": visit, "start": start, "measure": measure})

    def _steps(
        self, suggestion: Suggestion | None, role: StepsRole, world_size: int, placement: Placement
    ) -> StepsRequest:
        """A trial of a study; at the target the default is its anchor, where it differs from it there.

        Without a suggestion the default's, with the anchor that others have.
        """
        default = self.default()
        chosen, anchor = suggestion or default, default.setting.at(world_size)
        setting, is_at_target = chosen.setting.at(world_size), world_size == self.target
        is_possible = not isinstance(self.study.workload, ScriptSpec) and anchor.fault(self.device) is None
        is_other = setting != anchor if suggestion else bool(self.study.knobs.explored())
        has_anchor = is_possible and is_at_target and world_size > 1 and is_other
        variants = self._variants(role, world_size, setting.strategy)
        is_headline = "replay" in variants and is_at_target and chosen == default
        as_if = self.as_if if is_headline else ()
        return StepsRequest(
            role=role,
            config=self.config(chosen, world_size, placement),
            variants=(*variants, *AS_IF[: len(as_if)], *(("anchor",) if has_anchor else ())),
            measure=self._measure(role, setting, anchor),
            anchor=anchor if has_anchor else None,
            as_if=as_if,
        )

    @cached_property
    def as_if(self) -> tuple[AsIf, ...]:
        """The further numbers of devices as which trials of a curve are measured at the target."""
        network, sizes = self.study.network, self.study.scaling.as_if or ()
        return tuple(
            as_if_on(network, size, self.device) if network else AsIf(world_size=size) for size in sizes
        )

    def _timeout_s(self, *settings: Setting) -> float:
        """The limit of a trial that runs ``settings``."""
        compiles = any(setting.compile for setting in settings)
        return self.study.measure.timeout_seconds * (COMPILING if compiles else 1)

    def _measure(self, role: StepsRole, *settings: Setting) -> MeasureSpec:
        """A visit's share of what the study wants of all visits together; few trials are profiled."""
        asked = self.study.measure
        changed: dict[str, Any] = {"profile": False, "timeout_seconds": self._timeout_s(*settings)}
        if role != "verification":  # which is visited once
            half_width = asked_half_width(asked, self.device) * math.sqrt(asked.visits)
            rounds = max(LEAST_MEASURED, math.ceil(asked.min_rounds / asked.visits))
            changed |= {"half_width": min(round(half_width, 4), WIDEST), "min_rounds": rounds}
        return asked.model_copy(update=changed)

    def _variants(self, role: StepsRole, world_size: int, strategy: str) -> tuple[Variant, ...]:
        if world_size == 1:
            return ("plain",)
        if isinstance(self.study.workload, ScriptSpec):
            return SCRIPT_VARIANTS
        whole = role != "search" and strategy != "dp"  # whose transfers cannot be left out
        variants = ALL_VARIANTS if whole else SEARCH_VARIANTS
        return ("base", *variants) if self.study.scaling.mode == "strong" else variants


def searched(plan: Plan, records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The suggestions of a search among ``records``, failed ones too; the default's trial is the first."""
    of_default = {each.trial_id for each in plan.curve(plan.default()) if plan.is_there(each)}
    steps = [record for record in records if record.request.kind == "steps"]
    return [
        *(record for record in steps if record.trial_id in of_default),
        *(record for record in steps if record.request.role == "search"),
    ]


def further_visits(
    plan: Plan, records: Iterable[TrialRecord], winners: Iterable[TrialRecord]
) -> list[StepsRequest]:
    """The visits of default and ``winners`` that follow the first; not of what has only failed there."""
    visited = [
        each for each in records if each.request.kind == "steps" and each.request.role in COMPARED_ROLES
    ]
    complete = {record.config.key() for record in visited if record.steps is not None}
    failed = [record.config for record in visited if record.config.key() not in complete]
    return [each for each in plan.visits(winners) if each.config not in failed]
