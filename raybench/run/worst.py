"""The stage that takes the worst suggestion of a search apart: where does its time go?"""

from __future__ import annotations

from raybench.analysis.estimates.efficiency import scaling
from raybench.plan.trials import Trial
from raybench.records.record import TrialRecord
from raybench.run.session import Session


def take_apart_worst(session: Session) -> None:
    """All variants of the least efficient suggestion that only the search has measured, where time is left.

    It answers no question of the study, so it is not named where there is no time for it.
    """
    worst = _worst(session)
    if worst is None:
        return
    suggestion = session.plan.suggestion_of(worst)
    request = session.plan.taken_apart(suggestion)
    in_time = session.expected.one_in_time(request)
    if not session.is_open(request) or in_time is None:
        return
    session.watcher.stage("Taking the least efficient suggestion apart")
    with session.as_far_as_it_fits("the least efficient suggestion with all variants"):
        session.measure(Trial(in_time, worst.suggestion), done=0, total=1)


def _worst(session: Session) -> TrialRecord | None:
    """Of the search's complete trials the one of least efficiency; None where a curve has measured it too."""
    records = session.records()
    steps = [record for record in records if record.steps is not None and record.request.role == "search"]
    efficiencies = [(found.value, record) for record in steps if (found := scaling(record).efficiency)]
    if not efficiencies:
        return None
    worst = min(efficiencies, key=lambda each: each[0])[1]
    if worst.config.setting.strategy != "ddp":  # the others have no further variants
        return None
    apart = (record for record in records if record.steps and record.request.role == "scaling")
    return None if any(each.config == worst.config for each in apart) else worst
