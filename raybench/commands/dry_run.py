"""What ``scaling --dry-run`` prints: the plan, with nothing started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raybench.analysis.labels import trial_words, weights_words
from raybench.analysis.stats.statistics import LEAST_VALUES
from raybench.commands.notes import stage_words
from raybench.driver.stages import MOST_WITHOUT_BUDGET
from raybench.driver.time_budget import TimeEstimate, estimate
from raybench.plan.notes import Stage, num_suggestions, open_visits
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.requests import StepsRequest, TrainingRequest
from raybench.report.format import clock, exact_clock
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.workloads import ScriptSpec


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
    """The trials of steps: first visits, suggestions (each as the default's would be), further visits."""
    suggestions = [plan.search(plan.default())] * num_suggestions(plan, ())
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
