"""``scaling`` and ``communication``: the plan of each, its dry run, and what is handed to the stages."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from raybench.analysis.findings.case import Around
from raybench.analysis.history import SHOWN, known_spreads, machine_of
from raybench.analysis.labels import place_words, trial_words, weights_words
from raybench.analysis.stats.statistics import LEAST_VALUES
from raybench.commands.console import say
from raybench.commands.measuring import (
    DEFAULT_FOLDER,
    EndedCommand,
    measure_and_report,
    needs_of,
    open_results,
    request_of,
    resources_there,
    workers,
)
from raybench.commands.notes import note_words, stage_words
from raybench.commands.options import Options
from raybench.commands.process import DONE
from raybench.commands.progress import Display, StudyGauges, StudyProgress
from raybench.commands.report import analysed
from raybench.commands.scaling import ScalingOptions
from raybench.commands.tracking import log_study, refuse_missing
from raybench.driver.forecast import FINISH_S, TimeEstimate, estimate
from raybench.driver.session import Session, run_sweep
from raybench.driver.stages import MOST_WITHOUT_BUDGET, run_study
from raybench.driver.time_budget import TimeBudget
from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.launch.metrics import RayMetrics
from raybench.launch.readable import check_workload, refuse_unseen
from raybench.machine.environment import Spreads, of_nodes, unlike_nodes
from raybench.plan.make_plan import grid_of_search, make_plan
from raybench.plan.notes import Stage, num_suggestions, open_visits
from raybench.plan.sweep_plan import SweepPlan, make_sweep_plan
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.requests import StepsRequest, TrainingRequest
from raybench.records.store import OPTUNA_JOURNAL, ResultsDirectory, refuse_occupied
from raybench.report.document import REPORT
from raybench.report.format import clock, exact_clock
from raybench.spec.load import validated
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.sweep import Sweep
from raybench.spec.workloads import LightningSpec, ScriptSpec, TrainerSpec
from raybench.workloads import Checked

MOST_STUDIES = 50  # whose spreads are looked at, the newest
EVALUATION_COST = 1 / 3  # of a sample's training: the forward pass alone
NOT_COUNTED = (Stage.LARGEST_BATCH, Stage.VERIFICATION)  # by a report, which has the rest that was left out


def run_scaling(options: ScalingOptions, console: Console) -> EndedCommand:
    """Plan, run, analyse, report. Raises ``RequestError`` for a wrong request."""
    if options.dry_run and options.resume:
        raise RequestError("--dry-run: the plan of a whole study (received --resume too)")
    if options.log is not None:
        refuse_missing(options.log)
    cluster, study = request_of(options)
    with closing(cluster):
        tell = Display(console, quiet=options.quiet).line
        plan, samples = _plan(options, cluster, study, tell)
        needs = needs_of(study.resources)
        if options.dry_run:
            if options.output is not None:
                refuse_occupied(options.output)
            for line in plan_lines(plan, verify=options.verify, own_processes=options.runner == "tune"):
                say(console, line)
            return EndedCommand(DONE)
        if plan.study.training is not None:
            refuse_unseen(cluster, (options.output or DEFAULT_FOLDER).absolute(), needs)
        now = of_nodes(cluster.environments(needs))
        folder = (options.output or DEFAULT_FOLDER / plan.study.name).absolute().parent
        now = now.model_copy(update={"spreads": _known_spreads(folder, machine_of(now, needs.device))})
        with open_results(plan.study, options.output, now, resume=options.resume) as store:
            ended = measure_and_report(
                store,
                lambda display: _measure(options, plan, cluster, store, display, samples),
                command=f"scaling{_same_again(options)}",
                quiet=options.quiet,
            )
            if options.log and (failed := log_study(options.log, analysed(store), store.path)):
                say(console, f"note: {failed}")
            return ended


def _known_spreads(folder: Path, machine: Mapping[str, Any]) -> Spreads | None:
    """What the reports of the results directories in ``folder`` say of this machine, the newest of them."""
    every = list[Mapping[str, Any]]()
    files = sorted(folder.glob(f"*/{REPORT}/{SHOWN}"), key=lambda path: path.stat().st_mtime)
    for path in files[-MOST_STUDIES:]:
        with suppress(OSError, ValueError):  # damaged, or of another hand: it says nothing
            every.append(json.loads(path.read_text()))
    return known_spreads(machine, every)


def _plan(
    options: ScalingOptions, cluster: Cluster, study: Study, tell: Callable[[str], None]
) -> tuple[Plan, tuple[int, int] | None]:
    """The plan on what the cluster has, and the samples of the user's data: training, test."""
    resources, needs = resources_there(cluster, study, options, tell), needs_of(study.resources)
    checked: Checked | None = None
    if isinstance(study.workload, TrainerSpec | LightningSpec):  # which has values for knobs
        checked = check_workload(cluster, study, needs)
        study = _with_own_knobs(study, checked, tell)
    plan = make_plan(study, resources)
    if grid := grid_of_search(plan):
        plan, number = grid
        combinations = plural(number, "combination")
        tell(f"search.trials = {plan.study.search.trials}, but there are {combinations}: measured as a grid")
    ranks = [list(each) for each in study.scaling.placement if not isinstance(each, str)]
    if ranks and options.runner == "tune":
        raise RequestError(
            "scaling.placement: pack or spread with --runner tune, whose trials have no ranks but their own "
            f"(received {', '.join(map(str, ranks))})"
        )
    checked = checked or check_workload(cluster, plan.study, needs)
    if checked.untried:
        tell(f"no step was tried before the workers start: {checked.untried}")
    return plan, checked.samples


