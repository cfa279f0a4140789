"""The stage in which Optuna suggests settings, each measured at the target world size."""

from __future__ import annotations

from raybench.analysis.stats.efficiency import scaling
from raybench.plan.notes import NoteKind, Stage
from raybench.plan.search import Search
from raybench.plan.trials import Suggestion, Trial
from raybench.run.session import Session


def search(session: Session) -> bool:
    """All suggestions that the study asks for, earlier ones included; whether there was time for them.

    Several are in flight at once where the runner has room for them. The next is then suggested before these
    have ended: the search knows of them, so that none is measured twice, but not yet what they bring.
    """
    ledger, plan, trials = session.ledger, session.ledger.plan, session.study.search.trials
    optimizer = Search(plan, session.journal)
    _retry(session)
    known = ledger.searched()
    optimizer.restore(known)
    session.enter(Stage.SEARCH)
    session.announce(trials)
    num_tried, asked = len(known), dict[str, Suggestion]()
    late, is_whole = 0, False

    def hear() -> None:
        nonlocal num_tried
        record = session.next_ended()
        suggestion = asked.pop(record.trial_id)
        if record.trial_id in ledger.cut:  # as one that was interrupted: what comes of it is not known
            return
        optimizer.tell(suggestion, record)
        num_tried += 1
        best = ledger.best_searched()
        if len(best) == 1:
            session.watcher.best(best[0], scaling(best[0]))

    while (left := trials - num_tried - len(asked)) > 0:
        if asked and not session.has_room(plan.search(plan.default())):
            hear()
            continue
        in_time = session.forecast.fit_suggestion(left)
        if in_time is None:
            late = left
            break
        suggestion = optimizer.ask()
        if suggestion is None:  # all that are not known are in flight
            is_whole = True
            break
        request = plan.search(suggestion).model_copy(update={"measure": in_time.measure})
        asked[request.trial_id] = suggestion
        session.begin(Trial(request, suggestion.number), done=num_tried + len(asked) - 1, total=trials)
    ended = num_tried + len(asked)
    while asked:
        hear()
    late += ended - num_tried
    if is_whole and num_tried < trials:
        session.note(NoteKind.SPACE_EXHAUSTED, number=num_tried, total=trials)
    if late:
        session.note(NoteKind.NOT_REACHED, number=late, total=trials)
    return not late


def _retry(session: Session) -> None:
    """The suggestions that --retry names: Optuna does not suggest what it knows."""
    session.enter(Stage.RETRY)
    ledger, plan = session.ledger, session.ledger.plan
    again = [record for record in ledger.searched() if ledger.is_open(record.study_request)]
    if again:
        session.announce(len(again))
    for done, record in enumerate(again):
        # requested from the plan: time-outs may be longer now
        request = plan.search(plan.suggestion_of(record))
        has_time = session.budget.has(session.forecast.cost_s("search", plan.target))
        if has_time:
            session.measure(Trial(request, record.suggestion), done=done, total=len(again))
        if not has_time or ledger.cut_of([request]):
            session.note(NoteKind.NOT_REACHED, number=len(again) - done)
            return
