"""``scaling`` from the request to the report: everything between the command line and the stages."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

import psutil
from rich.console import Console

from raybench.commands.display import Display, clock_words, own_output
from raybench.errors import GroupLostError, Interrupted, RequestError, StoreError
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster
from raybench.launch.runner import TrialRunner
from raybench.machine import environment as environments
from raybench.machine import gpus
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.record import State
from raybench.records.store import CHECKPOINTS, ResultsDirectory
from raybench.spec.load import find_study, load_study
from raybench.spec.study import Study

# Kept back from the time budget for ending Ray and writing the report; both measured on two cores.
FINISH_SECONDS = 11.0
EVALUATION_COST = 1 / 3  # of a sample's training: the forward pass alone
DONE, NOTHING_COMPLETED, CANNOT_WRITE, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Options:
    """What was typed."""

    study: str | None = None
    output: Path | None = None
    resume: bool = False
    retry: tuple[State, ...] = ()
    smoke: bool = False
    device: Literal["auto", "cpu", "cuda"] | None = None
    overrides: tuple[tuple[str, Any], ...] = ()
    address: str | None = None
    working_dir: Path | None = None
    dry_run: bool = False
    quiet: bool = False
    began: float = field(default_factory=lambda: psutil.Process().create_time())


def conduct(options: Options, console: Console) -> int:
    """Plan, run, analyse, report; the exit code. Raises ``RequestError`` for a wrong request."""
    study = _study(options)
    plan = make_plan(study, _cluster(study, options, None).resources())
    study = _resolved(plan)
    if study.workload.name != "mlp":  # torch takes seconds to import: only where there is something to check
        from raybench import workloads

        workloads.check(study.workload, study.data)
        if study.training is not None:
            workloads.num_samples(study.workload, study.data)  # the test samples are there too
    if options.dry_run:
        _print_plan(plan, console)
        return DONE
    with interrupt.raising():
        try:
            with _results(options, study) as store:
                return _run(options, plan, store)
        except Interrupted:  # before there was anything to keep, or for the second time
            return INTERRUPTED


def _study(options: Options) -> Study:
    """The study with its overrides; with ``--resume`` and no name, the one of the directory."""
    if options.resume:
        if options.output is None:
            raise RequestError("--resume: needs --output DIR, the directory to go on in")
        if options.study is None:
            with ResultsDirectory.open_readonly(options.output) as store:
                path = store.path / "study.toml"
            return load_study(path, device=_device(options, None), overrides=options.overrides)
    path = find_study(options.study)
    device = _device(options, path)
    return load_study(path, device=device, smoke=options.smoke, overrides=options.overrides)


def _device(options: Options, path: Path | None) -> Literal["cpu", "cuda"]:
    """The kind of device: as typed, as the study says, or what there is."""
    asked = options.device
    if asked in (None, "auto") and path is not None:
        asked = load_study(path, smoke=options.smoke, overrides=options.overrides).resources.device
    if asked in (None, "auto"):
        return "cuda" if gpus.gpu_names() else "cpu"
    return cast(Literal["cpu", "cuda"], asked)


def _cluster(
    study: Study,
    options: Options,
    plan: Plan | None,
    on_connect: Callable[[str], None] = lambda words: None,
) -> Cluster:
    """The cluster as the request names it; nothing is started yet."""
    device = study.resources.device
    if device == "auto":
        device = "cuda" if gpus.gpu_names() else "cpu"
    return Cluster(
        device=device,
        cpus_per_worker=study.resources.cpus_per_worker,
        address=options.address,
        oversubscribed_workers=plan.group_size if plan is not None and plan.oversubscribed else None,
        working_dir=str(options.working_dir.resolve()) if options.working_dir else None,
        on_connect=on_connect,
    )


def _resolved(plan: Plan) -> Study:
    """The study as it is run here: what the results directory keeps."""
    study = plan.study
    scaling = study.scaling.model_copy(
        update={"world_sizes": plan.world_sizes, "target_world_size": plan.target}
    )
    resources = study.resources.model_copy(update={"device": plan.device})
    data = str(Path(study.data).expanduser().resolve()) if study.data else None
    return study.model_copy(update={"scaling": scaling, "resources": resources, "data": data})


def _results(options: Options, study: Study) -> ResultsDirectory:
    now = environments.capture()
    if options.resume:
        assert options.output is not None
        store = ResultsDirectory.resume(options.output)
        try:
            store.check_same(study, now)
        except StoreError:
            store.close()
            raise
        return store
    output = options.output or Path("results") / f"{study.name}-{datetime.now():%Y%m%d-%H%M%S}"
    return ResultsDirectory.create(output, study, now)


def _run(options: Options, plan: Plan, store: ResultsDirectory) -> int:
    """Measure and report; a full disk and a lost group leave what was measured, and say so."""
    plan = replace(plan, study=store.study())
    notes, ended = list(store.warnings), DONE
    with own_output(store.path / "ray.log") as own:
        with Display(own, quiet=options.quiet) as display:
            try:
                with interrupt.held():
                    notes += _measure(options, plan, store, display)
            except Interrupted as signal:
                ended = INTERRUPTED
                display.line(f"{signal}: the workers are gone, what was measured is kept")
            except GroupLostError as lost:
                notes.append(f"{lost}; Ray's own words are in {store.path / 'ray.log'}")
            except StoreError as error:
                ended = CANNOT_WRITE
                notes += error.problems
        try:
            code = write_and_print(store, own, notes, quiet=options.quiet)
        except Interrupted:
            code = ended = INTERRUPTED
        except OSError as error:
            own.print(f"the report cannot be written: {error}", soft_wrap=True, markup=False)
            code = ended = CANNOT_WRITE
        if ended != DONE:
            own.print(f"To go on: {resume_command(store.path)}", soft_wrap=True, markup=False)
    return ended or code


def _measure(options: Options, plan: Plan, store: ResultsDirectory, display: Display) -> list[str]:
    """Run the trials and end every process; what to tell beside the results."""
    from raybench.plan.budget import Budget
    from raybench.run.execution import Execution

    cluster = _cluster(plan.study, options, plan, display.line)
    display.stage(_what_starts(plan))
    for words in _left_out_words(plan):
        display.line(words)
    # what Ray Train keeps of a run is of no use afterwards
    storage = tempfile.TemporaryDirectory(prefix="raybench-", ignore_cleanup_errors=True)
    runner = _runner(plan, cluster, Path(storage.name), store.path / CHECKPOINTS)
    try:
        search = None
        if plan.study.search.method == "optuna":
            from raybench.plan.search import Search

            search = Search(plan, store.path / "optuna.log")
        execution = Execution(
            plan=plan,
            runner=runner,
            store=store,
            watcher=display,
            search=search,
            budget=Budget(_deadline(options, plan.study), _epoch_samples(plan.study)),
            retry=frozenset(options.retry),
        )
        execution.run()
        runner.close()
    except Interrupted:
        runner.abandon()
        raise
    except BaseException:
        runner.close()
        raise
    finally:
        storage.cleanup()
    budget = plan.study.time_budget_seconds
    return execution.notes + [
        f"not reached within the time budget of {clock_words(budget or 0)}: {what}"
        for what in execution.not_reached
    ]


def _epoch_samples(study: Study) -> float | None:
    """Samples of an epoch in those that training could do in the same time; None where nothing is trained."""
    if study.training is None:
        return None
    from raybench import workloads

    train, test = workloads.num_samples(study.workload, study.data)
    return train + EVALUATION_COST * test / study.training.evaluate_every


def _runner(plan: Plan, cluster: Cluster, storage: Path, checkpoints: Path) -> TrialRunner:
    from raybench.launch.worker_group import WorkerGroupRunner

    return WorkerGroupRunner(
        cluster,
        device=plan.device,
        cpus_per_worker=plan.study.resources.cpus_per_worker,
        storage=storage,
        checkpoints=checkpoints,
    )


def _left_out_words(plan: Plan) -> list[str]:
    if not plan.left_out:
        return []
    sizes = ", ".join(map(str, plan.left_out))
    return [f"world sizes left out, as a global batch cannot be divided evenly over them: {sizes}"]


def _what_starts(plan: Plan) -> str:
    devices = f"{plan.group_size} {'GPU' if plan.device == 'cuda' else 'CPU'} workers"
    backend = "NCCL" if plan.device == "cuda" else "gloo"
    return f"raybench {plan.study.name}: starting Ray and {devices} on {backend}"


def _deadline(options: Options, study: Study) -> float | None:
    """When the last trial must be done, on ``monotonic``'s clock."""
    if study.time_budget_seconds is None:
        return None
    since = time.time() - options.began
    return time.monotonic() + study.time_budget_seconds - since - FINISH_SECONDS


