"""From a study to trials: which world sizes, which settings, in which order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from raybench.analysis.largest_batch import Found, Rules, in_numbers, rules, stands_for
from raybench.errors import RequestError
from raybench.launch.runner import Resources
from raybench.records.record import Role, TrialRequest, Variant
from raybench.spec.knobs import Knobs, Setting
from raybench.spec.study import MeasureSpec, Placement, Study

# A search asks for efficiency alone; the waterfall is taken of what it finds.
SEARCH_VARIANTS: tuple[Variant, ...] = ("plain", "synced")
MOST_FAULTS = 1000  # settings with a fault, before a combination of knobs is taken to have no other
ALL_VARIANTS: tuple[Variant, ...] = ("plain", "crowd", "local", "synced", "replay")


@dataclass(frozen=True)
class Suggestion:
    """One assignment of the knobs, those of the processes included."""

    number: int
    setting: Setting
    environment: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """A study with its world sizes resolved for what there is."""

    study: Study
    device: str
    world_sizes: tuple[int, ...]  # ascending
    target: int  # where suggestions are measured
    num_devices: int
    found: tuple[Found, ...] | None = None  # what "max" stands for; None: not looked for yet
    left_out: tuple[int, ...] = ()  # of all world sizes those over which a global batch cannot be divided

    @property
    def group_size(self) -> int:
        """Workers of the group: the largest world size, and every rank that a placement names."""
        named = [max(p) + 1 for p in self.study.scaling.placement if not isinstance(p, str)]
        return max(*self.world_sizes, *named) if named else max(self.world_sizes)

    @property
    def oversubscribed(self) -> bool:
        """Whether the group has more workers than there are devices."""
        return self.group_size > self.num_devices

    def environments(self) -> list[dict[str, str]]:
        """Every combination of the process knobs, the default first."""
        names = list(self.study.environment)
        values = itertools.product(*self.study.environment.values())
        return [dict(zip(names, combination, strict=True)) for combination in values]

    def default(self) -> Suggestion:
        """The first value of every list (of the strategies: ``Knobs.default``)."""
        return Suggestion(0, self.study.knobs.default(self.device, self.largest), self.environments()[0])

    @property
    def knobs(self) -> Knobs:
        """The values to explore, with what is known in the place of "max"."""
        return in_numbers(self.study.knobs, self.largest, self.found or ())

    def largest(self, setting: Setting) -> int | None:
        """What "max" stands for beside the setting's other knobs; until it is found the smallest batch."""
        if self.found is None:
            return self.rules(setting).smallest
        largest = stands_for(self.found, self.study, self.world_sizes, self.target, self.device)
        return largest(setting)

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

    def probe(self, combination: Setting, batch_size: int) -> TrialRequest:
        """A few steps at the target world size: does this batch fit?"""
        suggestion = Suggestion(
            0, combination.model_copy(update={"batch_size": batch_size}), self.environments()[0]
        )
        request = self._request(suggestion, "search", self.target, self.placements(self.target)[0])
        measure = self.study.measure.model_copy(
            update={"half_width": None, "min_rounds": 3, "steps": 1, "warmup_steps": 1}
        )
        variants: tuple[Variant, ...] = ("plain",) if self.target == 1 else ("synced",)
        return request.model_copy(update={"fit": True, "measure": measure, "variants": variants})

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
        strong = self.study.scaling.mode == "strong"
        for setting in knobs.one_at_a_time(self.device, self.largest, whole_steps=strong):
            yield default.environment, setting
        for name, values in variables.items():
            for value in values[1:]:
                yield {**default.environment, name: value}, default.setting
        varied = len(knobs.explored()) + sum(len(values) > 1 for values in variables.values())
        together = knobs.all_together(self.device, self.largest, whole_steps=strong)
        if together is not None and varied > 1:
            yield {name: values[-1] for name, values in variables.items()}, together

    def placements(self, world_size: int) -> list[Placement]:
        """The placements asked for at this size; a list of ranks stands for its own length only."""
        asked = self.study.scaling.placement
        fitting = [p for p in asked if isinstance(p, str) or len(p) == world_size]
        if world_size == 1:  # one device of one kind: where it stands is no question, unless it is named
            fitting = [p for p in fitting if not isinstance(p, str)] or ["pack"]
        return fitting or ["pack"]

    def search(self, suggestion: Suggestion) -> TrialRequest:
        """The suggestion at the target world size."""
        return self._request(suggestion, "search", self.target, self.placements(self.target)[0])

    def curve(self, suggestion: Suggestion) -> list[TrialRequest]:
        """The suggestion at every world size and placement, the largest first; ``single`` on one device."""
        return [
            self._request(suggestion, "scaling", size, placement)
            for size in reversed(self.world_sizes)
            for placement in self.placements(size)
            if size == 1 or suggestion.setting.strategy != "single"
        ]

    def confirmation(self, winner: Suggestion, default: Suggestion) -> TrialRequest:
        """The winner and the default in the same rounds."""
        placement = self.placements(self.target)[0]
        return self._request(winner, "confirmation", self.target, placement, default.setting)

    def training(self) -> list[TrialRequest]:
        """The default setting under each strategy, trained with each seed on one device and on several.

        Seed by seed, so that a study that ends early has whole comparisons. Empty without ``[training]``.
        """
        spec = self.study.training
        if spec is None:
            return []
        default, sizes = self.default(), (1, *(size for size in self.world_sizes if size > 1))
        asked: dict[str, TrialRequest] = {}
        for seed in spec.seeds:
            for size, strategy in itertools.product(sizes, self.study.knobs.values("strategy")):
                if size > 1 and strategy == "single":
                    continue
                setting = default.setting.model_copy(update={"strategy": strategy})
                suggestion = Suggestion(0, setting, default.environment)
                request = self._request(suggestion, "verification", size, self.placements(size)[0])
                one = spec.model_copy(update={"seeds": (seed,)})
                request = request.model_copy(update={"seed": seed, "variants": (), "training": one})
                asked.setdefault(request.trial_id, request)
        return list(asked.values())

    def requests(self) -> list[TrialRequest]:
        """The trials of all suggestions, each once, by process knobs, then by world size, largest first."""
        asked = [request for suggestion in self.suggestions() for request in self.curve(suggestion)]
        unique = {request.trial_id: request for request in asked}
        environments = list(dict.fromkeys(tuple(request.environment.items()) for request in asked))
        return sorted(
            unique.values(),
            key=lambda request: (
                environments.index(tuple(request.environment.items())),
                -request.world_size,
            ),
        )

    def _request(
        self,
        suggestion: Suggestion,
        role: Role,
        world_size: int,
        placement: Placement,
        versus: Setting | None = None,
    ) -> TrialRequest:
        study, setting = self.study, suggestion.setting
        return TrialRequest(
            role=role,
            workload=study.workload,
            optimizer=study.optimizer,
            setting=setting.at(world_size),
            versus=versus.at(world_size) if versus else None,
            environment=suggestion.environment,
            scaling=study.scaling.mode,
            world_size=world_size,
            placement=placement,
            variants=self._variants(role, world_size, setting.strategy),
            measure=self._measure(role),
            data=study.data,
            device="cuda" if self.device == "cuda" else "cpu",
            cpus_per_worker=study.resources.cpus_per_worker,
            oversubscribed=self.oversubscribed,
            seed=study.seed,
        )

    def _measure(self, role: Role) -> MeasureSpec:
        half_width = self.study.search.half_width
        if role != "search" or half_width is None:
            return self.study.measure
        return self.study.measure.model_copy(update={"half_width": half_width})

    def _variants(self, role: Role, world_size: int, strategy: str) -> tuple[Variant, ...]:
        if role == "confirmation":
            return ("synced", "versus")
        if world_size == 1:
            return ("plain",)
        whole = role != "search" and strategy == "ddp"  # the others have no wrapper, buckets or hooks
        variants = ALL_VARIANTS if whole else SEARCH_VARIANTS
        return ("base", *variants) if self.study.scaling.mode == "strong" else variants


