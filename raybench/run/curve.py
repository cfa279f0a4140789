"""The stages that measure settings over world sizes: the curves after a search, or every trial of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raybench.analysis.labels import late_words, trial_words
from raybench.plan.curves import curve_trials
from raybench.plan.trials import Trial
from raybench.records.record import TrialRecord
from raybench.records.requests import StudyRequest
from raybench.run.session import Session
from raybench.spec.counted import counted


def measure_curves(session: Session, winners: Sequence[TrialRecord], after_s: float = 0.0) -> None:
    """The default and the winners of a search at every world size; ``after_s`` as for ``measure_all``."""
    measure_all(session, curve_trials(session.plan, winners), after_s)


def measure_all(session: Session, trials: Sequence[Trial], after_s: float = 0.0) -> None:
    """The trials in their order, as far as the time allows; what it leaves out is named.

    The time is divided with trials that take ``after_s`` and come after them and the confirmation.
    """
    if not trials:
        return
    session.note_without_profile(trial.request for trial in trials)
    sizes, starts = ", ".join(str(size) for size in session.plan.world_sizes), session.study.measure.starts
    anew = f", in {starts} starts of the workers" if starts > 1 else ""
    session.watcher.stage(f"Measuring {counted(len(trials), 'trial')} at world sizes {sizes}{anew}")
    # each once, beforehand: whoever asks for one reads all records
    still = [(done, trial) for done, trial in enumerate(trials) if session.is_open(trial.request)]
    same, not_begun = list[tuple[StudyRequest, StudyRequest]](), list[StudyRequest]()
    for place, (done, trial) in enumerate(still):
        session.make_room(trial.request)
        another = session.measured_as_another(trial.request)
        if another is not None:
            same.append((trial.request, another))
            continue
        later = (each for _, each in still[place + 1 :])
        rest = [trial, *(each for each in later if not session.is_another(each.request))]
        request = _in_time(session, rest, after_s)
        if request is None:
            not_begun = [each.request for each in rest]
            break
        with session.as_far_as_it_fits(trial_words(session.study, request)):
            session.begin(replace(trial, request=request), done=done, total=len(trials))
    session.finish()
    cut = session.cut_of(trial.request for _, trial in still)
    late = [*(each for each in cut if each not in not_begun), *not_begun]
    if late:
        session.not_reached.append(late_words(late, len(trials), "trial", " of the curves"))
    session.note_the_same(same)


def _in_time(session: Session, rest: Sequence[Trial], after_s: float) -> StudyRequest | None:
    """The first of ``rest`` with the time for its rounds that it may take; None where it has no time."""
    budget, expected, request = session.budget, session.expected, rest[0].request
    assert request.kind == "steps"
    if budget.left_s is None:
        return request
    confirmation_s, training_s = expected.confirmation_cost_s(), expected.training_reserve_s()
    start_s = expected.start_cost_s(request)
    starts_s = start_s + (rest[-1].start - rest[0].start) * budget.start_s
    steps = [each.request for each in rest if each.request.kind == "steps"]
    in_time = expected.in_time(steps, fixed_s=starts_s + training_s, steps_s=confirmation_s + after_s)
    if in_time is None:  # not for all of them: as many as say something
        return expected.shortest(request, fixed_s=start_s + training_s, after_s=confirmation_s)
    return in_time