def write_and_print(
    store: ResultsDirectory, console: Console, notes: Sequence[str] = (), *, quiet: bool = False
) -> int:
    """Analysis and report from the records on disk; 1 where no trial completed."""
    from raybench.analysis import analyse
    from raybench.report import print_summary, write_report
    from raybench.report.answer import answer_of

    study, records = store.study(), list(store.latest().values())
    results = analyse(study, records)
    if quiet:
        console.print(answer_of(results), soft_wrap=True, highlight=False, markup=False)
    else:
        print_summary(results, console)
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True, highlight=False, markup=False)
    environment = store.environment().model_dump(mode="json")
    files = write_report(store.path, study, records, environment, store.path / "samples", results)
    console.print(f"\nReport:  {_shown(files[0])}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Results: {_shown(store.path)}", soft_wrap=True, highlight=False, markup=False)
    return DONE if results.complete else NOTHING_COMPLETED


def resume_command(path: Path) -> str:
    """The line that goes on where this run stopped."""
    return f"python -m raybench.study scaling --resume --output {shlex.quote(_shown(path))}"


def _shown(path: Path) -> str:
    """A path as short as it is from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _print_plan(plan: Plan, console: Console) -> None:
    study = plan.study
    lines = [f"{study.name}: world sizes {', '.join(map(str, plan.world_sizes))} on {plan.device}"]
    lines += _left_out_words(plan)
    sizes = len(plan.curve(plan.default()))
    if study.knobs.has_max:
        number = len(plan.combinations())
        lines.append(
            f"batch_size max: found first, the largest that fits in memory at world size {plan.target}, "
            f"up to {study.search.max_batch_size:,}"
            + (f", for each of {number} combinations of the knobs that change memory" if number > 1 else "")
        )
    if study.search.method == "optuna":
        lines += [
            f"search: {study.search.trials} suggestions at world size {plan.target}, chosen by Optuna",
            f"scaling curve: {sizes} trials for each of the default and the best",
            "confirmation: the best against the default, interleaved",
        ]
    else:
        requests, more = plan.requests(), ""
        if study.knobs.has_max:  # the ids of those come with their numbers
            listed = study.knobs.values("batch_size")
            requests = [request for request in requests if request.config.setting.batch_size in listed]
            more = ", those of batch_size max"
        lines.append(
            f"{study.search.method}: {len(requests)} trials{more}, "
            "then the confirmation of the best against the default"
        )
        for request in requests:
            knobs = {name: getattr(request.config.setting, name) for name in study.knobs.explored()}
            shown = ", ".join(f"{name} {value}" for name, value in knobs.items())
            lines.append(f"  {request.trial_id}  world size {request.config.world_size}  {shown}")
    lines += [
        f"training: {each.trial_id}  world size {each.world_size}  seed {each.seed}"
        for each in plan.training()
    ]
    explored = {**study.knobs.explored(), **{k: v for k, v in study.environment.items() if len(v) > 1}}
    lines += [f"  {name}: {', '.join(map(str, values))}" for name, values in explored.items()]
    if study.time_budget_seconds:
        lines.append(f"time budget: {clock_words(study.time_budget_seconds)}")
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)
