"""``scaling`` from the request to the report: everything between the command line and the stages."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console

from raybench.analysis.labels import weights_words
from raybench.commands.console import own_output
from raybench.commands.display import Display, clock_words
from raybench.commands.dry_run import left_out_words, print_plan
from raybench.commands.exit_codes import CANNOT_WRITE, DONE, INTERRUPTED
from raybench.commands.gauges import StudyGauges
from raybench.commands.progress import StudyProgress
from raybench.commands.report import resume_command, write_and_print
from raybench.commands.scaling_request import Options, cluster_of, results_directory, study_of
from raybench.commands.watchers import Watchers
from raybench.errors import GroupLostError, Interrupted, StoreError
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster
from raybench.launch.metrics import RayMetrics
from raybench.launch.runner import TrialRunner
from raybench.plan.budget import Budget
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.store import OPTUNA_JOURNAL, ResultsDirectory
from raybench.run.session import Session
from raybench.run.study import run_study
from raybench.spec.study import Study

# Kept back from the time budget for ending Ray and writing the report; both measured on two cores.
FINISH_SECONDS = 11.0
EVALUATION_COST = 1 / 3  # of a sample's training: the forward pass alone


def run_scaling(options: Options, console: Console) -> int:
    """Plan, run, analyse, report; the exit code. Raises ``RequestError`` for a wrong request."""
    study = study_of(options)
    cluster = cluster_of(study, options)
    plan = make_plan(study, cluster.resources())
    study = plan.study
    if study.workload.name != "mlp":  # torch takes seconds to import: only where there is something to check
        from raybench import workloads

        workloads.check(study.workload, study.data)
        if study.training is not None:
            workloads.num_samples(study.workload, study.data)  # the test samples are there too
    if options.dry_run:
        print_plan(plan, console)
        return DONE
    with interrupt.raising():
        try:
            with results_directory(options, study) as store:
                return _run(options, plan, cluster, store)
        except Interrupted:  # before there was anything to keep, or for the second time
            return INTERRUPTED


def _run(options: Options, plan: Plan, cluster: Cluster, store: ResultsDirectory) -> int:
    """Measure and report; a full disk and a lost group leave what was measured, and say so."""
    notes, ended = list(store.warnings), DONE
    with own_output(store.path / "ray.log") as own:
        with Display(own, quiet=options.quiet) as display:
            try:
                with interrupt.held():
                    notes += _measure(options, plan, cluster, store, display)
            except Interrupted as signal:
                ended = INTERRUPTED
                display.line(f"{signal}: the workers are gone, what was measured is kept")
            except GroupLostError as lost:
                notes.append(f"{lost}; what Ray said is in {store.path / 'ray.log'}")
            except StoreError as error:
                ended = CANNOT_WRITE
                notes += error.problems
        try:
            with interrupt.held(second_raises=True):
                code = write_and_print(store, own, notes, quiet=options.quiet)
        except Interrupted:  # after the report, unless it came twice
            code = ended = INTERRUPTED
        except OSError as error:
            own.print(f"the report cannot be written: {error}", soft_wrap=True, markup=False)
            code = ended = CANNOT_WRITE
        if ended != DONE:
            own.print(f"To go on: {resume_command(store.path)}", soft_wrap=True, markup=False)
    return ended or code


def _measure(
    options: Options, plan: Plan, cluster: Cluster, store: ResultsDirectory, display: Display
) -> list[str]:
    """Run the trials and end every process; what to tell beside the results."""
    weights = weights_words(plan.study)
    if weights:
        display.line(weights)
    display.stage(_what_starts(plan))
    workers = plan.group_size if plan.oversubscribed else None
    cluster.prepare(oversubscribed_workers=workers, on_connect=display.line)
    for words in left_out_words(plan):
        display.line(words)
    # what Ray Train keeps of a run is of no use afterwards
    storage = tempfile.TemporaryDirectory(prefix="raybench-", ignore_cleanup_errors=True)
    runner = _runner(plan, cluster, Path(storage.name), store.path)
    metrics = RayMetrics()
    session = Session(
        plan=plan,
        runner=runner,
        store=store,
        watcher=Watchers(StudyProgress(plan.study, display), StudyGauges(plan.study, metrics)),
        budget=Budget(_deadline(options, plan.study), _epoch_samples(plan.study)),
        retry=frozenset(options.retry),
        journal=store.path / OPTUNA_JOURNAL,
    )
    try:
        with metrics:  # ends before Ray does
            run_study(session)
        runner.close()
    except Interrupted:
        runner.abandon()
        raise
    except BaseException:
        runner.close()
        raise
    finally:
        storage.cleanup()
    budget = clock_words(plan.study.time_budget_seconds or 0)
    late = [f"not reached within the time budget of {budget}: {what}" for what in session.not_reached]
    return session.notes + late


def _epoch_samples(study: Study) -> float | None:
    """Samples of an epoch in those that training could do in the same time; None where nothing is trained."""
    if study.training is None:
        return None
    from raybench import workloads

    train, test = workloads.num_samples(study.workload, study.data)
    return train + EVALUATION_COST * test / study.training.evaluate_every


def _runner(plan: Plan, cluster: Cluster, storage: Path, results: Path) -> TrialRunner:
    from raybench.launch.group_runner import WorkerGroupRunner

    return WorkerGroupRunner(
        cluster,
        device=plan.device,
        cpus_per_worker=plan.study.resources.cpus_per_worker,
        storage=storage,
        results=results,
    )


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