def _with_own_knobs(study: Study, checked: Checked, tell: Callable[[str], None]) -> Study:
    """With what the training itself says for knobs that the study does not name."""
    own = study.with_own_knobs(dict(checked.knobs))
    values = own.knobs.model_dump()
    taken = [name for name, value in study.knobs.model_dump().items() if values[name] != value]
    if taken:
        listed = ", ".join(f"{name} {values[name][0]}" for name in taken)
        tell(f"from {study.workload.name}: {listed}")
    return own


def _same_again(options: ScalingOptions) -> str:
    """What was typed and is not in the study, as a run that goes on needs it too."""
    words = ["--runner", options.runner] if options.runner != "group" else []
    words += ["--address", options.address] if options.address else []
    words += ["--working-dir", str(options.working_dir)] if options.working_dir else []
    words += ["--verify"] if options.verify else []
    words += ["--log", options.log] if options.log else []
    return "".join(f" {shlex.quote(word)}" for word in words)


def _measure(
    options: ScalingOptions,
    plan: Plan,
    cluster: Cluster,
    store: ResultsDirectory,
    display: Display,
    samples: tuple[int, int] | None,
) -> list[str]:
    """Run the trials and end every process; what to tell beside the results."""
    for words in beforehand(plan.study):
        display.line(words)
    budget_s, metrics = plan.study.time_budget_seconds, RayMetrics()
    deadline = None  # of the last trial, on ``monotonic``'s clock
    if budget_s is not None:
        deadline = time.monotonic() + budget_s - (time.time() - options.began) - FINISH_S
    train, test = samples or (0, 0)
    # of an epoch, in samples that training could do in the same time; None where nothing is trained
    epoch_samples = train + EVALUATION_COST * test if plan.study.training and samples else None
    suffix = "" if budget_s is None else f", time budget {exact_clock(budget_s)}"
    with workers(cluster, plan, store, display, options.runner, suffix, lives_on=options.lives_on) as runner:
        for words in unlike_nodes(store.environment()):
            display.line(f"the nodes differ in {words}")
        for words in sizes_left_out(plan):
            display.line(words)
        session = Session(
            plan=plan,
            runner=runner,
            store=store,
            watcher=StudyProgress(plan.study, display, StudyGauges(plan.study, metrics)),
            budget=TimeBudget(deadline, epoch_samples),
            retry=frozenset(options.retry),
            journal=store.path / OPTUNA_JOURNAL,
            verify=options.verify,
            around=Around(environment=store.environment()),
        )
        with metrics:  # the gauges end before Ray does
            run_study(session)
    took_s = time.time() - options.began
    notes = [note_words(each) for each in session.notes]
    if budget_s is None:
        return notes
    late = session.not_reached
    if late or took_s > budget_s:
        notes.append(f"took {exact_clock(took_s)} of the time budget of {exact_clock(budget_s)}")
    return notes + [note_words(each) for each in late if options.quiet or each.stage in NOT_COUNTED]


