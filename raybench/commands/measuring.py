"""What both commands that measure share: the cluster, the results directory, the workers, the report.

It survives interrupts and full disks, and ends every process that it started.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from raybench.commands.console import is_read, own_output, say, say_to_copy, shown_path
from raybench.commands.options import Options
from raybench.commands.process import CANNOT_WRITE, DONE, INTERRUPTED, RAY_DIED
from raybench.commands.progress import NOT_READ, Display
from raybench.commands.report import resume_command, write_and_print
from raybench.commands.scaling import Runner, ScalingOptions, study_file
from raybench.errors import GroupLostError, Interrupted, NoRoomError, RayDiedError, RequestError, StoreError
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster
from raybench.launch.runner import TrialRunner
from raybench.machine.environment import Environment
from raybench.machine.host import BACKENDS, Resources, WorkerNeeds
from raybench.plan.sweep_plan import SweepPlan
from raybench.plan.trials import Plan
from raybench.records.store import Asked, ResultsDirectory
from raybench.spec.load import load_study
from raybench.spec.plural import plural
from raybench.spec.study import ResourcesSpec, Study
from raybench.spec.sweep import Sweep

DEFAULT_FOLDER = Path("results")


def search_folders(code_folder: str) -> None:
    """Put the study's folder of code and the current one before all others on the import path.

    ``python -m`` has the current one there by itself, an installed ``raybench`` the folder of programs: so
    both find the same. What is found on this path travels to other nodes, and workers here are told it.
    """
    folders = dict.fromkeys([code_folder, str(Path.cwd())])
    sys.path[:] = [*folders, *(path for path in sys.path if path not in folders)]


def request_of(options: ScalingOptions) -> tuple[Cluster, Study]:
    """The cluster, not yet started, and the study for its kind of device; one is joined to learn that."""
    path, smoke = study_file(options)
    load = partial(load_study, path)
    study = load(smoke=smoke, overrides=options.overrides)
    if study.code_folder is not None:  # before the cluster looks for what travels
        search_folders(study.code_folder)
    cluster = Cluster(
        address=options.address,
        working_dir=options.working_dir,
        workload=study.workload,
        name=study.name,
    )
    device = cluster.device_kind() if study.resources.device == "auto" else study.resources.device
    overrides = (*options.overrides, ("resources.device", device))
    return cluster, load(device=device, smoke=smoke, overrides=overrides)


def needs_of(resources: ResourcesSpec) -> WorkerNeeds:
    """What each worker takes; the kind of device is known."""
    assert resources.device != "auto"
    return WorkerNeeds(resources.device, resources.cpus_per_worker)


def resources_there(
    cluster: Cluster, asked: Study | Sweep, options: Options, tell: Callable[[str], None]
) -> Resources:
    """What the cluster has for ``asked``, whose kind of device is known, once it has the places it names."""
    needs = needs_of(asked.resources)
    if asked.resources.oversubscribe and not cluster.is_local:  # a joined one has the cores that it has
        raise RequestError("--oversubscribe: of a local cluster only (received it with --address)")
    cluster.await_places(asked.least_workers, needs, asked.resources.wait_seconds, tell)
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
        named = (store.sweep() if store.is_sweep else store.study()).least_workers
    missing = num_nodes - resources.num_nodes
    if missing <= 0 or resources.num_devices < 1:
        return resources
    tell(f"goes on with {resources.num_nodes} of {num_nodes} nodes: what does not fit on them is left out")
    num_devices = max(resources.num_devices + missing, named)
    return replace(resources, num_devices=num_devices, num_nodes=num_nodes)


def open_results(asked: Asked, output: Path | None, now: Environment, *, resume: bool) -> ResultsDirectory:
    """For ``asked`` on the machine as it is ``now``; raises ``StoreError`` where it cannot be used."""
    if resume:
        assert output is not None
        store = ResultsDirectory.resume(output)
        try:
            store.check_same(asked, now)
            store.write_asked(asked)
        except StoreError:
            store.close()
            raise
        return store
    output = output or DEFAULT_FOLDER / f"{asked.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return ResultsDirectory.create(output, asked, now)


# --- from the first trial to the report


@dataclass(frozen=True)
class EndedCommand:
    """How a command that measures has ended: its exit code, and the results directory unless it was dry."""

    code: int
    directory: Path | None = None


def measure_and_report(
    store: ResultsDirectory,
    measure: Callable[[Display], list[str]],
    *,
    command: str,
    quiet: bool,
) -> EndedCommand:
    """Measure and report; a full disk and a lost group leave what was measured, and say so.

    ``measure`` returns notes for the report; ``command`` goes on where it stopped.
    """
    notes, ended, goes_on, read = list(store.warnings), DONE, False, True
    goes_on_by = f"To go on: {resume_command(store.path, command)}"
    with own_output(store.path / "ray.log") as own:
        with Display(own, quiet=quiet) as display:
            try:
                with interrupt.held():
                    notes += measure(display)
            except RayDiedError as died:
                ended = RAY_DIED
                notes.append(f"{died}; what Ray said is in {shown_path(store.path / 'ray.log')}")
            except Interrupted as signal:
                ended = INTERRUPTED
                display.line(f"{signal}: the workers are gone, what was measured is kept")
            except (GroupLostError, NoRoomError) as lost:
                goes_on = True
                notes.append(f"{lost}; what Ray said is in {store.path / 'ray.log'}")
            except StoreError as error:
                ended = CANNOT_WRITE
                notes += error.problems
        try:
            with interrupt.held(second_raises=True):
                goes_on = goes_on or ended != DONE  # an interrupt from now on is told of below
                code = write_and_print(store, own, notes, quiet=quiet, command=command, stopped=goes_on)
        except Interrupted:  # after the report, unless it came twice
            code = ended = INTERRUPTED
        except RequestError as error:
            for line in (*notes, *(f"no report: {problem}" for problem in error.problems)):
                say(own, line)
            code = ended = CANNOT_WRITE
        goes_on = goes_on or ended != DONE
        if goes_on:
            say_to_copy(own, goes_on_by)
        read = is_read(own.file)
    if not read and goes_on:
        with suppress(OSError):  # a terminal that is gone had stderr too
            print(f"{NOT_READ}: what was measured is kept in {shown_path(store.path)}", file=sys.stderr)
            print(goes_on_by, file=sys.stderr, flush=True)
    return EndedCommand(ended or code, store.path)


@contextmanager
def ending(runner: TrialRunner, *, lives_on: bool = False) -> Iterator[None]:
    """End every process that ``runner`` started when the block ends, however that happens.

    An interrupt ends them at once, unless this process ``lives_on``: Ray's core would end it a while later.
    """
    try:
        try:
            yield
        except (Interrupted, StoreError):
            raise
        except Exception:
            interrupt.check_death()  # what Ray's calls raise where Ray has died is no error of theirs
            raise
        runner.close()
    except BaseException as error:
        if isinstance(error, Interrupted) and (not lives_on or isinstance(error, RayDiedError)):
            runner.abandon()
            raise
        try:
            runner.close()
        except Interrupted:
            runner.abandon()
        raise


@contextmanager
def workers(
    cluster: Cluster,
    plan: Plan | SweepPlan,
    store: ResultsDirectory,
    display: Display,
    kind: Runner = "group",
    suffix: str = "",
    *,
    lives_on: bool = False,
) -> Iterator[TrialRunner]:
    """The runner of ``plan``; Ray starts with its first group, and all its processes end with the block.

    ``suffix``: of the line that says what starts; ``lives_on``: as ``ending``.
    """
    asked = plan.study if isinstance(plan, Plan) else plan.sweep
    needs = needs_of(asked.resources)
    device, backend = "GPU" if needs.device == "cuda" else "CPU", BACKENDS[needs.device]
    if kind == "tune":
        what = f"Ray Tune; every trial gets {device} workers of its own"
    else:
        what = plural(plan.group_size, f"{device} worker")
    display.stage(f"raybench {asked.name}: starting Ray and {what} on {backend}{suffix}")
    concurrent = plan.group_size if plan.oversubscribed else 0
    cluster.prepare(needs, oversubscribed_workers=concurrent, tell=display.line)
    # what Ray Train keeps of a run is of no use afterwards
    with tempfile.TemporaryDirectory(prefix="raybench-", ignore_cleanup_errors=True) as storage:
        runner = runner_class(kind)(
            cluster,
            needs=needs,
            storage=Path(storage),
            results=store.path,
            name=asked.name,
            wait_s=asked.resources.wait_seconds,
        )
        with ending(runner, lives_on=lives_on):
            yield runner


def runner_class(kind: Runner) -> Callable[..., TrialRunner]:
    """The class of runners of a kind; Ray Tune is imported only where it serves."""
    if kind == "tune":
        from raybench.launch.tune_runner import TuneRunner

        return TuneRunner
    from raybench.launch.group_runner import WorkerGroupRunner

    return WorkerGroupRunner
