"""A study resolved for what there is, or why it cannot be run there."""

from __future__ import annotations

import math
from dataclasses import replace

from raybench.analysis import choice
from raybench.errors import RequestError
from raybench.machine.host import Resources, WorkerNeeds
from raybench.plan.space import num_open
from raybench.plan.trials import Plan
from raybench.spec.knobs import Setting
from raybench.spec.study import ResourcesSpec, Study
from raybench.spec.user_input import home_path, real_path

MOST_TRIALS = 5_000  # of a study: seven hours at 5 s each; a report reads all of them
MOST_ON_A_DEVICE = 16  # workers where there is room for one: each is a process with torch in it
MOST_MEMORY_COMBINATIONS = 500  # each is probed some ten times


def make_plan(study: Study, resources: Resources) -> Plan:
    """Resolve ``study`` for what there is. Raises ``RequestError`` for what cannot be run there."""
    devices = resources.num_devices
    _refuse_too_little(study, resources)
    # "all" is every GPU: that there are no cores for some is refused, and none is left out in silence
    sizes, left_out = _world_sizes(study, max(devices, resources.num_gpus))
    changed = {
        "scaling": study.scaling.model_copy(update={"world_sizes": sizes}),
        "resources": study.resources.model_copy(update={"device": resources.device}),
        "data": str(real_path(home_path(study.data))) if study.data else None,
    }
    resolved = study.model_copy(update=changed)  # what the results directory keeps
    try:
        resolved.check_world_sizes()
    except ValueError as error:
        raise RequestError(str(error)) from None
    plan = Plan(
        study=resolved,
        device=resources.device,
        world_sizes=sizes,
        target=sizes[-1],
        num_devices=devices,
        num_nodes=resources.num_nodes,
        left_out=left_out,
    )
    _refuse_too_large(plan)
    refuse_too_many(plan.group_size, resources, study.resources, "scaling.world_sizes")
    _refuse_as_if(plan)
    _refuse_no_room(plan)
    # a combination that cannot be is a trial ``invalid`` where others are fine; here none is
    if faults := resolved.knobs.faults(plan.device):
        raise RequestError(*(f"knobs: {fault}" for fault in faults))
    return plan


def grid_of_search(plan: Plan) -> tuple[Plan, int] | None:
    """A search for more suggestions than there are combinations as the grid that it is, and their number.

    None where a search has something to choose, or the grid is too large.
    """
    study, trials = plan.study, plan.study.search.trials
    if not plan.is_search:
        return None
    number = num_open(plan, (), trials)
    if trials <= number:
        return None
    search = study.search.model_copy(update={"method": "grid"})
    grid = replace(plan, study=study.model_copy(update={"search": search}))
    try:
        _refuse_too_large(grid)
    except RequestError:
        return None
    return grid, number


def _world_sizes(study: Study, devices: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The world sizes, ascending, and those of "all" that are left out.

    Of "all" there are those over which every global batch can be divided; where none of several is, all of
    them. Strategy ``single`` alone has one device, and is refused where more are requested.
    """
    sizes, alone = study.scaling.world_sizes, study.knobs.values("strategy") == ("single",)
    if sizes == "all":
        every = (1,) if alone else powers_of_two(devices)
        fitting = tuple(size for size in every if study.uneven_batch(size) is None)
        taken = fitting if max(fitting, default=1) > 1 else every
        return taken, tuple(size for size in every if size not in taken)
    if alone and max(sizes) > 1:
        raise RequestError(
            'scaling.world_sizes: 1 where knobs.strategy is "single" alone '
            f"(received {', '.join(map(str, sorted(sizes)))})"
        )
    return tuple(sorted(sizes)), ()


def powers_of_two(devices: int) -> tuple[int, ...]:
    """1, 2, 4, ... and every device."""
    sizes = [1 << exponent for exponent in range(devices.bit_length())]
    return tuple(dict.fromkeys([*sizes, devices]))


def _refuse_too_little(study: Study, resources: Resources) -> None:
    if resources.num_devices >= 1:
        return
    cpus = study.resources.cpus_per_worker
    if resources.device == "cuda":
        needs = WorkerNeeds("cuda", cpus)
        raise RequestError(
            f"resources.device: cuda needs a node with {needs}, there is none (received 'cuda')"
        )
    raise RequestError(f"resources.cpus_per_worker: no more than the cores that there are (received {cpus})")


def _refuse_too_large(plan: Plan) -> None:
    """Counted before anything is made of it: a plan and a report hold its trials in memory."""
    study, knobs, variables = plan.study, plan.study.knobs, plan.study.environment
    if knobs.has_max and (number := knobs.num_combinations(Setting.MEMORY_KNOBS)) > MOST_MEMORY_COMBINATIONS:
        raise RequestError(
            f'knobs.batch_size: "max" for at most {MOST_MEMORY_COMBINATIONS:,} combinations of the knobs '
            f"that change memory (received {number:,})"
        )
    if study.search.method == "optuna" and study.search.trials > MOST_TRIALS:
        raise RequestError(f"search.trials: at most {MOST_TRIALS:,} (received {study.search.trials:,})")
    settings, instead = 1, ""
    if study.search.method == "grid":
        settings = knobs.num_combinations() * math.prod(map(len, variables.values()))
        instead = ": fewer values, or --trials N to have Optuna choose among them"
    elif study.search.method == "ablation":
        settings = sum(map(len, [*knobs.explored().values(), *variables.values()]))
    each = sum(len(choice.placements(study, size)) for size in plan.world_sizes) * study.measure.starts
    if settings * each > MOST_TRIALS:
        raise RequestError(
            f"search.method: {study.search.method} of at most {MOST_TRIALS:,} trials "
            f"(received {settings:,} settings, each in {each:,} trials at world sizes and "
            f"placements){instead}"
        )
    seeds = 0 if study.training is None else len(study.training.seeds)
    trained = seeds * len(plan.world_sizes) * len(knobs.values("strategy"))
    if trained > MOST_TRIALS:
        raise RequestError(f"training.seeds: at most {MOST_TRIALS:,} trials (received {trained:,})")


def _refuse_as_if(plan: Plan) -> None:
    """Devices that there are need no emulation, one has no collectives, workers on one core wait for it."""
    asked = plan.study.scaling.as_if or ()
    if asked and (plan.target == 1 or plan.oversubscribed or min(asked) < plan.target):
        raise RequestError(
            f"scaling.as_if: at least the target world size, {plan.target}, which is 2 or more and at most "
            f"the number of devices, {plan.num_devices} (received {', '.join(map(str, asked))})"
        )


def refuse_too_many(wanted: int, resources: Resources, asked: ResourcesSpec, field: str) -> None:
    """Raise ``RequestError`` for more workers than there are devices, or than can be started."""
    devices = resources.num_devices
    if wanted <= devices:
        return
    is_cuda = resources.device == "cuda"
    if is_cuda or not asked.oversubscribe:
        needs, unless = WorkerNeeds(resources.device, asked.cpus_per_worker), "unless --oversubscribe"
        if is_cuda:
            unless = f"fewer than the {resources.num_gpus} GPUs, unless each takes fewer cores"
        fit = f"at most {devices} workers of {needs}"
        hint = "" if is_cuda and devices >= resources.num_gpus else f", {unless}"
        raise RequestError(f"{field}: {fit}{hint} (received {wanted})")
    most = MOST_ON_A_DEVICE * devices
    if wanted > most:
        raise RequestError(
            f"{field}: with --oversubscribe at most {MOST_ON_A_DEVICE} times as many as there is room for, "
            f"{most:,} (received {wanted:,})"
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
