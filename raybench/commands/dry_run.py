"""What ``scaling --dry-run`` prints: the plan, with nothing started."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from raybench.analysis.labels import devices_words, trial_words, weights_words
from raybench.driver.stages import MOST_WITHOUT_BUDGET
from raybench.driver.time_budget import (
    FINISH_S,
    TimeEstimate,
    estimate,
    first_visits,
    further_visits,
    num_suggestions,
    open_trials,
)
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.report.format import clock, exact_clock
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.workloads import FactorySpec, LightningSpec, ScriptSpec, TrainerSpec


def plan_lines(
    plan: Plan, *, verify: bool = False, own_processes: bool = False, known: Sequence[TrialRecord] = ()
) -> Iterator[str]:
    """World sizes, trials, the values to explore, the time.

    ``own_processes``: of each trial. ``known``: of a run that goes on, what it does not measure again.
    """
    study, is_open = plan.study, open_trials(plan, known)
    yield from filter(None, [weights_words(study)])
    if known:
        yield f"goes on: {plural(len(known), 'trial')} known, not measured again; what is left:"
    yield f"{study.name}: world sizes {', '.join(map(str, plan.world_sizes))} on {plan.device}"
    yield from sizes_left_out(plan)
    if study.knobs.has_max:
        number = len(plan.combinations())
        each = f", for each of {number} combinations of the knobs that change memory" if number > 1 else ""
        yield (
            f"batch_size max: found first, the largest that fits in memory at world size {plan.target}, "
            f"up to {study.search.max_batch_size:,}{each}"
        )
    yield from (_search_lines if study.search.method == "optuna" else _grid_lines)(plan, known)
    yield from _batch_lines(plan)
    if study.scaling.as_if:
        over = f" over {study.network.name}" if study.network else ", joined like those here"
        sizes = ", ".join(f"{size:,}" for size in study.scaling.as_if)
        yield f"as if on {sizes} devices{over}: a block each in the rounds of the curve at {plan.target}"
    for request in filter(is_open, training_requests(plan)):
        factor = request.training.learning_rate_factor(
            request.config.global_batch_size, request.reference_batch
        )
        yield (
            f"training: {request.trial_id}  {trial_words(study, request)}, "
            f"global batch {request.config.global_batch_size:,}, {_rate_words(study, factor)}"
        )
    if study.training is not None and study.training.settings != "default":
        yield f"training: of other settings that learn equally the fastest, at world size {plan.target}"
        if study.search.pruner != "none":
            yield f"  stopped early by Optuna's pruner {study.search.pruner}"
    if verify:
        limited = study.time_budget_seconds is not None
        most = "as many as there is time for" if limited else f"{MOST_WITHOUT_BUDGET} at most"
        yield f"verification: the changes that the first findings propose, {most}, interleaved"
    explored = {**study.knobs.explored(), **{k: v for k, v in study.environment.items() if len(v) > 1}}
    for name, values in explored.items():
        yield f"  {name}: {', '.join(map(str, values))}"
    found = estimate(plan, own_processes=own_processes, known=known)
    yield _time_words(plan, found)
    if study.time_budget_seconds:
        yield _budget_words(study.time_budget_seconds, found)


def _budget_words(budget_s: float, found: TimeEstimate) -> str:
    """The time budget, and what becomes of the study where it is short."""
    words = f"time budget: {exact_clock(budget_s)}"
    least_s, most_s = found.until_first_s
    if budget_s < most_s + FINISH_S:
        starts = f"{least_s:.0f} to {most_s:.0f} s"
        is_none = "does not cover" if budget_s <= least_s + FINISH_S else "may not even cover"
        return (
            f"{words}; it {is_none} starting the workers, which takes {starts}, and the end with its report, "
            f"{FINISH_S:.0f} s: give it more than {math.ceil(most_s + FINISH_S)} s"
        )
    shorter = found.most_s > budget_s
    return f"{words}; where that is not enough trials are shortened, then left out" if shorter else words


def _batch_lines(plan: Plan) -> Iterator[str]:
    """The learning rate of the steps, and the default's global batch at every world size; or the script."""
    study, default = plan.study, plan.default()
    if isinstance(study.workload, ScriptSpec):
        yield f"script: {study.workload.script} {study.workload.args}".rstrip()
        return
    own = "the factory's own, else " if isinstance(study.workload, FactorySpec) else ""
    if isinstance(study.workload, TrainerSpec | LightningSpec):
        yield f"optimizer: that of {study.workload.name}"
    else:
        yield f"optimizer: {own}{study.optimizer.name}, learning rate {study.optimizer.learning_rate:g}"
    batches = {each.config.world_size: each.config.global_batch_size for each in plan.curve(default)}
    if study.search.method == "optuna" and not study.knobs.has_max:  # else each trial says it
        named = ", ".join(f"{batch:,} on {devices_words(size)}" for size, batch in sorted(batches.items()))
        yield f"global batch of the default: {named}"


