"""The stage of whole epochs, on one device and on several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from raybench.analysis.labels import late_words, trial_words
from raybench.plan.pruning import waits_for_a_peer, with_peers
from raybench.plan.training import training_requests
from raybench.plan.trials import Trial
from raybench.records.requests import StudyRequest, TrainingRequest
from raybench.run.session import Session
from raybench.spec.counted import counted


def train(session: Session) -> None:
    """Every training trial that there is time for; what is expected to take too long is named."""
    requests = training_requests(session.plan, session.records())
    if any(session.is_open(request) for request in requests):
        session.watcher.stage(f"Training {counted(len(requests), 'trial')} to the last epoch")
    late, at_once = list[StudyRequest](), 0
    for done, request in enumerate(requests):
        if not session.is_open(request):
            continue
        session.make_room(request)
        session.wait_while(partial(_waits, session, request))
        if request not in training_requests(session.plan, session.records()):
            continue  # its setting was stopped meanwhile: it gets no further seed
        if not session.budget.has(session.expected.training_cost_s(request)):
            late.append(request)
        else:
            with session.as_far_as_it_fits(trial_words(session.study, request)):
                asked = with_peers(session.plan, request, session.records())
                session.begin(Trial(asked), done=done, total=len(requests))
            at_once = max(at_once, session.num_under_way)
    session.finish()
    late = [*session.cut_of(requests), *late]
    if at_once > 1:
        session.notes.append(
            f"up to {at_once} trainings ran side by side: that changes nothing of what they learned, but "
            "their times are those of a machine that is shared"
        )
    if late:
        session.not_reached.append(late_words(late, len(requests), "training"))


def _waits(session: Session, request: TrainingRequest, under_way: Sequence[StudyRequest]) -> bool:
    return waits_for_a_peer(session.plan, request, session.records(), under_way)
