"""Is a study's first failure that of all its trials? Then to ask on would only repeat it.

A bug in a workload's ``loss`` fails whatever the setting, one that a large batch brings out does not. The
study's own other settings tell the two apart: each is stepped on one device alone, a moment where it fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from raybench.analysis.failures import failure_key
from raybench.analysis.labels import setting_words
from raybench.errors import GroupLostError, NoRoomError
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import ProbeRequest
from raybench.spec.knobs import KnobValue, Setting, setting_in_numbers

_ERROR = re.compile(r"(?:rank \d+: )?(\w+):")  # the type, as a rank tells what it raised
MOST_LOOKS = 8  # at other settings; where more are needed a study goes on


@dataclass(frozen=True)
class _Look:
    """What is stepped alone: a setting, in one environment of the processes."""

    setting: Setting
    environment: dict[str, str]


def fails_elsewhere(plan: Plan, record: TrialRecord, ask: Callable[[ProbeRequest], Outcome]) -> str:
    """With which other settings the trial fails in the same way, in words; empty where one does not.

    Empty too where a few looks cannot hold every other value, or where no worker group starts for one.
    """
    key, told = _cause(record.state, record.reason, record.frames), []
    knobs = [*_other_values(plan, record.config.setting)] or ["batch_size"]
    several = len(plan.environments()) > 1
    for look in _looks(plan, record):
        try:
            outcome = ask(_alone(plan, record, look))
        except (GroupLostError, NoRoomError):
            return ""
        if _cause(outcome.state, outcome.reason, outcome.frames) != key:
            return ""
        told.append(setting_words(look.setting, knobs, look.environment if several else None))
    return "; ".join(told)


def _cause(state: str, reason: str | None, frames: Sequence[str]) -> Hashable:
    """The same for two failures of one bug: of one type at one line, as what is said depends on the shapes.

    Without a line, ``failure_key``.
    """
    error = _ERROR.match(reason or "")
    return (state, error[1], frames[0]) if error and frames else failure_key(state, reason, frames)


def _looks(plan: Plan, record: TrialRecord) -> list[_Look]:
    """Every other value of each knob, and every other environment, at least once; as many together as can be.

    Those in the environment that runs come first. What failed itself where the study has nothing else; none
    where it takes too many.
    """
    setting, environment = record.config.setting, record.config.environment
    values = _other_values(plan, setting)
    environments = [each for each in plan.environments() if each != environment]
    number = max(1, len(environments), *map(len, values.values()))
    if number > MOST_LOOKS:
        return []
    around = [environment] * (number - len(environments)) + environments
    return [
        _Look(setting.model_copy(update={name: few[place % len(few)] for name, few in values.items()}), each)
        for place, each in enumerate(around)
    ]


def _other_values(plan: Plan, failed: Setting) -> dict[str, list[KnobValue]]:
    """Of each explored knob that matters on one device what ``failed`` has not, and the device can."""
    found = dict[str, list[KnobValue]]()
    for name, values in plan.study.knobs.explored().items():
        if name in Setting.ONE_DEVICE_INDIFFERENT:
            continue
        settings = [setting_in_numbers({**vars(failed), name: value}, plan.largest) for value in values]
        possible = [each for each in settings if each is not None and each.at(1).fault(plan.device) is None]
        others = dict.fromkeys(getattr(each, name) for each in possible if each != failed)
        if others:
            found[name] = list(others)
    return found


def _alone(plan: Plan, record: TrialRecord, look: _Look) -> ProbeRequest:
    """A few steps of ``look`` on one device, with the micro-batch that it has where the trial failed."""
    config = record.config
    micro_batch = max(config.micro_batch(look.setting), 1)
    alone = {
        "world_size": 1,
        "placement": "pack",
        "scaling": "weak",
        "setting": look.setting.model_copy(update={"batch_size": micro_batch}).at(1),
        "environment": look.environment,
    }
    return ProbeRequest(
        config=config.model_copy(update=alone), timeout_seconds=plan.study.measure.timeout_seconds
    )
