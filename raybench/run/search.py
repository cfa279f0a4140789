"""The stage in which Optuna suggests settings, each measured at the target world size."""

from __future__ import annotations

from raybench.analysis import choice
from raybench.analysis.estimates.efficiency import scaling
from raybench.analysis.labels import devices_words
from raybench.analysis.objectives import Candidate
from raybench.plan.search import Search
from raybench.plan.trials import Suggestion, Trial
from raybench.records.record import TrialRecord
from raybench.run.session import Session
from raybench.spec.counted import counted


def search(session: Session) -> str:
    """All suggestions that the study asks for, earlier ones included; what the time left out, in words.

    Several are under way at once where the runner has room for them. The next is then asked for before these
    are told: the search knows of them, so that none is measured twice, but not yet what they bring.
    """
    plan, trials = session.plan, session.plan.study.search.trials
    optimizer, late = Search(plan, session.journal), 0
    _try_again(session)
    tried = _searched(session)
    optimizer.restore(tried)
    best = _Best(session)
    for record in tried:
        best.add(record)
    best.update()
    session.watcher.stage(
        f"Searching for the best of {counted(trials, 'suggestion')} at {devices_words(plan.target)}"
    )
    asked, is_whole = dict[str, Suggestion](), False

    def hear() -> None:
        record = session.next_ended()
        suggestion = asked.pop(record.trial_id)
        if record.trial_id in session.cut:  # as one that was interrupted: what comes of it is not known
            return
        optimizer.tell(suggestion, record)
        tried.append(record)
        best.add(record)
        best.announce()

    while len(tried) + len(asked) < trials:
        while asked and not session.has_room(plan.search(plan.default())):
            hear()
        left = trials - len(tried) - len(asked)
        in_time = session.expected.suggestion_in_time(left)
        if in_time is None:
            late = left
            break
        suggestion = optimizer.ask()
        if suggestion is None:  # all that are not known are under way
            is_whole = True
            break
        request = plan.search(suggestion).model_copy(update={"measure": in_time.measure})
        asked[request.trial_id] = suggestion
        session.begin(Trial(request, suggestion.number), done=len(tried) + len(asked) - 1, total=trials)
    ended = len(tried) + len(asked)
    while asked:
        hear()
    late += ended - len(tried)
    if is_whole and len(tried) < trials:
        session.notes.append(
            f"{len(tried)} of {trials} suggestions were made: no others differ from them and may fit"
        )
    return f"{late} of {counted(trials, 'suggestion')}" if late else ""


def _searched(session: Session) -> list[TrialRecord]:
    return [
        record
        for record in session.records()
        if record.request.kind == "steps" and record.request.role == "search"
    ]


def _try_again(session: Session) -> None:
    """The suggestions that --retry names: Optuna does not suggest what it knows."""
    again = [record for record in _searched(session) if session.is_open(record.study_request)]
    if again:
        session.watcher.stage(f"Trying {counted(len(again), 'suggestion')} again")
    for done, record in enumerate(again):
        if not session.budget.has(session.expected.cost_s("search", session.plan.target)):
            session.not_reached.append(f"{counted(len(again) - done, 'suggestion')} to try again")
            return
        # asked anew: time-outs may be longer now
        request = session.plan.search(session.plan.suggestion_of(record))
        session.measure(Trial(request, record.suggestion), done=done, total=len(again))
        if session.cut_of([request]):
            session.not_reached.append(f"{counted(len(again) - done, 'suggestion')} to try again")
            return


class _Best:
    """The best suggestion so far; each record's value is worked out once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._candidates: list[Candidate] = []

    def add(self, record: TrialRecord) -> None:
        """One suggestion more; a failed one changes nothing."""
        candidate = choice.candidate(self._session.study, record)
        if candidate is not None:
            self._candidates.append(candidate)

    def announce(self) -> None:
        """Tell the watcher."""
        best = self.update()
        if len(best) == 1:
            self._session.watcher.best(best[0], scaling(best[0]))

    def update(self) -> list[TrialRecord]:
        """The best so far; the reserve for what comes after the search depends on it."""
        session = self._session
        best = [each.record for each in choice.winners(session.study, self._candidates)]
        others = [each for each in best if not choice.is_default(session.study, each.config)]
        session.expected.best = tuple(each.config.setting for each in others)
        return best
