"""The stages of a study in their order: each measures what is open, as far as the time allows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from raybench.analysis import choice
from raybench.analysis.findings.diagnose import diagnose_study
from raybench.analysis.findings.verifications import Proposal, is_paired, proposals, test_of
from raybench.analysis.largest_batch import decide, probe_of
from raybench.analysis.load import Disagreement, disagreements, under_load
from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.scaling import scaling
from raybench.analysis.search import confirmations
from raybench.analysis.stats.repeated import MOST_AGAIN, times_before
from raybench.errors import AllFailError
from raybench.plan.notes import NoteKind, RepeatReason, Stage
from raybench.plan.training import training_requests, waits_for_a_peer, with_peers
from raybench.plan.trials import Suggestion, Trial
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, StudyRequest
from raybench.run.session import Session
from raybench.spec.knobs import KnobValue, Setting

MOST_AT_ONCE = 4  # settings for each reason to repeat a trial, those that differ most
MOST_WITHOUT_BUDGET = 3  # changes that are verified; within a time budget as many as there is time for


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
        _whole_search(session)
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


def _whole_search(session: Session) -> None:
    """The search; what time is short for is tried again once the default's curve has shown what trials cost.

    One slow trial, as the first where files are read for the first time, makes all that follows look slow.
    """
    is_done = True
    with session.leaving_out_what_has_no_room():
        is_done = search(session)
    if is_done or not session.ledger.records():
        return
    plan, left = session.ledger.plan, session.study.search.trials - len(session.ledger.searched())
    measure_curves(session, plan.curves(()), left * session.forecast.cost_s("search", plan.target))
    with session.leaving_out_what_has_no_room():
        search(session)


# --- the largest batch: before all others, where ``batch_size = "max"`` is requested


def find_largest_batches(session: Session) -> None:
    """What "max" stands for in each combination of the knobs that change memory; the plan knows it then."""
    session.enter(Stage.LARGEST_BATCH)
    plan = session.ledger.plan
    combinations = plan.combinations()
    session.announce(len(combinations))
    late = [combination for combination in combinations if not _find_largest_batch(session, combination)]
    if late:
        session.note(NoteKind.NOT_REACHED, combinations=tuple(late))
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
        if not session.budget.has(expected_s + session.forecast.search_reserve_s()):
            return False
        session.measure(Trial(plan.probe(combination, decision.next_batch)), done=done, total=None)
        done += 1


def _probes(session: Session, combination: Setting) -> list[TrialRecord]:
    """The probes of a combination; what --retry names is not known until it was tried again."""
    ledger, target = session.ledger, session.ledger.plan.target
    key = combination.memory_key(target)
    return [
        record
        for record in ledger.records()
        if record.request.kind == "probe"
        and record.config.setting.memory_key(target) == key
        and not ledger.is_open(record.study_request)
    ]


# --- the search: Optuna suggests settings, each measured at the target world size


def search(session: Session) -> bool:
    """All suggestions that the study asks for, earlier ones included; whether there was time for them.

    Several are in flight at once where the runner has room for them. The next is then suggested before these
    have ended: the search knows of them, so that none is measured twice, but not yet what they bring.
    """
    from raybench.plan.search import Search  # brings Optuna

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


# --- the curves after a search, or every trial of a grid


def measure_curves(session: Session, trials: Sequence[Trial], after_s: float = 0.0) -> None:
    """The trials in their order, as far as the time allows.

    The time is divided with trials that take ``after_s`` and come after them and the confirmation.
    """
    session.enter(Stage.CURVES)
    if not trials:
        return
    ledger = session.ledger
    _note_without_profile(session, [trial.request for trial in trials])
    session.announce(len(trials))
    # each once, beforehand: a question reads all records
    still = [(done, trial) for done, trial in enumerate(trials) if ledger.is_open(trial.request)]
    same, not_begun = list[tuple[StudyRequest, StudyRequest]](), list[StudyRequest]()
    for place, (done, trial) in enumerate(still):
        session.make_room(trial.request)
        another = ledger.stand_in(trial.request)
        if another is not None and ledger.record_of(another) is not None:
            same.append((trial.request, another))
            continue
        later = (each.request for _, each in still[place + 1 :])
        rest = [trial.request, *(each for each in later if ledger.stand_in(each) is None)]
        request = session.forecast.fit_curve([each for each in rest if each.kind == "steps"], after_s)
        if request is None:
            not_begun = rest
            break
        with session.leaving_out_what_has_no_room(requests=(request,)):
            session.begin(replace(trial, request=request), done=done, total=len(trials))
    session.finish()
    wanted = [trial.request for _, trial in still]
    cut = ledger.cut_of(wanted)
    late = [each for each in wanted if each in cut or each in not_begun]
    if late:
        session.note(NoteKind.NOT_REACHED, requests=tuple(late), total=len(trials))
    _note_the_same(session, same)


def _note_the_same(session: Session, pairs: Iterable[tuple[StudyRequest, StudyRequest]]) -> None:
    """Note which trials were not measured, as the second of the pair has equal buckets."""
    found = Counter(tuple(each.config.setting.bucket_cap_mb for each in pair) for pair in pairs)
    for values, number in found.items():
        session.note(NoteKind.SAME_BUCKETS, values=values, number=number)


def _note_without_profile(session: Session, requests: Iterable[StudyRequest]) -> None:
    """Note which of ``requests`` were measured before a profile was requested."""
    for request in requests:
        if request.kind != "steps" or not request.measure.profile or session.ledger.is_open(request):
            continue
        record = session.ledger.record_of(request)
        steps = record.steps if record is not None else None
        if steps is not None and not steps.profile and "profile" not in steps.missing:
            session.note(NoteKind.NO_PROFILE, requests=(request,))


# --- the confirmation: winners against the default, interleaved, before they are called better


def confirm(session: Session, winners: Sequence[TrialRecord]) -> None:
    """Every winner that is not the default, in the same rounds as the default."""
    session.enter(Stage.CONFIRMATION)
    ledger, plan = session.ledger, session.ledger.plan
    default, other_processes = plan.default(), False
    failed = choice.default_failure(session.study, ledger.records(), plan.target)
    for winner in winners:
        if choice.is_default(session.study, winner.config):
            continue
        if failed is not None:
            session.note(NoteKind.DEFAULT_FAILED, reason=f"{failed.state}: {failed.reason}")
            return
        if winner.config.environment != default.environment:
            other_processes = True
            continue
        request = plan.confirmation(plan.suggestion_of(winner), default)
        if winner.request.role == "scaling":  # its curve was measured before it was chosen
            request = plan.profiled(request)
            _note_without_profile(session, [request])
        if not ledger.is_open(request):
            continue
        in_time = session.forecast.fit_one(request)
        if in_time is not None:
            session.announce()
        if not session.measure_in_time(in_time, winner.suggestion):
            session.note(NoteKind.NOT_REACHED)
            return
    if other_processes:
        session.note(NoteKind.OTHER_PROCESSES)


# --- the worst suggestion of a search: where does its time go?


def take_apart_worst(session: Session) -> None:
    """All variants of the least efficient suggestion that only the search has measured, where time is left.

    It answers no question of the study, so it is not named where there is no time for it.
    """
    session.enter(Stage.WORST)
    worst = _worst(session)
    if worst is None:
        return
    plan = session.ledger.plan
    request = plan.taken_apart(plan.suggestion_of(worst))
    in_time = session.forecast.fit_one(request)
    if not session.ledger.is_open(request) or in_time is None:
        return
    session.announce()
    session.measure_in_time(in_time, worst.suggestion)


def _worst(session: Session) -> TrialRecord | None:
    """Of the search's complete trials the one of least efficiency; None where a curve has measured it too."""
    steps = [record for record in session.ledger.searched() if record.steps is not None]
    efficiencies = [(found.value, record) for record in steps if (found := scaling(record).efficiency)]
    if not efficiencies:
        return None
    worst = min(efficiencies, key=lambda each: each[0])[1]
    if worst.config.setting.strategy != "ddp":  # the others have no further variants
        return None
    curves = (each for each in session.ledger.records() if each.steps and each.request.role == "scaling")
    return None if any(each.config == worst.config for each in curves) else worst