# --- ``communication``


def run_communication(options: Options, console: Console) -> int:
    """Plan, run, analyse, report; the exit code. Raises ``RequestError`` for a wrong request."""
    tell, sweep = Display(console, quiet=options.quiet).line, sweep_of(options)
    with closing(Cluster(address=options.address, name=Sweep.name)) as cluster:
        device = cluster.device_kind() if sweep.resources.device == "auto" else sweep.resources.device
        resources = sweep.resources.model_copy(update={"device": device})
        sweep = sweep.model_copy(update={"resources": resources})
        plan = make_sweep_plan(sweep, resources_there(cluster, sweep, options, tell))
        now = of_nodes(cluster.environments(needs_of(resources)))
        if sweep.loopback_nic and not now.rdma_devices:
            raise RequestError(
                "--loopback-nic: of adapters of InfiniBand, RoCE or EFA; over sockets the kernel hands "
                "messages on without an adapter (received a node without one)"
            )
        with open_results(plan.sweep, options.output, now, resume=options.resume) as store:
            return measure_and_report(
                store,
                lambda display: _sweep(options, plan, cluster, store, display),
                command=Sweep.name,
                quiet=options.quiet,
            ).code


def sweep_of(options: Options) -> Sweep:
    """The sweep as it was typed; with ``--resume`` that of the directory, changed by what was typed."""
    data: dict[str, Any] = {}
    if options.resume:
        assert options.output is not None
        with ResultsDirectory.open_readonly(options.output) as store:
            data = store.sweep().model_dump()
    return validated(Sweep, data, options.overrides)


def _sweep(
    options: Options, plan: SweepPlan, cluster: Cluster, store: ResultsDirectory, display: Display
) -> list[str]:
    """Run the sweep and end every process; the notes on the results."""
    sweep = plan.sweep
    with workers(cluster, plan, store, display) as runner:
        collectives = plural(len(sweep.collectives), "collective")
        display.stage(f"Sweeping {collectives} over {plural(len(sweep.message_bytes), 'size')}")
        lost = run_sweep(plan, runner, store, StudyProgress(None, display), options.retry)
    notes = [
        f"placement {name}: on one node the same as {plan.placements[0]}, not measured"
        for name in sweep.placement
        if name not in plan.placements
    ]
    gone = "not measured, since nodes are gone"
    return notes + [f"{gone}: {place_words(place)} ({why})" for place, why in lost]


# --- ``--dry-run``: the plan, with nothing started


def plan_lines(plan: Plan, *, verify: bool = False, own_processes: bool = False) -> Iterator[str]:
    """The stages, as the run says them, with their trials; the values to explore, the time.

    ``own_processes``: of each trial.
    """
    study = plan.study
    curves, suggestions, visits = planned(plan)
    trainings = training_requests(plan)
    yield from beforehand(study)
    sizes = ", ".join(map(str, plan.world_sizes))
    yield f"{study.name}: {study.search.method}, world sizes {sizes} on {plan.device}"
    yield from sizes_left_out(plan)
    if study.knobs.has_max:
        yield stage_words(study, Stage.LARGEST_BATCH, len(plan.combinations()))
    yield stage_words(study, Stage.CURVES, len(curves))
    for request in curves:
        if request.config.setting.batch_size in study.knobs.values("batch_size"):  # else it has no id yet
            yield _trial_line(study, request)
    if study.scaling.as_if:
        over = f" over {study.network.name}" if study.network else ", joined like those here"
        sizes = ", ".join(f"{size:,}" for size in study.scaling.as_if)
        yield f"as if on {sizes} devices{over}: a block each in the rounds of the curve at {plan.target}"
    if suggestions:
        yield stage_words(study, Stage.SEARCH, len(suggestions))
    if visits:
        yield stage_words(study, Stage.VISITS, len(visits))
    if plan.next_doublings:
        sizes = ", ".join(f"{size:,}" for size in plan.next_doublings)
        yield f"as if on {sizes} devices, joined like those here: in a last visit, if there is time"
    yield from _training_lines(study, trainings, plan.target)
    if verify:
        limited = study.time_budget_seconds is not None
        most = "as many as there is time for" if limited else f"{MOST_WITHOUT_BUDGET} at most"
        yield f"verification: the changes that the first findings propose, {most}, interleaved"
    explored = {**study.knobs.explored(), **{k: v for k, v in study.environment.items() if len(v) > 1}}
    for name, values in explored.items():
        yield f"  {name}: {', '.join(map(str, values))}"
    trials = [*curves, *suggestions, *visits]
    found = estimate(plan, trials, own_processes=own_processes)
    yield _time_words(study, found, len(trials), len(trainings))
    if study.time_budget_seconds:
        budget = exact_clock(study.time_budget_seconds)
        yield f"time budget: {budget}; where that is not enough trials are shortened, then left out"