def make_plan(study: Study, resources: Resources) -> Plan:
    """Resolve ``study`` for what there is. Raises ``RequestError`` for what cannot be run there."""
    devices = resources.num_devices
    _refuse_too_little(study, resources)
    listed = _world_sizes(study, devices)
    plan = Plan(
        study=study,
        device=resources.device,
        world_sizes=listed,
        target=study.scaling.target_world_size or listed[-1],
        num_devices=devices,
        left_out=tuple(size for size in _all_sizes(study, devices) if size not in listed),
    )
    if plan.target not in listed:
        raise RequestError(
            f"scaling.target_world_size: one of the world sizes {list(listed)} (received {plan.target})"
        )
    _refuse_idle_placements(plan)
    _refuse_too_many(plan, resources)
    _refuse_uneven_batches(plan)
    _refuse_no_room(plan)
    _refuse_faults(plan)
    return plan


def _world_sizes(study: Study, devices: int) -> tuple[int, ...]:
    """Ascending. Strategy ``single`` alone has one device, and is refused where more are asked for.

    Of "all", those over which every global batch can be divided; where none of several is, all of them.
    """
    sizes, alone = study.scaling.world_sizes, study.knobs.values("strategy") == ("single",)
    if sizes == "all":
        every = _all_sizes(study, devices)
        fitting = tuple(size for size in every if study.uneven_batch(size) is None)
        return fitting if max(fitting, default=1) > 1 else every
    if alone and max(sizes) > 1:
        raise RequestError(
            'scaling.world_sizes: 1 where knobs.strategy is "single" alone '
            f"(received {', '.join(map(str, sorted(sizes)))})"
        )
    return tuple(sorted(sizes))