# --- trials that are repeated: what disagrees, or others disturbed

_Requests = dict[str, tuple[StepsRequest, TrialRecord]]  # each once, and the record of the time before


def repeat(session: Session) -> bool:
    """Trials of the curve that others disturbed, or of whose setting measurements disagree; whether any was.

    Until none was disturbed more than the rest, and another measurement agrees with the reported one. The
    last one is reported, so none gets less time than the one before it. Not where the curve is
    measured in several starts, as what these differ by is in its intervals, nor with more workers than cores.
    It is not named where there is no time for it: the report names what disagrees.
    """
    session.enter(Stage.REPEAT)
    if session.study.measure.starts > 1 or session.ledger.plan.oversubscribed:
        return False
    measured = False
    for _ in range(MOST_AGAIN):
        base = resolve(session.study, session.ledger.records())
        loaded = [each.record for each in under_load(base)]
        disturbed = _of_curve(session, loaded)
        requests = disturbed | _of_curve(session, _that_disagree(base, loaded))
        if not requests:
            break
        why = [RepeatReason.UNDER_LOAD] if disturbed else []
        why += [RepeatReason.DISAGREE] if len(requests) > len(disturbed) else []
        for done, (request, record) in enumerate(requests.values()):
            in_time = session.forecast.fit_one(request)
            if in_time is None or in_time.measure.max_seconds < _rounds_s(record):
                return measured
            if done == 0:
                session.announce(len(requests), why)
            with session.leaving_out_what_has_no_room(requests=(request,)):
                session.measure(Trial(in_time, record.suggestion), done=done, total=len(requests))
                measured = True
    return measured


