"""The stages that measure settings over world sizes: the curves after a search, or every trial of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raybench.analysis import choice
from raybench.analysis.labels import trial_words
from raybench.plan.trials import Trial
from raybench.records.record import TrialRecord
from raybench.records.requests import TrialRequest
from raybench.run.session import Session


def measure_curves(session: Session, winners: Sequence[TrialRecord]) -> None:
    """The default and the winners of a search at every world size.

    The default first, at the target: were there time for one more trial only, it would be this one. All
    of one start of the workers come before the next start.
    """
    others = [record for record in winners if not choice.is_default(session.study, record.config)]
    suggestions = [session.plan.default(), *map(session.plan.suggestion_of, others)]
    trials = [
        Trial(request, suggestion.number)
        for suggestion in suggestions
        for request in session.plan.curve(suggestion)
    ]
    unique = {trial.request.trial_id: trial for trial in trials}
    measure_all(session, sorted(unique.values(), key=lambda trial: trial.start))


def measure_all(session: Session, trials: Sequence[Trial]) -> None:
    """The trials in their order, as far as the time allows; what it leaves out is named."""
    if not trials:
        return
    sizes, starts = ", ".join(str(size) for size in session.plan.world_sizes), session.study.measure.starts
    anew = f", in {starts} starts of the workers" if starts > 1 else ""
    session.watcher.stage(f"Measuring {len(trials)} trials at world sizes {sizes}{anew}")
    for done, trial in enumerate(trials):
        request = trial.request
        if not session.is_open(request):
            continue
        assert request.kind == "steps"
        rest = [each.request for each in trials[done:] if session.is_open(each.request)]
        own_s, confirmation_s = _cost_s(session, request), session.confirmation_cost_s()
        training_s, start_s = session.training_reserve_s(), session.start_cost_s(request)
        steps_s = sum(_cost_s(session, each) for each in rest) + confirmation_s
        starts_s = start_s + (trials[-1].start - trial.start) * session.budget.start_s
        in_time = session.budget.in_time(request, own_s, steps_s, starts_s + training_s)
        if in_time is None and not session.budget.has(own_s + start_s + confirmation_s + training_s):
            words = "; ".join(trial_words(session.study, each) for each in rest)
            session.not_reached.append(f"{len(rest)} trials: {words}")
            return
        session.measure(replace(trial, request=in_time or request), done=done, total=len(trials))


def _cost_s(session: Session, request: TrialRequest) -> float:
    assert request.kind == "steps"
    return session.cost_s(request.role, request.config.world_size, *request.settings)