def _all_sizes(study: Study, devices: int) -> tuple[int, ...]:
    """What "all" stands for; empty where the sizes are listed."""
    if study.scaling.world_sizes != "all":
        return ()
    return (1,) if study.knobs.values("strategy") == ("single",) else powers_of_two(devices)


def powers_of_two(devices: int) -> tuple[int, ...]:
    """1, 2, 4, ... and every device."""
    sizes = [1 << exponent for exponent in range(devices.bit_length()) if 1 << exponent <= devices]
    return tuple(dict.fromkeys([*sizes, devices]))


def _refuse_too_little(study: Study, resources: Resources) -> None:
    if resources.num_devices >= 1:
        return
    if resources.device == "cuda":
        raise RequestError("resources.device: cuda needs a GPU, there is none (received 'cuda')")
    raise RequestError(
        "resources.cpus_per_worker: no more than the cores that there are "
        f"(received {study.resources.cpus_per_worker})"
    )


def _refuse_idle_placements(plan: Plan) -> None:
    """Ranks that stand for no world size here; with listed sizes the study itself refuses them."""
    for placement in plan.study.scaling.placement:
        if not isinstance(placement, str) and len(placement) not in plan.world_sizes:
            raise RequestError(
                "scaling.placement: a list of ranks as long as one of the world sizes "
                f"{list(plan.world_sizes)} (received {list(placement)})"
            )


def _refuse_too_many(plan: Plan, resources: Resources) -> None:
    wanted, devices = plan.group_size, resources.num_devices
    if wanted <= devices:
        return
    if resources.device == "cuda":
        raise RequestError(
            f"scaling.world_sizes: at most {devices}, the GPUs that there are (received {wanted})"
        )
    if not plan.study.resources.oversubscribe:
        raise RequestError(
            f"scaling.world_sizes: at most {devices}, with {plan.study.resources.cpus_per_worker} cores for "
            f"each worker, unless --oversubscribe (received {wanted})"
        )


def _refuse_uneven_batches(plan: Plan) -> None:
    for size in plan.world_sizes:
        uneven = plan.study.uneven_batch(size)
        if uneven is not None:
            batch, accumulation = uneven
            raise RequestError(
                "knobs.batch_size: under strong scaling divisible by world size x gradient_accumulation = "
                f"{size} x {accumulation} (received {batch})"
            )


def _refuse_no_room(plan: Plan) -> None:
    """A limit below the smallest batch that "max" may stand for."""
    if not plan.study.knobs.has_max:
        return
    most = plan.study.search.max_batch_size
    for smallest in (setting.batch_size for setting in plan.combinations()):
        if smallest > most:
            raise RequestError(
                "search.max_batch_size: under strong scaling at least the world sizes' common multiple x "
                f"gradient_accumulation = {smallest} (received {most})"
            )


def _refuse_faults(plan: Plan) -> None:
    """A combination that cannot be is a trial ``invalid`` where others are fine; here none is."""
    faults = set()
    for setting in plan.study.knobs.grid(
        plan.largest
    ):  # a grid may have a million: no further than the first possible
        fault = setting.fault(plan.device)
        if fault is None:
            return
        faults.add(fault)
    raise RequestError(*(f"knobs: {fault}" for fault in sorted(faults)))
