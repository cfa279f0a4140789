"""What was typed of a study: its file and overrides, the cluster, and the results directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from raybench.commands.options import Options
from raybench.commands.scaling import ScalingOptions
from raybench.errors import RequestError, StoreError
from raybench.launch.cluster import Cluster
from raybench.machine.environment import Environment
from raybench.machine.host import Resources, WorkerNeeds
from raybench.records.store import Asked, ResultsDirectory, made_of
from raybench.spec.load import find_study, load_study
from raybench.spec.plural import plural
from raybench.spec.study import ResourcesSpec, Study
from raybench.spec.sweep import Sweep
from raybench.spec.user_input import real_path
from raybench.spec.workloads import OWN, OwnCodeSpec


def search_folders(study_file: Path | None) -> None:
    """Put the folder of the study's file and the current one before all others on the import path.

    ``python -m`` has the current one there by itself, an installed ``raybench`` the folder of programs: so
    both find the same. What is found on this path travels to other nodes, and workers here are told it.
    """
    folder = made_of(study_file).parent if study_file else Path.cwd()
    folders = dict.fromkeys([str(folder), str(Path.cwd())])
    sys.path[:] = [*folders, *(path for path in sys.path if path not in folders)]


def request_of(options: ScalingOptions) -> tuple[Cluster, Study, Path | None]:
    """The cluster, not yet started, the study for its kind of device, and the file whose folder has its code.

    A cluster is joined to learn its kind of device; the file is None where the workload is none of one's own.

    With ``--resume`` and no name the study is that of the directory.
    """
    path, smoke = _study_path(options)
    load = partial(load_study, path)
    study = load(smoke=smoke, overrides=options.overrides)
    has_own_code = isinstance(study.workload, OwnCodeSpec)
    if has_own_code:  # before the cluster looks for what travels
        search_folders(path)
    cluster = Cluster(
        address=options.address,
        working_dir=_working_dir(options.working_dir) if options.working_dir else None,
        workload=study.workload,
        name=study.name,
    )
    device = cluster.device_kind() if study.resources.device == "auto" else study.resources.device
    study = load(device=device, smoke=smoke, overrides=options.overrides)
    resources = study.resources.model_copy(update={"device": device})
    study = study.model_copy(update={"resources": resources})
    return cluster, study, made_of(path) if path and has_own_code else None


def _working_dir(path: Path) -> Path:
    """Where its links lead; raises ``RequestError`` where that is no directory: Ray would not start."""
    if not path.is_dir():
        raise RequestError(f"--working-dir: a directory (received {str(path)!r})")
    return real_path(path)


def _study_path(options: ScalingOptions) -> tuple[Path | None, bool]:
    """Its file, None of a script or factory without one, and whether its smoke values apply."""
    if not options.resume:
        keys = {"workload", *(f"workload.{key}" for key in OWN)}
        own = {field for field, _ in options.overrides} & keys
        return None if options.study is None and own else find_study(options.study), options.smoke
    assert options.output is not None
    if options.study is not None:
        return find_study(options.study), options.smoke
    with ResultsDirectory.open_readonly(options.output) as store:
        return store.study_file, False


def needs_of(resources: ResourcesSpec) -> WorkerNeeds:
    """What each worker takes; the kind of device is known."""
    assert resources.device != "auto"
    return WorkerNeeds(resources.device, resources.cpus_per_worker)


def places_named(asked: Study | Sweep) -> int:
    """The workers that a study or sweep names: of its largest world size, and of its lists of ranks."""
    if isinstance(asked, Sweep):
        world_sizes, named = asked.world_sizes, list[int]()
    else:
        world_sizes = asked.scaling.world_sizes
        named = [max(ranks) + 1 for ranks in asked.scaling.placement if not isinstance(ranks, str)]
    return max([1, *(() if world_sizes == "all" else world_sizes), *named])


DEFAULT_FOLDER = Path("results")


def resources_there(
    cluster: Cluster, asked: Study | Sweep, options: Options, tell: Callable[[str], None]
) -> Resources:
    """What the cluster has for ``asked``, whose kind of device is known, once it has the places it names."""
    needs = needs_of(asked.resources)
    if asked.resources.oversubscribe:
        cluster.refuse_oversubscribing()
    cluster.await_places(places_named(asked), needs, asked.resources.wait_seconds, tell)
    resources = cluster.resources(needs)
    if cluster.is_local:
        return resources
    # what "auto" and "all" stand for here
    there = "GPUs" if needs.device == "cuda" else f"places for workers of {needs}"
    nodes = plural(resources.num_nodes, "node")
    tell(f"{nodes} with {resources.num_devices} {there}: {resources.device_name}")
    return as_it_began(options.output, resources, tell) if options.resume else resources


def as_it_began(output: Path | None, resources: Resources, tell: Callable[[str], None]) -> Resources:
    """What there was when the study or sweep in ``output`` began, where nodes of it are missing now.

    It is planned as it was: what does not fit on the nodes that are left is named when its turn comes. Of the
    missing nodes it is known that each had a place.
    """
    assert output is not None
    with ResultsDirectory.open_readonly(output) as store:
        num_nodes = len(store.environment().every_node)
        named = places_named(store.sweep() if store.is_sweep else store.study())
    missing = num_nodes - resources.num_nodes
    if missing <= 0 or resources.num_devices < 1:
        return resources
    tell(f"goes on with {resources.num_nodes} of {num_nodes} nodes: what does not fit on them is left out")
    num_devices = max(resources.num_devices + missing, named)
    return replace(resources, num_devices=num_devices, num_nodes=num_nodes)


def open_results(
    asked: Asked, output: Path | None, now: Environment, *, resume: bool, made_of: Path | None = None
) -> ResultsDirectory:
    """For ``asked`` on the machine as it is ``now``; ``made_of``: the file that was typed.

    Raises ``StoreError`` where it cannot be used.
    """
    if resume:
        assert output is not None
        store = ResultsDirectory.resume(output)
        try:
            store.check_same(asked, now)
            store.write_asked(asked, made_of)
        except StoreError:
            store.close()
            raise
        return store
    output = output or DEFAULT_FOLDER / f"{asked.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return ResultsDirectory.create(output, asked, now, made_of)
