"""A study's stages, in their order."""

from __future__ import annotations

from raybench.errors import HopelessError
from raybench.run.again import measure_again
from raybench.run.confirm import confirm
from raybench.run.curve import measure_all, measure_curves
from raybench.run.probe import find_largest_batches
from raybench.run.session import Session, winners
from raybench.run.train import train
from raybench.run.verify import verify
from raybench.run.worst import take_apart_worst


def run_study(session: Session) -> None:
    """Everything that the plan asks for, as far as the time allows; nothing more where all of it would fail.

    Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError`` when no
    worker group starts.
    """
    try:
        _stages(session)
    except HopelessError as end:
        session.notes.append(str(end))


def _stages(session: Session) -> None:
    if session.plan.study.knobs.has_max:
        find_largest_batches(session)
        if session.plan.study.knobs.first_that_fits(session.plan.largest) is None:
            session.notes.append("no batch fits, in no combination of the knobs: nothing else was measured")
            return
    if session.plan.study.search.method == "optuna":
        _search(session)
        measure_curves(session, winners(session))
    else:
        measure_all(session, session.plan.trials())
    confirm(session, winners(session))
    if (
        session.plan.study.search.method == "optuna" and session.has_measured
    ):  # else it was, or there was no time
        take_apart_worst(session)
    if measure_again(session):
        confirm(session, winners(session))  # a grid's best may be another one now
    train(session)
    if session.verify:
        verify(session)


def _search(session: Session) -> None:
    """The search; what time is short for is tried again once the default's curve has shown what trials cost.

    One slow trial, as the first where files are read for the first time, makes all that follows look slow.
    """
    from raybench.run.search import search  # brings Optuna

    not_reached = ""
    with session.as_far_as_it_fits("the rest of the search"):
        not_reached = search(session)
    if not_reached and session.records():
        left_out = len(session.not_reached)
        measure_curves(session, (), after_s=_open_suggestions_s(session))
        del session.not_reached[left_out:]  # the curves come again
        with session.as_far_as_it_fits("the rest of the search"):
            not_reached = search(session)
    if not_reached:
        session.not_reached.append(not_reached)


def _open_suggestions_s(session: Session) -> float:
    """Expected seconds of the suggestions that are still to be made."""
    tried = sum(each.request.kind == "steps" and each.request.role == "search" for each in session.records())
    left = session.study.search.trials - tried
    return left * session.expected.cost_s("search", session.plan.target)
