"""The settings that a report shows, each over its numbers of devices, and what further devices bring."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.resolve import Facts
from raybench.analysis.scaling import Scaling
from raybench.analysis.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.requests import COMPARED_ROLES, Configuration

MOST_SETTINGS = 6


@dataclass(frozen=True)
class SettingPoint:
    """A setting on one number of devices."""

    config: Configuration
    scaling: Scaling
    record: TrialRecord  # its trial; of one device that only stood in the rounds of several, theirs

    @property
    def world_size(self) -> int:
        return self.config.world_size

    @property
    def is_measured(self) -> bool:
        """Whether it has a trial of its own."""
        return self.config == self.record.config


@dataclass(frozen=True)
class ShownSetting:
    """One setting over its numbers of devices, the smallest first."""

    points: tuple[SettingPoint, ...]
    main: SettingPoint  # on the headline's devices, where settings are compared
    waterfall: Waterfall | None  # of its step there


def shown_settings(results: Facts, use: Configuration | None = None) -> tuple[ShownSetting, ...]:
    """The default, ``use`` and the best, the fastest at each further batch, the scaled, then the fastest.

    ``use`` where it was searched or scaled. They stand batch by batch, the default's first. One device is a
    point where it was measured, alone or in the rounds of several.
    """
    headline = results.headline
    if headline is None:
        return ()
    best = results.best.config if results.best else None
    there = sorted(
        results.compared,
        key=lambda record: -results.scaling(record).throughput_samples_per_s.value,
    )
    of_batch = {record.config.setting.batch_size: record.trial_id for record in reversed(there)}

    def rank(record: TrialRecord) -> int:
        if record.trial_id == headline.trial_id:
            return 0
        if record.config in (use, best):
            return 1
        if record.trial_id in of_batch.values():
            return 2
        return 3 if record.request.role == "scaling" else 4

    chosen = sorted(there, key=rank)[:MOST_SETTINGS]
    batches = list(dict.fromkeys(record.config.setting.batch_size for record in chosen))
    chosen.sort(key=lambda record: batches.index(record.config.setting.batch_size))
    return tuple(_setting(results, record) for record in chosen)


def scaled_settings(results: Facts) -> tuple[ShownSetting, ...]:
    """Every setting that was scaled, the default's first; where none was, every one that was searched."""
    by_role = ([each for each in results.compared if each.request.role == role] for role in COMPARED_ROLES)
    scaled = next(filter(None, by_role), [])
    scaled = sorted(scaled, key=lambda record: record is not results.headline)
    return tuple(_setting(results, record) for record in scaled)


def _setting(results: Facts, record: TrialRecord) -> ShownSetting:
    config = record.config
    found = {
        other.config.world_size: SettingPoint(other.config, results.scaling(other), other)
        for other in results.references
        if other.config.same_question(config)
        and (config.world_size > 1 or other.config.setting == config.setting)
        and (
            other.config.world_size == 1
            or other.config.placement == config.placement
            or not isinstance(config.placement, str)  # a list of ranks is of one size
        )
    }
    main = found[config.world_size] = SettingPoint(config, results.scaling(record), record)
    one = main.scaling.one_device
    if one is not None and 1 not in found:
        alone = config.model_copy(update={"setting": config.setting.at(1), "world_size": 1})
        found[1] = SettingPoint(alone, one, record)
    points = tuple(point for _, point in sorted(found.items()))
    return ShownSetting(points, main, results.waterfalls[record.trial_id])
