"""Which configurations are the same setting, question or work, and which trial speaks for those that are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raybench.analysis.estimates.over_starts import BETWEEN_STARTS
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, Role


def same_setting(one: Configuration, other: Configuration) -> bool:
    """Whether the two are one suggestion: the same setting and variables, as far as they can matter.

    Each on its own world size; a batch is of a device, or of all: as the scaling says.
    """
    mine, theirs = one.setting.at(one.world_size), other.setting.at(other.world_size)
    return (mine, one.environment, one.scaling) == (theirs, other.environment, other.scaling)


def same_question(one: Configuration, other: Configuration) -> bool:
    """Whether two configurations differ in nothing but world size and placement.

    On one device the knobs that have no effect there are left out of the comparison.
    """
    mine, theirs = one.setting, other.setting
    if 1 in (one.world_size, other.world_size):
        mine, theirs = mine.at(1), theirs.at(1)
    named = ("workload", "optimizer", "environment", "scaling", "device", "data")
    return mine == theirs and all(getattr(one, name) == getattr(other, name) for name in named)


def between_starts(one: Configuration, other: Configuration) -> float:
    """The standard deviation, relative, of what starts of the workers put between two of one study's trials.

    Variables of the processes need a worker group of their own, which is another start.
    """
    return 0.0 if one.environment == other.environment else BETWEEN_STARTS


def without_batch(config: Configuration) -> Configuration:
    """The configuration with its batch reset: the same for all points of one batch curve."""
    return config.model_copy(update={"setting": config.setting.model_copy(update={"batch_size": 1})})


def same_work(one: Configuration, other: Configuration) -> bool:
    """Whether the two do the same on the same devices, wherever the data lie: in two studies, say."""
    named = (
        "workload",
        "optimizer",
        "setting",
        "environment",
        "scaling",
        "device",
        "world_size",
        "placement",
    )
    return all(getattr(one, name) == getattr(other, name) for name in named)


def of_first_role(records: Iterable[TrialRecord], *roles: Role) -> tuple[TrialRecord, ...]:
    """The records of the first of these roles of which there are any."""
    listed = list(records)
    groups = (tuple(record for record in listed if record.request.role == role) for role in roles)
    return next(filter(None, groups), ())


def scaling_first(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The trials of the curve, which have all variants, before others; else in the order that they have."""
    return sorted(records, key=lambda record: record.request.role != "scaling")


def one_of_each(
    records: Iterable[TrialRecord], same: Callable[[Configuration, Configuration], bool]
) -> list[TrialRecord]:
    """One trial for each thing that ``same`` tells apart: one of the curve before one of the search."""
    distinct: list[TrialRecord] = []
    for record in scaling_first(records):
        if not any(same(record.config, other.config) for other in distinct):
            distinct.append(record)
    return distinct
