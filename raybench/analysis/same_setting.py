"""Which configurations are the same setting, question or work, and which trial speaks for those that are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from raybench.analysis.estimates.over_starts import BETWEEN_STARTS
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, Role
from raybench.spec.knobs import Setting

_OF_A_QUESTION = ("workload", "optimizer", "environment", "scaling", "device", "data")
_OF_WORK = (
    "workload", "optimizer", "setting", "environment", "scaling", "device", "world_size", "placement",
)  # fmt: skip


def setting_key(config: Configuration) -> Hashable:
    """Equal for configurations that are one suggestion: the setting and variables, as far as they can matter.

    Each on its own world size; a batch is of a device, or of all: as the scaling says.
    """
    return config.setting.at(config.world_size), _hashable(config.environment), config.scaling


def question_key(config: Configuration, world_size: int | None = None) -> Hashable:
    """Equal for configurations that differ in nothing but world size and placement.

    ``world_size`` 1: without the knobs that have no effect on one device.
    """
    setting = config.setting.at(1) if world_size == 1 else config.setting
    return setting, *(_hashable(getattr(config, name)) for name in _OF_A_QUESTION)


def work_key(config: Configuration) -> Hashable:
    """Equal for configurations that do the same on the same devices, wherever the data lie."""
    return tuple(_hashable(getattr(config, name)) for name in _OF_WORK)


def whole_key(config: Configuration) -> Hashable:
    """Equal for equal configurations, which themselves cannot be keys."""
    return _hashable(config)


def change_key(config: Configuration) -> Hashable:
    """Equal for configurations of one workload and size of which neither ``differs`` from the other."""
    return config.setting, frozenset(config.environment.items()), config.placement


def same_setting(one: Configuration, other: Configuration) -> bool:
    """Whether the two are one suggestion, as ``setting_key`` has it."""
    return setting_key(one) == setting_key(other)


def same_question(one: Configuration, other: Configuration) -> bool:
    """Whether two configurations differ in nothing but world size and placement.

    On one device the knobs that have no effect there are left out of the comparison.
    """
    least = min(one.world_size, other.world_size)
    return question_key(one, least) == question_key(other, least)


def _hashable(value: Any) -> Hashable:
    """A value that is equal where ``value`` is, and can be a key."""
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, BaseModel):
        return _of_model(value)
    if isinstance(value, dict):
        return frozenset((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_hashable(each) for each in value)
    return value  # type: ignore[no-any-return]


def batch_curve_key(config: Configuration) -> Hashable:
    """Equal for configurations that differ in nothing but the batch and world size, and in no placement."""
    rest = (_hashable(getattr(config, name)) for name in _OF_A_QUESTION)
    return config.placement, _but_for_batch(config.setting), *rest


def whole_key_without_batch(config: Configuration) -> Hashable:
    """``whole_key`` of ``without_batch``."""
    rest = (_hashable(value) for name, value in vars(config).items() if name != "setting")
    return _but_for_batch(config.setting), *rest


def _but_for_batch(setting: Setting) -> Hashable:
    return tuple(value for name, value in vars(setting).items() if name != "batch_size")


def _of_model(value: BaseModel) -> Hashable:
    parts = [_hashable(each) for each in vars(value).values()]
    return type(value), *parts, _hashable(value.model_extra or {})


def between_starts(one: TrialRecord, other: TrialRecord) -> float:
    """The standard deviation, relative, of what starts of the workers put between two of one study's trials.

    Nothing within one worker group. Groups differ by variables of the processes, after one was lost or the
    study resumed, and for every trial of Ray Tune. A study that was resumed before sessions counted on from
    each other has groups of one number in several: those pass for one.
    """
    return 0.0 if one.group == other.group else BETWEEN_STARTS


def without_batch(config: Configuration) -> Configuration:
    """The configuration with its batch reset: the same for all points of one batch curve."""
    return config.model_copy(update={"setting": config.setting.model_copy(update={"batch_size": 1})})


def same_work(one: Configuration, other: Configuration) -> bool:
    """Whether the two do the same on the same devices, wherever the data lie: in two studies, say."""
    return work_key(one) == work_key(other)


def same_devices(one: TrialRecord, other: TrialRecord) -> bool:
    """Whether the two are not known to have run on devices of different kinds."""
    return len({one.device_name, other.device_name} - {None}) < 2


def of_first_role(records: Iterable[TrialRecord], *roles: Role) -> tuple[TrialRecord, ...]:
    """The records of the first of these roles of which there are any."""
    listed = list(records)
    groups = (tuple(record for record in listed if record.request.role == role) for role in roles)
    return next(filter(None, groups), ())


def scaling_first(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The trials of the curve, which have all variants, before others; else in the order that they have."""
    return sorted(records, key=lambda record: record.request.role != "scaling")


def one_of_each(
    records: Iterable[TrialRecord], key: Callable[[Configuration], Hashable]
) -> list[TrialRecord]:
    """One trial for each thing that ``key`` tells apart: one of the curve before one of the search."""
    distinct: dict[Hashable, TrialRecord] = {}
    for record in scaling_first(records):
        distinct.setdefault(key(record.config), record)
    return list(distinct.values())


class Related:
    """Records by what they ask: those that bear on one trial are found without looking at all of them."""

    def __init__(self, records: Iterable[TrialRecord]) -> None:
        self._measured = tuple(record for record in records if record.steps is not None)

    @cached_property
    def has_starts(self) -> bool:
        """Whether any trial was repeated in a further start of the workers."""
        requests = (record.request for record in self._measured)
        return any(request.kind == "steps" and request.start > 0 for request in requests)

    @cached_property
    def _of_question(self) -> dict[Hashable, list[tuple[int, TrialRecord]]]:
        found: dict[Hashable, list[tuple[int, TrialRecord]]] = {}
        for place, record in enumerate(self._measured):
            found.setdefault(question_key(record.config), []).append((place, record))
        return found

    @cached_property
    def _on_one_device(self) -> dict[Hashable, list[tuple[int, TrialRecord]]]:
        found: dict[Hashable, list[tuple[int, TrialRecord]]] = {}
        for place, record in enumerate(self._measured):
            if record.config.world_size == 1:
                found.setdefault(question_key(record.config, 1), []).append((place, record))
        return found

    def of(self, record: TrialRecord) -> tuple[TrialRecord, ...]:
        """The records with step times that hold its further starts, or its baseline, in their order.

        Of a trial on one device those of its own question; of one on several those on one device too.
        """
        config = record.config
        found = dict(self._of_question.get(question_key(config), ()))
        if self._on_one_device:
            found |= dict(self._on_one_device.get(question_key(config, 1), ()))
        return tuple(found[place] for place in sorted(found))
