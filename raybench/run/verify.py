"""The stage in which the changes that a diagnosis proposes are tested: ``--verify``."""

from __future__ import annotations

from raybench.analysis import choice
from raybench.analysis.confirmations import confirmations
from raybench.analysis.diagnosis.study import diagnose_study
from raybench.analysis.diagnosis.verifications import Proposal, is_paired, proposals, test_of
from raybench.analysis.labels import changes_words
from raybench.analysis.measured import MeasuredStudy, measured_study
from raybench.plan.trials import Trial
from raybench.records.requests import StepsRequest
from raybench.run.session import Session
from raybench.spec.counted import counted

MOST_WITHOUT_BUDGET = 3  # changes that are tested; within a time budget as many as there is time for


def verify(session: Session) -> None:
    """The first findings' changes, each in the same rounds as the setting without it.

    What the diagnosis proposes is worked out once, before the first of them: none has a part in it.
    """
    asked = [one for one in _requests(session) if session.is_open(one[1])]
    late: list[str] = []
    if asked:
        number = counted(len(asked), "change")
        session.watcher.stage(f"Verifying {number} that the diagnosis proposes, interleaved")
    for done, (proposal, request) in enumerate(asked):
        words = changes_words(proposal.change)
        # a new worker group costs its start, which cannot be cut short
        in_time = session.expected.in_time([request], fixed_s=_start_s(session, request))
        if in_time is None:
            late.append(words)  # a later one may be cheaper: it needs no processes of its own, or is smaller
            continue
        with session.as_far_as_it_fits(f"the verification of {words}"):
            session.measure(Trial(in_time), done=done, total=len(asked))
        late += [words] if session.cut_of([request]) else []
    if late:
        number = counted(len(late), "change")
        session.not_reached.append(f"the verification of {number}: {'; '.join(late)}")


def _requests(session: Session) -> list[tuple[Proposal, StepsRequest]]:
    """Those that can be tested and are not, by the worker group that they need."""
    base = measured_study(session.study, session.records())
    headline = base.headline
    if headline is None:
        session.notes.append("nothing to verify: no trial on which a diagnosis could stand")
        return []
    if headline.config.oversubscribed:
        session.notes.append("not verified: with more workers than cores nothing is recommended")
        return []
    open_ = _open(session, base)
    if not open_:
        session.notes.append("nothing to verify: no finding proposes a change that was not confirmed yet")
    if session.budget.left_s is None:
        open_ = open_[:MOST_WITHOUT_BUDGET]
    plan = session.plan
    return [
        (each, plan.verification(headline.config, each.setting, dict(each.environment)))
        for each in sorted(open_, key=lambda one: not is_paired(one, headline.config))
    ]


def _open(session: Session, base: MeasuredStudy) -> list[Proposal]:
    """The proposals that no confirmation has tested; those of an earlier run of this stage are among them."""
    chosen = choice.choose(base.study, base.records, base.target_world_size)
    confirmed = confirmations(base, chosen)
    first = diagnose_study(base, confirmed, session.around).first
    found = [each for each in proposals(base, first) if not each.obstacle]
    tests = [(each, test_of(base, each, confirmed)) for each in found]
    return [each for each, test in tests if test is None or test.request.role == "verification"]


def _start_s(session: Session, request: StepsRequest) -> float:
    default = session.plan.default().environment
    return session.budget.start_s if request.config.environment != default else 0.0
