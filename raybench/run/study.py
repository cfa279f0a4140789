"""A study's stages, in their order."""

from __future__ import annotations

from raybench.run.confirm import confirm
from raybench.run.curve import measure_all, measure_curves
from raybench.run.probe import find_largest_batches
from raybench.run.session import Session, winners
from raybench.run.train import train
from raybench.run.verify import verify
from raybench.run.worst import take_apart_worst


def run_study(session: Session) -> None:
    """Everything that the plan asks for, as far as the time allows.

    Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError`` when no
    worker group starts.
    """
    if session.plan.study.knobs.has_max:
        find_largest_batches(session)
        if next(session.plan.study.knobs.grid(session.plan.largest), None) is None:
            session.notes.append("no batch fits, in no combination of the knobs: nothing else was measured")
            return
    if session.plan.study.search.method == "optuna":
        from raybench.run.search import search  # brings Optuna

        with session.as_far_as_it_fits("the rest of the search"):
            search(session)
        measure_curves(session, winners(session))
    else:
        measure_all(session, session.plan.trials())
    confirm(session, winners(session))
    if session.plan.study.search.method == "optuna":
        take_apart_worst(session)
    train(session)
    if session.verify:
        verify(session)
