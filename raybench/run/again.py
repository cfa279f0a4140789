"""The stage that measures again what disagrees, or others disturbed, as far as the time allows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from raybench.analysis.disagreements import Disagreement, disagreements
from raybench.analysis.estimates.repeated import MOST_AGAIN, times_before
from raybench.analysis.labels import trial_words
from raybench.analysis.measured import MeasuredStudy, measured_study
from raybench.analysis.uneven_load import under_load
from raybench.plan.trials import Trial
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest
from raybench.run.session import Session
from raybench.spec.counted import counted

_Requests = dict[str, tuple[StepsRequest, TrialRecord]]  # each once, and the record of the time before
MOST_AT_ONCE = 4  # settings for each reason, those furthest apart
UNDER_LOAD = "other programs took cores from it alone"
DISAGREE = "measurements of the same setting disagree"


def measure_again(session: Session) -> bool:
    """Trials of the curve that others disturbed, or of whose setting measurements disagree; whether any was.

    Until nothing disturbs it more than the rest, and another measurement bears the one that speaks for the
    setting out. The last one speaks, so none gets less time than the one before it. Not where the curve is
    measured in several starts, as what these differ by is in its intervals, nor with more workers than cores.
    It answers no question of the study by itself, so it is not named where there is no time for it: the
    report names what disagrees.
    """
    if session.plan.study.measure.starts > 1 or session.plan.oversubscribed:
        return False
    measured = False
    for _ in range(MOST_AGAIN):
        base = measured_study(session.study, session.records())
        loaded = [each.record for each in under_load(base)]
        disturbed = _of_curve(session, loaded)
        requests = disturbed | _of_curve(session, _that_disagree(base, loaded))
        if not requests:
            break
        number, why = counted(len(requests), "trial"), [UNDER_LOAD] if disturbed else []
        why += [DISAGREE] if len(requests) > len(disturbed) else []
        for done, (request, record) in enumerate(requests.values()):
            in_time = session.expected.one_in_time(request)
            if in_time is None or in_time.measure.max_seconds < _rounds_s(record):
                return measured
            if done == 0:
                session.watcher.stage(f"Measuring {number} again: {'; '.join(why)}")
            with session.as_far_as_it_fits(f"{trial_words(session.study, request)}, again"):
                session.measure(Trial(in_time, record.suggestion), done=done, total=len(requests))
                measured = True
    return measured


def _that_disagree(base: MeasuredStudy, loaded: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Of settings whose measurements do, but for those that ``loaded`` trials speak for: these come first."""
    # what wide intervals leave open is left open by as many rounds more
    apart = [each for each in disagreements(base) if each.is_certain and not each.is_settled]
    apart = [each for each in apart if each.speaks.record not in loaded]
    return [record for each in apart[:MOST_AT_ONCE] if (record := _to_repeat(each))]


def _of_curve(session: Session, records: Sequence[TrialRecord]) -> _Requests:
    """What to measure again of ``records``: trials of a curve that were not too often."""
    found: _Requests = {}
    for record in records:
        if record.request.role != "scaling" or times_before(record) >= MOST_AGAIN:
            continue
        request = session.plan.again(record, times_before(record) + 1)
        if session.is_open(request):
            found.setdefault(request.trial_id, (request, record))
    return dict(itertools.islice(found.items(), MOST_AT_ONCE))


def _to_repeat(apart: Disagreement) -> TrialRecord | None:
    """The trial of the curve that was measured again least often: of one device its own before the others."""
    readings: Sequence[TrialRecord] = [each.record for each in (apart.speaks, *apart.others)]
    speaks = apart.speaks.record
    own = [each for each in readings if each is speaks or each.config == apart.config]
    curve = [each for each in own if each.request.role == "scaling"]
    last = [each for each in curve if not any(_is_later(other, each) for other in curve)]
    return min(last, key=lambda each: (times_before(each), each.config.world_size), default=None)


def _rounds_s(record: TrialRecord) -> float:
    """The most seconds that the rounds of a trial of steps were given."""
    assert record.request.kind == "steps"
    return record.request.measure.max_seconds


def _is_later(one: TrialRecord, other: TrialRecord) -> bool:
    return one.config == other.config and times_before(one) > times_before(other)