def _rate_words(study: Study, factor: float) -> str:
    """At which rate is trained; a factory's optimizer is known only where it runs."""
    rate = f"{study.optimizer.learning_rate * factor:g}"
    times = "" if factor == 1 else f"{factor:g} times "
    if isinstance(study.workload, TrainerSpec | LightningSpec):
        return f"learning rate {times}that of its own optimizer"
    if not isinstance(study.workload, FactorySpec):
        return f"learning rate {rate}"
    return f"learning rate {times}that of the factory's optimizer, without one {rate}"


def _time_words(plan: Plan, found: TimeEstimate) -> str:
    """An estimate, called one: what it is of, and what is not in it."""
    study = plan.study
    fixed = study.measure.steps is not None
    most = "as long as the steps take" if fixed else f"at most {study.measure.max_seconds:g} s of rounds each"
    missing = ["the trainings"] if study.training is not None else []
    missing += ["the search for the largest batch"] if study.knobs.has_max else []
    without = f"; without {' and '.join(missing)}, whose time is not known beforehand" if missing else ""
    time = f"{clock(found.least_s)}{' at least' if fixed else f' to {clock(found.most_s)}'}"
    trials, starts = plural(found.num_trials, "trial"), plural(found.num_starts, "start")
    anew = ", a start of the script for each" if isinstance(study.workload, ScriptSpec) else ""
    whole = f"{trials} of {most}{anew}, {starts} of the workers and the report"
    return f"estimated time: {time}, for about {whole}{without}"


def sizes_left_out(plan: Plan) -> list[str]:
    """A line where "all" world sizes leave some out."""
    if not plan.left_out:
        return []
    sizes = ", ".join(map(str, plan.left_out))
    return [f"world sizes left out, as a global batch cannot be divided evenly over them: {sizes}"]


def _rounds_words(plan: Plan) -> str:
    """With what a setting is compared."""
    if isinstance(plan.study.workload, ScriptSpec):
        return "each in a start of the script"
    return "each in the same rounds as the default"


def _search_lines(plan: Plan, known: Sequence[TrialRecord]) -> Iterator[str]:
    trials = num_suggestions(plan, known)
    yield f"scaling curve: {plural(len(first_visits(plan, known)), 'trial')} of the default"
    yield (
        f"search: {plural(trials, 'suggestion')} at world size {plan.target}, chosen by Optuna, "
        f"{_rounds_words(plan)}"
    )
    yield _visits_words(plan, known)


def _grid_lines(plan: Plan, known: Sequence[TrialRecord]) -> Iterator[str]:
    study, more = plan.study, ""
    requests = list(filter(open_trials(plan, known), (trial.request for trial in plan.trials())))
    if study.knobs.has_max:  # the ids of those come with their numbers
        listed = study.knobs.values("batch_size")
        requests = [request for request in requests if request.config.setting.batch_size in listed]
        more = ", those of batch_size max"
    yield (
        f"{study.search.method}: {plural(len(requests), 'trial')}{more}; at world size {plan.target} "
        f"{_rounds_words(plan)}"
    )
    for request in requests:
        batch = request.config.global_batch_size
        is_known = not isinstance(study.workload, ScriptSpec) or "batch_size" in study.workload.placeholders
        told = f", global batch {batch:,}" if is_known and batch != request.config.setting.batch_size else ""
        yield f"  {request.trial_id}  {trial_words(study, request)}{told}"
    yield _visits_words(plan, known)


def _visits_words(plan: Plan, known: Sequence[TrialRecord]) -> str:
    """The visits of default and best that follow."""
    starts, number = plan.study.measure.starts, len(further_visits(plan, known))
    spread = f", over {starts} starts of the workers" if starts > 1 else ""
    return (
        f"visits: {plural(number, 'trial')}, until the default and the best have {plan.num_visits} at every "
        f"world size{spread}"
    )
