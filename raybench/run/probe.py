"""The stage before all others where ``batch_size = "max"`` is asked for: probes of the largest batch."""

from __future__ import annotations

from dataclasses import replace

from raybench.analysis.labels import combination_words, devices_words
from raybench.analysis.largest_batch import decide, largest_fits_of, probe_of
from raybench.plan.trials import Trial
from raybench.records.record import TrialRecord
from raybench.run.session import Session
from raybench.spec.knobs import Setting


def find_largest_batches(session: Session) -> None:
    """What "max" stands for in each combination of the knobs that change memory; the plan knows it then."""
    plan = session.plan
    combinations = plan.combinations()
    each = f", for each of {len(combinations)} combinations" if len(combinations) > 1 else ""
    session.watcher.stage(f"Finding the largest batch that fits on {devices_words(plan.target)}{each}")
    for combination in combinations:
        _find_largest_batch(session, combination)
    fits = largest_fits_of(plan.study, session.records(), plan.world_sizes)
    session.plan = replace(plan, fits=tuple(fits))


def _find_largest_batch(session: Session, combination: Setting) -> None:
    plan, done = session.plan, 0
    while True:
        probes = _probes(session, combination)
        decision = decide(combination, plan.target, map(probe_of, probes), plan.rules(combination))
        if decision.next_batch is None:
            return
        expected_s = 2 * max((record.wall_time_s for record in probes), default=0.0)  # it doubles
        if not session.budget.has(expected_s + session.expected.search_reserve_s()):
            words = combination_words(plan.study, combination)
            session.not_reached.append(f"the largest batch, exactly ({words})")
            return
        session.measure(Trial(plan.probe(combination, decision.next_batch)), done=done, total=None)
        done += 1


def _probes(session: Session, combination: Setting) -> list[TrialRecord]:
    """The probes of a combination; what --retry names is not known until it was tried again."""
    target = session.plan.target
    key = combination.memory_key(target)
    return [
        record
        for record in session.records()
        if record.request.kind == "probe"
        and record.config.setting.memory_key(target) == key
        and not session.is_open(record.study_request)
    ]
