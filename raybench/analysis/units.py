"""From records to the visits of a pool: which unit each block of a trial is of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np

from raybench.analysis.reference import KnownBuckets
from raybench.analysis.stats.pool import Array, Unit, Visit
from raybench.analysis.stats.rounds import device_effects, mean_rank_s, series, slowest_rank_s, slowest_step_s
from raybench.records.record import TrialRecord
from raybench.records.requests import AS_IF, AsIf, Configuration, Variant
from raybench.records.results import Block
from raybench.spec.knobs import Setting
from raybench.spec.workloads import ScriptSpec

# The levels of a waterfall above the bare device, and how each is read from its block.
LEVELS: tuple[tuple[str, Variant, Callable[[Block], float]], ...] = (
    ("concurrent", "concurrent", mean_rank_s),
    ("local", "local", mean_rank_s),
    ("local slowest", "local", slowest_step_s),
    ("replay", "replay", slowest_rank_s),
)
Devices = Mapping[tuple[int, int], float]  # by group and rank: the logarithm that a device is slower by


def plain_unit(config: Configuration, micro_batch: int) -> Unit:
    """One device alone, whichever, without a wrapper, with micro-batches of so many samples."""
    named = config.world_size == 1 and not isinstance(config.placement, str)
    place: Hashable = tuple(config.placement) if named else ""
    ignored = ("batch_size", "scaling", *config.ANY_SIZE)
    return "one device", config.key(1, ignored), micro_batch, place


def baseline_unit(config: Configuration) -> Unit:
    """One device doing what a speed-up is over: the same batch, under strong scaling the global one."""
    if config.scaling == "strong":
        return plain_unit(config, config.setting.batch_size // config.setting.gradient_accumulation)
    return plain_unit(config, config.micro_batch(config.setting))


def step_unit(config: Configuration, buckets: KnownBuckets) -> Unit:
    """The real step: on one device alone the bare one."""
    if config.world_size == 1:
        return plain_unit(config, config.micro_batch(config.setting))
    return level_unit(config, buckets, "ddp")


def level_unit(config: Configuration, buckets: KnownBuckets, name: str) -> Unit:
    """A level of the waterfall on several devices."""
    return name, buckets.key(config)


def as_if_unit(config: Configuration, buckets: KnownBuckets, asked: AsIf) -> Unit:
    """The step as if on more devices, joined by one network."""
    return "as if", asked.world_size, asked.network, asked.lines, buckets.key(config)


def with_setting(config: Configuration, setting: Setting) -> Configuration:
    """The same place with another setting."""
    return config.model_copy(update={"setting": setting})


def pool_visits(records: Iterable[TrialRecord], buckets: KnownBuckets) -> list[Visit]:
    """What each complete trial of steps says of the units in its rounds.

    Each of a script is a start, and each that has processes of its own, as under Ray Tune.
    """
    listed = [record for record in records if record.steps is not None]
    are_alone = len({record.group for record in listed}) == len(listed)
    devices = device_effects((each.group, each.steps.rounds) for each in listed if each.steps)
    found = list[Visit]()
    for number, record in enumerate(listed, start=1):
        is_own = are_alone or isinstance(record.config.workload, ScriptSpec)
        planned = number if is_own else record.request.kind == "steps" and record.request.planned_group
        found.append(Visit(-number if is_own else record.group, planned, _logs(record, buckets, devices)))
    return found


def _logs(record: TrialRecord, buckets: KnownBuckets, devices: Devices) -> dict[Unit, Array]:
    config, request, found = record.config, record.request, dict[Unit, Array]()
    size, steps = config.world_size, record.steps
    assert steps is not None

    def add(unit: Unit, variant: Variant, value: Callable[[Block], float] = slowest_rank_s) -> None:
        values = series(steps, variant, value)
        if values is None:
            return
        found[unit] = np.log(values)
        if size == 1 and not isinstance(config.placement, str):
            return  # of a named device: what it is slower by is asked
        for place, each in enumerate(steps.rounds if variant in ("plain", "base") else ()):
            block = each.block(variant)
            if block is not None and len(block.ranks) == 1:
                found[unit][place] -= devices.get((record.group, block.ranks[0]), 0.0)

    add(plain_unit(config, config.micro_batch(config.setting)), "plain")
    if config.scaling == "strong":
        add(baseline_unit(config), "base")
    for name, variant, value in LEVELS:
        add(level_unit(config, buckets, name), variant, value)
    add(step_unit(config, buckets), "ddp")
    for asked, as_if_variant in zip(request.as_if if request.kind == "steps" else (), AS_IF, strict=False):
        add(as_if_unit(config, buckets, asked), as_if_variant)
    if request.kind == "steps" and request.anchor is not None:
        add(step_unit(with_setting(config, request.anchor), buckets), "anchor")
    return found
