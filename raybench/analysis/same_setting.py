"""Which configurations are the same setting, or the same question."""

from __future__ import annotations

from raybench.records.requests import Configuration


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
        mine, theirs = mine.on_one_device(), theirs.on_one_device()
    named = ("workload", "optimizer", "environment", "scaling", "device", "data")
    return mine == theirs and all(getattr(one, name) == getattr(other, name) for name in named)


def without_batch(config: Configuration) -> Configuration:
    """The configuration with its batch reset: the same for all points of one batch curve."""
    return config.model_copy(update={"setting": config.setting.model_copy(update={"batch_size": 1})})
