"""The stages of a study in their order: each measures what is open, as far as the time allows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress

from raybench.analysis.findings.diagnose import diagnose_study
from raybench.analysis.findings.verifications import Proposal, proposals, test_of
from raybench.analysis.largest_batch import decide, probe_of
from raybench.analysis.resolve import Facts
from raybench.driver.session import Session
from raybench.errors import AllFailError
from raybench.plan.notes import NoteKind, Stage
from raybench.plan.training import training_requests, with_peers
from raybench.plan.trials import further_visits, searched
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting

MOST_WITHOUT_BUDGET = 3  # changes that are verified; within a time budget as many as there is time for


def run_study(session: Session) -> None:
    """Measure all that the plan wants, while there is time; stop where the default has crashed everywhere.

    Raises ``Interrupted``, ``RequestError`` for what cannot be placed or written, ``GroupLostError`` when no
    worker group starts.
    """
    ledger = session.ledger
    with suppress(AllFailError):  # the session has noted it
        if ledger.plan.study.knobs.has_max:
            find_largest_batches(session)
            if ledger.plan.study.knobs.first_that_fits(ledger.plan.largest) is None:
                session.note(NoteKind.NO_BATCH_FITS)
                return
        measure_visits(session, Stage.CURVES, ledger.plan.first_visits())
        if ledger.plan.is_search:
            with session.leaving_out_what_has_no_room():
                search(session)
        visit(session)
        train(session)
        if session.verify:
            verify(session)


# --- the largest batch: before all others, where ``batch_size = "max"`` is requested


def find_largest_batches(session: Session) -> None:
    """What "max" stands for in each combination of the knobs that change memory; the plan knows it then."""
    session.enter(Stage.LARGEST_BATCH)
    plan = session.ledger.plan
    combinations = plan.combinations()
    session.announce(len(combinations))
    late = sum(not _find_largest_batch(session, combination) for combination in combinations)
    if late:
        session.note(NoteKind.NOT_REACHED, number=late, total=len(combinations))
    session.ledger.learn_largest_batches()


def _find_largest_batch(session: Session, combination: Setting) -> bool:
    """Whether there was time to find it."""
    plan, done = session.ledger.plan, 0
    while True:
        probes = _probes(session, combination)
        decision = decide(combination, plan.target, map(probe_of, probes), plan.rules(combination))
        if decision.next_batch is None:
            return True
        expected_s = 2 * max((record.wall_time_s for record in probes), default=0.0)  # it doubles
        if not session.budget.has(expected_s + session.forecast.curve_reserve_s()):
            return False
        session.measure(plan.probe(combination, decision.next_batch), done=done, total=None)
        done += 1


def _probes(session: Session, combination: Setting) -> list[TrialRecord]:
    """The probes of a combination; what --retry names is not known until it was tried again."""
    ledger, target = session.ledger, session.ledger.plan.target
    key = combination.memory_key(target)
    probes = (record for record in ledger.known() if record.request.kind == "probe")
    return [record for record in probes if record.config.setting.memory_key(target) == key]


# --- the search: Optuna suggests settings, each measured at the target world size


def search(session: Session) -> None:
    """All suggestions that the study asks for and there is time for, earlier ones included.

    The first is the default, whose curve has been measured. Those that --retry names come next, since Optuna
    does not suggest what it knows.
    """
    from raybench.plan.search import Search  # brings Optuna

    ledger, plan = session.ledger, session.ledger.plan
    trials = plan.study.search.trials
    session.enter(Stage.SEARCH)
    session.announce(trials)
    optimizer, known, again = Search(plan, session.journal), list[TrialRecord](), list[TrialRecord]()
    for record in searched(plan, ledger.records()):
        is_again = record.request.role == "search" and ledger.is_open(record.study_request)
        (again if is_again else known).append(record)
    optimizer.restore(known)
    for done in range(len(known), trials):
        in_time = session.forecast.fit(Stage.SEARCH, [plan.search()] * (trials - done))
        if in_time is None:
            break
        suggestion = plan.suggestion_of(again[0]) if again else optimizer.ask()
        if suggestion is None:
            session.note(NoteKind.SPACE_EXHAUSTED, number=done, total=trials)
            break
        # requested from the plan, of what is tried again too: time-outs may be longer now
        wanted, in_time_s = plan.search(suggestion), in_time[1].measure.max_seconds
        max_seconds = min(in_time_s, wanted.measure.max_seconds)
        measure = wanted.measure.model_copy(update={"max_seconds": max_seconds})
        request = wanted.model_copy(update={"measure": measure})
        record = session.measure(request, done=done, total=trials)
        if ledger.is_open(request):  # as one that was interrupted: what comes of it is not known
            break
        optimizer.tell(record)
        del again[:1]
    optimizer.restore(again)


# --- visits of settings at world sizes: the first of the default, or of a grid; those that follow of the best


def visit(session: Session) -> None:
    """The further visits of default and winner; where they make another setting the winner, its own too."""
    ledger, visited = session.ledger, set[Hashable]()
    while True:
        winners = ledger.winners()
        chosen = frozenset(ledger.plan.suggestion_of(each) for each in winners)
        if chosen in visited:
            return
        visited.add(chosen)
        visits = further_visits(ledger.plan, ledger.records(), winners)
        measure_visits(session, Stage.VISITS, visits)


def measure_visits(session: Session, stage: Stage, requests: Sequence[StepsRequest]) -> None:
    """The trials in their order; where time is short those of the highest visit numbers are left out."""
    session.enter(stage)
    ledger = session.ledger
    # each once, beforehand: a question reads all records
    still = [each for each in enumerate(requests) if ledger.is_open(each[1])]
    if still:
        session.announce(len(requests))
    while still:
        another = ledger.stand_in(still[0][1])
        if another is not None and ledger.record_of(another) is not None:  # of equal buckets
            still.pop(0)
            continue
        found = session.forecast.fit(stage, [request for _, request in still])
        if found is None:
            break
        place, request = found
        done, _ = still.pop(place)
        with session.leaving_out_what_has_no_room():
            session.measure(request, done=done, total=len(requests))


# --- the trainings: whole epochs, on one device and on several


def train(session: Session) -> None:
    """Every training trial that there is time for."""
    session.enter(Stage.TRAINING)
    ledger, plan = session.ledger, session.ledger.plan
    requests = training_requests(plan, ledger.records())
    if any(map(ledger.is_open, requests)):
        session.announce(len(requests))
    for done, request in enumerate(requests):
        if not ledger.is_open(request):
            continue
        records = ledger.records()
        if request not in training_requests(plan, records):
            continue  # its setting was stopped in the meantime: it gets no further seed
        if not session.budget.has(session.forecast.cost_of(request)):
            continue
        with session.leaving_out_what_has_no_room():
            session.measure(with_peers(plan, request, records), done=done, total=len(requests))


# --- the verification: the changes that a diagnosis proposes, tested (``--verify``)


def verify(session: Session) -> None:
    """The first findings' changes, each in the same rounds as the setting without it.

    What the diagnosis proposes is worked out once, before the first of them: none has a part in it.
    """
    session.enter(Stage.VERIFICATION)
    asked = [request for request in _verifications(session) if session.ledger.is_open(request)]
    if asked:
        session.announce(len(asked))
    late = 0
    for done, request in enumerate(asked):
        in_time = session.forecast.fit(Stage.VERIFICATION, [request])
        if in_time is None:
            late += 1  # a later one may fit
            continue
        with session.leaving_out_what_has_no_room():
            session.measure(in_time[1], done=done, total=len(asked))
            late += session.ledger.is_open(request)
    if late:
        session.note(NoteKind.NOT_REACHED, number=late, total=len(asked))


def _verifications(session: Session) -> list[StepsRequest]:
    """Those that can be tested and are not."""
    base = session.ledger.facts()
    headline = base.headline
    if headline is None or headline.config.oversubscribed or not (open_ := _not_tested(session, base)):
        session.note(NoteKind.NOTHING_PROPOSED)
        return []
    if session.budget.left_s is None:
        open_ = open_[:MOST_WITHOUT_BUDGET]
    plan = session.ledger.plan
    return [plan.verification(headline.config, each.setting) for each in open_]


def _not_tested(session: Session, base: Facts) -> list[Proposal]:
    """The proposals that the study has not tested; those of an earlier run of this stage are among them."""
    first = diagnose_study(base, session.around).first
    found = [each for each in proposals(base, first) if not each.needs_you]
    tests = [(each, test_of(base, each)) for each in found]
    return [each for each, test in tests if test is None or test.request.role == "verification"]
