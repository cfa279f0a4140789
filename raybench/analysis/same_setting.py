"""Trials that ask the same: one of each, those that bear on one, and what differs between their workers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cached_property

from raybench.analysis.estimates.over_starts import BETWEEN_STARTS
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, Role


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
            found.setdefault(record.config.key(ignore=Configuration.ANY_SIZE), []).append((place, record))
        return found

    @cached_property
    def _on_one_device(self) -> dict[Hashable, list[tuple[int, TrialRecord]]]:
        found: dict[Hashable, list[tuple[int, TrialRecord]]] = {}
        for place, record in enumerate(self._measured):
            if record.config.world_size == 1:
                found.setdefault(record.config.key(1, Configuration.ANY_SIZE), []).append((place, record))
        return found

    def of(self, record: TrialRecord) -> tuple[TrialRecord, ...]:
        """The records with step times that hold its further starts, or its baseline, in their order.

        Of a trial on one device those of its own question; of one on several those on one device too.
        """
        config = record.config
        found = dict(self._of_question.get(config.key(ignore=config.ANY_SIZE), ()))
        if self._on_one_device:
            found |= dict(self._on_one_device.get(config.key(1, config.ANY_SIZE), ()))
        return tuple(found[place] for place in sorted(found))