def _that_disagree(base: Facts, loaded: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Of settings whose measurements do; not those whose reported trial is ``loaded``: they come first."""
    # what wide intervals leave open is left open by as many rounds more
    open_ = [each for each in disagreements(base) if each.is_certain and not each.is_settled]
    open_ = [each for each in open_ if each.speaks.record not in loaded]
    return [record for each in open_[:MOST_AT_ONCE] if (record := _to_repeat(each))]


def _of_curve(session: Session, records: Sequence[TrialRecord]) -> _Requests:
    """What to measure again of ``records``: trials of a curve that were not too often."""
    found: _Requests = {}
    for record in records:
        if record.request.role != "scaling" or times_before(record) >= MOST_AGAIN:
            continue
        request = session.ledger.plan.repeated(record, times_before(record) + 1)
        if session.ledger.is_open(request):
            found.setdefault(request.trial_id, (request, record))
    return dict(itertools.islice(found.items(), MOST_AT_ONCE))


def _to_repeat(found: Disagreement) -> TrialRecord | None:
    """The trial of the curve that was measured again least often: of one device its own before the others."""
    readings: Sequence[TrialRecord] = [each.record for each in (found.speaks, *found.others)]
    reported = found.speaks.record
    own = [each for each in readings if each is reported or each.config == found.config]
    curve = [each for each in own if each.request.role == "scaling"]
    last = [each for each in curve if not any(_is_later(other, each) for other in curve)]
    return min(last, key=lambda each: (times_before(each), each.config.world_size), default=None)


def _rounds_s(record: TrialRecord) -> float:
    """The most seconds that the rounds of a trial of steps were given."""
    assert record.request.kind == "steps"
    return record.request.measure.max_seconds


def _is_later(one: TrialRecord, other: TrialRecord) -> bool:
    return one.config == other.config and times_before(one) > times_before(other)


# --- the trainings: whole epochs, on one device and on several


def train(session: Session) -> None:
    """Every training trial that there is time for."""
    session.enter(Stage.TRAINING)
    ledger, plan = session.ledger, session.ledger.plan
    requests = training_requests(plan, ledger.records())
    if any(map(ledger.is_open, requests)):
        session.announce(len(requests))
    late, at_once = list[StudyRequest](), 0
    for done, request in enumerate(requests):
        if not ledger.is_open(request):
            continue
        session.make_room(request)
        session.wait_while(partial(waits_for_a_peer, plan, request, ledger.records))
        if request not in training_requests(plan, ledger.records()):
            continue  # its setting was stopped in the meantime: it gets no further seed
        if not session.budget.has(session.forecast.cost_of(request)):
            late.append(request)
            continue
        with session.leaving_out_what_has_no_room(requests=(request,)):
            asked = with_peers(plan, request, ledger.records())
            session.begin(Trial(asked), done=done, total=len(requests))
        at_once = max(at_once, len(session.in_flight))
    session.finish()
    cut = ledger.cut_of(requests)
    late = [each for each in requests if each in cut or each in late]
    if at_once > 1:
        session.note(NoteKind.SIDE_BY_SIDE, number=at_once)
    if late:
        session.note(NoteKind.NOT_REACHED, requests=tuple(late), total=len(requests))


# --- the verification: the changes that a diagnosis proposes, tested (``--verify``)


def verify(session: Session) -> None:
    """The first findings' changes, each in the same rounds as the setting without it.

    What the diagnosis proposes is worked out once, before the first of them: none has a part in it.
    """
    session.enter(Stage.VERIFICATION)
    asked = [one for one in _verifications(session) if session.ledger.is_open(one[1])]
    if asked:
        session.announce(len(asked))
    late, default = list[dict[str, KnobValue]](), session.ledger.plan.default().environment
    for done, (proposal, request) in enumerate(asked):
        # a new worker group costs its start, which cannot be cut short
        start_s = session.budget.start_s if request.config.environment != default else 0.0
        in_time = session.forecast.fit([request], fixed_s=start_s)
        if not session.measure_in_time(in_time, done=done, total=len(asked), changes=(proposal.change,)):
            late.append(dict(proposal.change))  # a later one may be cheaper: no own processes, or smaller
    if late:
        session.note(NoteKind.NOT_REACHED, changes=tuple(late))


def _verifications(session: Session) -> list[tuple[Proposal, StepsRequest]]:
    """Those that can be tested and are not, by the worker group that they need."""
    base = resolve(session.study, session.ledger.records())
    headline = base.headline
    if headline is None:
        session.note(NoteKind.NO_DIAGNOSIS)
        return []
    if headline.config.oversubscribed:
        session.note(NoteKind.OVERSUBSCRIBED)
        return []
    open_ = _not_tested(session, base)
    if not open_:
        session.note(NoteKind.NOTHING_PROPOSED)
    if session.budget.left_s is None:
        open_ = open_[:MOST_WITHOUT_BUDGET]
    plan = session.ledger.plan
    return [
        (each, plan.verification(headline.config, each.setting, dict(each.environment)))
        for each in sorted(open_, key=lambda one: not is_paired(one, headline.config))
    ]


def _not_tested(session: Session, base: Facts) -> list[Proposal]:
    """The proposals that no confirmation has tested; those of an earlier run of this stage are among them."""
    chosen = choice.choose(base.study, base.records, base.target_world_size)
    confirmed = confirmations(base, chosen)
    first = diagnose_study(base, confirmed, session.around).first
    found = [each for each in proposals(base, first) if not each.needs_you]
    tests = [(each, test_of(base, each, confirmed)) for each in found]
    return [each for each, test in tests if test is None or test.request.role == "verification"]
