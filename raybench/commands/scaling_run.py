"""``scaling`` from the request to the report: everything between the command line and the stages."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console

from raybench.analysis.labels import weights_words
from raybench.commands.display import Display, clock_words
from raybench.commands.dry_run import left_out_words, print_plan
from raybench.commands.exit_codes import DONE, INTERRUPTED
from raybench.commands.measuring import measure_and_report, run_and_end
from raybench.commands.progress import StudyProgress
from raybench.commands.report import write_and_print
from raybench.commands.results import open_results
from raybench.commands.scaling_request import Options, cluster_of, study_of
from raybench.errors import Interrupted
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster
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
            with open_results(study, options.output, resume=options.resume) as store:
                return _run(options, plan, cluster, store)
        except Interrupted:  # before there was anything to keep, or for the second time
            return INTERRUPTED


def _run(options: Options, plan: Plan, cluster: Cluster, store: ResultsDirectory) -> int:
    return measure_and_report(
        store,
        lambda display: _measure(options, plan, cluster, store, display),
        lambda console, notes: write_and_print(store, console, notes, quiet=options.quiet),
        command="scaling",
        quiet=options.quiet,
    )


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
    session = Session(
        plan=plan,
        runner=runner,
        store=store,
        watcher=StudyProgress(plan.study, display),
        budget=Budget(_deadline(options, plan.study), _epoch_samples(plan.study)),
        retry=frozenset(options.retry),
        journal=store.path / OPTUNA_JOURNAL,
    )
    try:
        run_and_end(runner, lambda: run_study(session))
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
