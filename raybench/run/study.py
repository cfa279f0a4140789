"""A study's stages, in their order."""

from __future__ import annotations

from raybench.errors import AllFailError
from raybench.plan.notes import NoteKind
from raybench.run.session import Session
from raybench.run.stages import (
    confirm,
    find_largest_batches,
    measure_curves,
    repeat,
    take_apart_worst,
    train,
    verify,
)


def run_study(session: Session) -> None:
    """Measure all that the plan wants, while there is time; stop at once where every trial would fail.

    Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError`` when no
    worker group starts.
    """
    try:
        _stages(session)
    except AllFailError:  # the session has noted it
        pass


def _stages(session: Session) -> None:
    ledger, is_search = session.ledger, session.study.search.method == "optuna"
    if ledger.plan.study.knobs.has_max:
        find_largest_batches(session)
        if ledger.plan.study.knobs.first_that_fits(ledger.plan.largest) is None:
            session.note(NoteKind.NO_BATCH_FITS)
            return
    if is_search:
        _search(session)
        measure_curves(session, ledger.plan.curves(ledger.winners()))
    else:
        measure_curves(session, ledger.plan.trials())
    confirm(session, ledger.winners())
    if is_search and session.has_measured:  # else it was, or there was no time
        take_apart_worst(session)
    if repeat(session):
        confirm(session, ledger.winners())  # a grid's best may be another one now
    train(session)
    if session.verify:
        verify(session)


def _search(session: Session) -> None:
    """The search; what time is short for is tried again once the default's curve has shown what trials cost.

    One slow trial, as the first where files are read for the first time, makes all that follows look slow.
    """
    from raybench.run.search import search  # brings Optuna

    is_done = True
    with session.leaving_out_what_has_no_room():
        is_done = search(session)
    if is_done or not session.ledger.records():
        return
    plan, left = session.ledger.plan, session.study.search.trials - len(session.ledger.searched())
    measure_curves(session, plan.curves(()), left * session.forecast.cost_s("search", plan.target))
    with session.leaving_out_what_has_no_room():
        search(session)
