"""Is a study's first failure that of all its trials? Then to ask on would only repeat it.

A bug in a workload's ``loss`` fails whatever the setting, one that a large batch brings out does not. The
study's own other settings tell the two apart: each is stepped on one device alone, a moment where it fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from raybench.analysis.failures import failure_key
from raybench.analysis.labels import setting_words
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import ProbeRequest
from raybench.spec.knobs import Setting

MOST_OTHERS = 4  # settings that are tried
MOST_SETTINGS = 10_000  # of a grid, among which they are looked for


def fails_elsewhere(plan: Plan, record: TrialRecord, ask: Callable[[ProbeRequest], Outcome]) -> str:
    """With which other settings the trial fails in the same way, in words; empty where one does not."""
    key, told = failure_key(record.state, record.reason, record.frames), []
    for setting in _others(plan, record.config.setting):
        outcome = ask(_alone(plan, record, setting))
        if failure_key(outcome.state, outcome.reason, outcome.frames) != key:
            return ""
        told.append(setting_words(setting, plan.study.knobs.explored() or ["batch_size"]))
    return "; ".join(told)


def _others(plan: Plan, failed: Setting) -> list[Setting]:
    """Another batch each, with as many other values of the explored knobs as can be; else the same batch."""
    explored = plan.study.knobs.explored()

    def changes(setting: Setting) -> int:
        return sum(getattr(setting, name) != getattr(failed, name) for name in explored)

    by_batch: dict[int, Setting] = {}
    for setting in itertools.islice(plan.study.knobs.grid(plan.largest), MOST_SETTINGS):
        if setting.fault(plan.device) is not None:
            continue
        known = by_batch.get(setting.batch_size)
        if known is None or changes(setting) > changes(known):
            by_batch[setting.batch_size] = setting
    batches = sorted(batch for batch in by_batch if batch != failed.batch_size)
    ends_first = [*batches[:1], *batches[:0:-1]] or list(by_batch)
    return [by_batch[batch] for batch in ends_first[:MOST_OTHERS]]


def _alone(plan: Plan, record: TrialRecord, setting: Setting) -> ProbeRequest:
    """A few steps of ``setting`` on one device, with the micro-batch that it has where the trial failed."""
    config = record.config
    micro_batch = max(config.micro_batch(setting), 1)
    alone = {
        "world_size": 1,
        "placement": "pack",
        "scaling": "weak",
        "setting": setting.model_copy(update={"batch_size": micro_batch}).at(1),
    }
    return ProbeRequest(
        config=config.model_copy(update=alone), timeout_seconds=plan.study.measure.timeout_seconds
    )