def beforehand(study: Study) -> Iterator[str]:
    """What is said before anything starts: of weights, and of what a script does."""
    yield from filter(None, [weights_words(study)])
    if isinstance(study.workload, ScriptSpec):
        yield (
            f"script: {study.workload.script} {study.workload.args}; every trial runs it from its beginning, "
            "and what it writes to absolute paths is written for real, with weights that mean nothing"
        )


def planned(plan: Plan) -> tuple[list[StepsRequest], list[StepsRequest], list[StepsRequest]]:
    """The trials of steps: first visits, suggestions (one represents them all), further visits."""
    suggestions = [plan.search()] * num_suggestions(plan, ())
    return plan.first_visits(), suggestions, open_visits(plan, ())


def _training_lines(study: Study, trainings: Sequence[TrainingRequest], target: int) -> Iterator[str]:
    """How many, each of them, and what more seeds would add."""
    spec = study.training
    if spec is None:
        return
    of = f"{plural(spec.epochs, 'epoch')}, {plural(len(spec.seeds), 'seed')}"
    if len(spec.seeds) < LEAST_VALUES:
        of += f" (accuracies have an interval from training.seeds={LEAST_VALUES} on)"
    yield f"training: {plural(len(trainings), 'training')} of {of}"
    for request in trainings:
        factor = request.learning_rate_factor
        yield _trial_line(study, request) + ("" if factor == 1 else f", {factor:g} times the learning rate")
    if spec.settings != "default":
        yield f"  and of other settings that learn equally the fastest, at world size {target}"


def _time_words(study: Study, found: TimeEstimate, num_trials: int, num_trainings: int) -> str:
    """An estimate, called one: what it is of, and what is not in it."""
    fixed = study.measure.steps is not None
    most = "as long as the steps take" if fixed else f"at most {study.measure.max_seconds:g} s of rounds each"
    missing = [plural(num_trainings, "training")] if study.training is not None else []
    missing += ["the search for the largest batch"] if study.knobs.has_max else []
    without = f"; without {' and '.join(missing)}, whose time is not known beforehand" if missing else ""
    time = f"{clock(found.least_s)}{' at least' if fixed else f' to {clock(found.most_s)}'}"
    trials, starts = plural(num_trials, "trial"), plural(found.num_starts, "start")
    anew = ", a start of the script for each" if isinstance(study.workload, ScriptSpec) else ""
    whole = f"{trials} of {most}{anew}, {starts} of the workers and the report"
    return f"estimated time: {time}, for about {whole}{without}"


def sizes_left_out(plan: Plan) -> list[str]:
    """A line where "all" world sizes leave some out."""
    if not plan.left_out:
        return []
    sizes = ", ".join(map(str, plan.left_out))
    return [f"world sizes left out, as a global batch cannot be divided evenly over them: {sizes}"]


def _trial_line(study: Study, request: StepsRequest | TrainingRequest) -> str:
    """Its id, and in words."""
    return f"  {request.trial_id}  {trial_words(study, request)}"
