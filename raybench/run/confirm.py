"""The stage in which winners are measured against the default, interleaved, before they are called better."""

from __future__ import annotations

from collections.abc import Sequence

from raybench.analysis import choice
from raybench.plan.curves import CONFIRMATION
from raybench.plan.trials import Trial
from raybench.records.record import TrialRecord
from raybench.run.session import Session

OTHER_PROCESSES = (
    "the best suggestion differs in process knobs, which need other processes: its curve stands "
    "against the default's, not interleaved; more starts (measure.starts) make that exact"
)
NO_DEFAULT = "the best suggestion was not confirmed: the default, to measure it against, "


def confirm(session: Session, winners: Sequence[TrialRecord]) -> None:
    """Every winner that is not the default, in the same rounds as the default.

    What an earlier call said of it is said anew, as far as it still holds.
    """
    session.not_reached[:] = [each for each in session.not_reached if each != CONFIRMATION]
    said = (OTHER_PROCESSES, CONFIRMATION, NO_DEFAULT)
    session.notes[:] = [note for note in session.notes if not any(each in note for each in said)]
    plan, default = session.plan, session.plan.default()
    failed = choice.default_failure(session.study, session.records(), plan.target)
    for winner in winners:
        if choice.is_default(session.study, winner.config):
            continue
        if failed is not None:
            session.notes.append(f"{NO_DEFAULT}has no numbers itself ({failed.state}: {failed.reason})")
            return
        if winner.config.environment != default.environment:
            if OTHER_PROCESSES not in session.notes:
                session.notes.append(OTHER_PROCESSES)
            continue
        request = plan.confirmation(plan.suggestion_of(winner), default)
        if winner.request.role == "scaling":  # its curve was measured before it was chosen
            request = plan.profiled(request)
            session.note_without_profile([request])
        if not session.is_open(request):
            continue
        in_time = session.expected.one_in_time(request)
        if in_time is None:
            session.not_reached.append(CONFIRMATION)
            return
        session.watcher.stage("Confirming the best suggestion against the default, interleaved")
        with session.as_far_as_it_fits(CONFIRMATION):
            session.measure(Trial(in_time, winner.suggestion), done=0, total=1)
        if session.cut_of([request]):
            session.not_reached.append(CONFIRMATION)
            return
