"""A sweep of collectives: a trial for every world size and placement of its plan."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from raybench.driver.groups import Groups
from raybench.driver.session import Watcher
from raybench.driver.time_budget import TimeBudget
from raybench.errors import NoRoomError
from raybench.launch import signals
from raybench.launch.runner import TrialRunner
from raybench.plan.sweep_plan import SweepPlan
from raybench.records.record import State
from raybench.records.requests import Place
from raybench.records.store import ResultsDirectory
from raybench.spec.sweep import Sweep


def run_sweep(
    plan: SweepPlan, runner: TrialRunner, store: ResultsDirectory, watcher: Watcher, retry: Collection[State]
) -> list[tuple[Place, str]]:
    """Measure every place that is not known, or ended in a state to ``retry``.

    Returns which have no room, since nodes are gone, and why. Raises ``Interrupted``, ``RequestError`` for
    what cannot be placed or written, ``GroupLostError`` when no worker group starts.
    """
    groups = Groups(runner, TimeBudget(), plan, watcher.group)
    requests, known, lost = plan.requests, store.latest(), list[tuple[Place, str]]()
    still = [each for each in requests if each.trial_id not in known or known[each.trial_id].state in retry]
    for done, request in enumerate(still, len(requests) - len(still)):
        left_s = (len(requests) - done) * plan.sweep.measure.max_seconds
        watcher.trial(request, done=done, total=len(requests), left_s=left_s)
        signals.check()
        try:
            outcome, at, _ = groups.run(request, partial(watcher.progress, request))
        except NoRoomError as error:
            lost.append((request.config, str(error)))
            continue
        record = outcome.to_record(request, study=Sweep.name, started_at=at)
        store.append(record)
        watcher.trial_done(record, None)
    return lost
