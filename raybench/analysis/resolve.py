"""A study's records resolved: every setting's figures by one fit, the default, the best.

What every further analysis begins with.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from raybench.analysis import choice
from raybench.analysis.labels import device_word, label
from raybench.analysis.largest_batch import LargestFit, knobs_in_numbers, largest_by_setting, largest_fits_of
from raybench.analysis.objectives import Candidate, is_better
from raybench.analysis.parity import wrong_losses
from raybench.analysis.reference import known_buckets
from raybench.analysis.scaling import Fit, Scaling
from raybench.analysis.stats.pool import MOST_JOINT, Array
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Gain, gain_of
from raybench.analysis.waterfall import Waterfall
from raybench.machine.environment import Environment
from raybench.records.record import TrialRecord
from raybench.records.requests import COMPARED_ROLES, Configuration
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.workloads import ScriptSpec

ALIKE = 0.05  # relative, of batches that are one


@dataclass(frozen=True)
class Facts:
    """What the records of a study say; of records with one id the last counts.

    ``study`` has numbers in the place of ``batch_size = "max"``. ``scalings`` and ``waterfalls`` are by trial
    id, and the same for every visit of a setting.
    """

    study: Study
    everything: tuple[TrialRecord, ...]
    records: tuple[TrialRecord, ...]  # without the probes of ``batch_size = "max"``
    measured: tuple[TrialRecord, ...]  # with step times, every visit: what is complete and no training
    references: tuple[TrialRecord, ...]  # of each setting at a world size and place one, with most beside it
    target_world_size: int
    fit: Fit
    scalings: Mapping[str, Scaling]
    waterfalls: Mapping[str, Waterfall | None]
    headline: TrialRecord | None  # the default at the target, or the nearest to it that is complete
    headline_label: str
    largest: tuple[LargestFit, ...]  # batches that fit, for ``batch_size = "max"``

    @cached_property
    def complete(self) -> tuple[TrialRecord, ...]:
        """The records with numbers."""
        return tuple(record for record in self.records if record.training or record.trial_id in self.scalings)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The records without."""
        return tuple(record for record in self.records if record.state != "complete")

    @property
    def headline_scaling(self) -> Scaling | None:
        """How the headline scales."""
        return self.scaling(self.headline) if self.headline else None

    @property
    def waterfall(self) -> Waterfall | None:
        """Of the headline."""
        return self.waterfalls[self.headline.trial_id] if self.headline else None

    def scaling(self, record: TrialRecord) -> Scaling:
        """How the setting of one of the measured records scales."""
        return self.scalings[record.trial_id]

    def reference_of(self, config: Configuration) -> TrialRecord | None:
        """The trial that stands for a setting there; None where it was neither scaled nor searched."""
        return self._references.get(self.fit.buckets.key(config))

    @cached_property
    def _references(self) -> dict[Hashable, TrialRecord]:
        return {self.fit.buckets.key(record.config): record for record in self.references}

    def label(self, record: TrialRecord) -> str:
        """The record's setting by the knobs and variables that the study explores."""
        return label(self.study, record.config)

    @property
    def device_word(self) -> str:
        """What a report calls one of the study's devices."""
        return device_word(self.headline.config.device if self.headline else "cpu")

    def devices(self, number: int) -> str:
        """So many of them: 2 devices, 2 GPUs."""
        return plural(number, self.device_word)

    @property
    def epoch_samples(self) -> int | None:
        """Samples that an epoch trains on: as training or real input counted them, else as the study asks.

        None where neither says.
        """
        trained = (sum(record.training.epochs[-1].samples) for record in self.records if record.training)
        stepped = (record.steps.epoch_samples or 0 for record in self.records if record.steps)
        of_all = max(stepped, default=0) or None  # a script may give each rank a data set of its own, a part
        asked: int | None = getattr(self.study.workload, "samples", None)
        return next((count for count in (*trained, of_all, asked) if count is not None), None)

    # --- the best

    @property
    def compared_at(self) -> int:
        """The world size whose settings are compared: the headline's, which is the target where it can be."""
        return self.headline.config.world_size if self.headline else self.target_world_size

    @property
    def compared(self) -> tuple[TrialRecord, ...]:
        """Of each setting and placement that was measured there the trial that stands for it."""
        return tuple(each for each in self.references if each.config.world_size == self.compared_at)

    @cached_property
    def rivals(self) -> tuple[TrialRecord, ...]:
        """Those of the headline's placement, which is that of suggestions where the default has it."""
        place = self.headline.config.placement if self.headline else None
        return tuple(each for each in self.compared if each.config.placement == place)

    @cached_property
    def default(self) -> TrialRecord | None:
        """The default among them; None where it has no numbers there."""
        return next((each for each in self.rivals if choice.is_default(self.study, each.config)), None)

    def is_sound(self, record: TrialRecord) -> bool:
        """Whether its setting may be advised: no workers shared cores, its losses are one device's."""
        return not record.config.oversubscribed and wrong_losses(self.fit.visits(record)) is None

    @cached_property
    def sound(self) -> tuple[TrialRecord, ...]:
        """The rivals that may be advised."""
        return tuple(filter(self.is_sound, self.rivals))

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those with a value for each objective; efficiencies are compared over the smallest baseline."""
        able = [(each, self.scaling(each)) for each in self.sound]
        size = min((scaled.baseline.world_size for _, scaled in able if scaled.baseline), default=1)
        return tuple(
            Candidate(each, values)
            for each, scaled in able
            if (values := choice.objective_values(self.study, each, scaled, size)) is not None
        )

    @cached_property
    def chosen(self) -> tuple[Candidate, ...]:
        """The best of them by its expected value, of several objectives the Pareto front."""
        return tuple(choice.winners(self.study, self.candidates, self.fit))

    @property
    def winners(self) -> list[TrialRecord]:
        """What was chosen at the target."""
        return [
            each.record for each in self.chosen if each.record.config.world_size == self.target_world_size
        ]

    @cached_property
    def best(self) -> TrialRecord | None:
        """The best by the first objective of what was chosen; None where there was no choice."""
        places = {(each.config.world_size, each.config.placement) for each in self.rivals}
        tried = {  # failed ones too
            self.fit.buckets.key(each.config)
            for each in self.records
            if each.request.kind == "steps" and each.request.role in COMPARED_ROLES
            if (each.config.world_size, each.config.placement) in places
        }
        winner = choice.first_by(self.chosen, self.study.search.objectives)
        return winner.record if winner is not None and len(tried) > 1 else None

    @cached_property
    def is_best_better(self) -> bool:
        """Whether the best is better than the default by the study's objectives: see ``is_better``."""
        best, default = self.best, self.default
        if best is None or default is None or not any(each.record is default for each in self.candidates):
            return best is not None
        objectives, least = self.study.search.objectives, self.study.search.minimum_gain
        return is_better(best, default, self.candidates, objectives, self.fit, least)

    @cached_property
    def gains(self) -> Mapping[str, Gain]:
        """The throughput of each rival over the default's, by trial id: intervals hold for all at once."""
        default = self.default
        if default is None:
            return {}
        others = [each for each in self.rivals if each is not default]
        ratios = self.fit.rate_ratios([(each, default) for each in others])
        least = self.study.search.minimum_gain
        found = {each.trial_id: gain_of(ratio, least) for each, ratio in zip(others, ratios, strict=True)}
        for each in others:
            if each.config.environment != default.config.environment:  # starts would tell, no visits in them
                found[each.trial_id] = replace(found[each.trial_id], to_tell=None)
        return found

    def gain(self, record: TrialRecord) -> Gain | None:
        """The gain of a record's setting over the default; None where one of them was not measured there."""
        return self.gains.get(self.fit.reference(record).trial_id)

    @cached_property
    def chances(self) -> Mapping[str, float]:
        """With which each setting that may be advised is the fastest of them, by trial id: P(best)."""
        if not 0 < len(self.sound) <= MOST_JOINT:
            return {}
        are_fastest = self._log_rates >= self._log_rates.max(axis=1, keepdims=True)
        return {each.trial_id: float(are_fastest[:, i].mean()) for i, each in enumerate(self.sound)}

    def regret(self, record: TrialRecord) -> Estimate | None:
        """What the fastest of them, whichever that is, has over the record's setting: the mean and 95%.

        None for a setting that may not be advised.
        """
        own = self.fit.reference(record).trial_id
        if own not in self.chances:
            return None
        rates, place = self._log_rates, list(self.chances).index(own)
        lost = np.expm1(rates.max(axis=1) - rates[:, place])
        return Estimate(float(lost.mean()), 0.0, float(np.quantile(lost, 0.95)), len(lost))

    @cached_property
    def _log_rates(self) -> Array:
        """Joint draws of the logarithms of their throughputs, shape ``(draws, records)``."""
        samples = [record.steps.samples_per_step for record in self.sound if record.steps]
        return self.fit.pool.draws([{self.fit.unit(each): -1.0} for each in self.sound]) + np.log(samples)


def resolve(study: Study, records: Sequence[TrialRecord], environment: Environment | None = None) -> Facts:
    """The records with their estimates, whatever their states and however many there are.

    ``environment``: the machine, whose spreads are typical ones where it has shown none.
    """
    everything = tuple({record.trial_id: record for record in records}.values())
    study, everything = _as_counted(study, everything)
    study, largest = _in_numbers(study, everything)
    measured = [record for record in everything if record.steps is not None]
    asked = [record for record in everything if record.request.kind == "steps"]
    target = choice.target_world_size(study, (record.config.world_size for record in asked))
    buckets = known_buckets(study, measured)
    fit = Fit(measured, buckets, environment.spreads if environment else None)
    references = [
        record
        for record in measured
        if record.request.role in COMPARED_ROLES and fit.reference(record) is record
    ]
    figures = {record.trial_id: fit.figures(record) for record in measured}
    headline = choice.headline(study, references, target)
    return Facts(
        study=study,
        everything=everything,
        records=tuple(record for record in everything if record.request.kind != "probe"),
        measured=tuple(measured),
        references=tuple(references),
        target_world_size=target,
        fit=fit,
        scalings={trial_id: scaled for trial_id, (scaled, _) in figures.items()},
        waterfalls={trial_id: divided for trial_id, (_, divided) in figures.items()},
        headline=headline,
        headline_label=label(study, headline.config) if headline else "",
        largest=largest,
    )


def _as_counted(study: Study, records: Sequence[TrialRecord]) -> tuple[Study, tuple[TrialRecord, ...]]:
    """Of a script that takes no batch size from the study: with the one that it was seen to have.

    Strong scaling where that of all devices stays the same and that of each does not. Its precision is its
    own too.
    """
    script = study.workload
    if not isinstance(script, ScriptSpec):
        return study, tuple(records)
    counted = {record.config.world_size: record.steps for record in records if record.steps is not None}
    batches, mode = dict[int, int](), study.scaling.mode
    if counted and not {"batch_size", "global_batch_size"} & {*script.placeholders}:
        per_device = {size: counted[size].batch_size for size in sorted(counted)}
        of_all = {size: counted[size].global_batch_size for size in sorted(counted)}
        is_strong = not _are_alike(per_device.values()) and _are_alike(of_all.values())
        batches, mode = (of_all, "strong") if is_strong else (per_device, "weak")
        if _are_alike(batches.values()):
            batches = dict.fromkeys(batches, next(iter(batches.values())))
    precision = {} if "precision" in script.placeholders else {"precision": "default"}

    def as_seen(record: TrialRecord) -> TrialRecord:
        config, usual = record.config, next(iter(batches.values()), record.config.setting.batch_size)
        knobs = {"batch_size": batches.get(config.world_size, usual), **precision}
        setting = config.setting.model_copy(update=knobs)
        seen = config.model_copy(update={"setting": setting, "scaling": mode})
        return record.model_copy(update={"request": record.request.model_copy(update={"config": seen})})

    listed: dict[str, Any] = {name: (value,) for name, value in precision.items()}
    if batches:
        listed["batch_size"] = (batches[max(batches)],)
    scaling = study.scaling.model_copy(update={"mode": mode})
    knobs = study.knobs.model_copy(update=listed)
    return study.model_copy(update={"scaling": scaling, "knobs": knobs}), tuple(map(as_seen, records))


def _are_alike(batches: Collection[int]) -> bool:
    """But for what is left where samples do not divide evenly."""
    return max(batches) - min(batches) <= ALIKE * max(batches)


def _in_numbers(study: Study, records: Sequence[TrialRecord]) -> tuple[Study, tuple[LargestFit, ...]]:
    """The study with the batches that its probes found in the place of "max", and what they say."""
    if not study.knobs.has_max:
        return study, ()
    asked, device = study.scaling.world_sizes, study.resources.device
    sizes = [record.config.world_size for record in records] if asked == "all" else list(asked)
    found = tuple(largest_fits_of(study, records, sizes))
    target = choice.target_world_size(study, sizes)
    largest = largest_by_setting(found, study, sizes or [1], target, device)
    knobs = knobs_in_numbers(study.knobs, largest, found, device)
    return study.model_copy(update={"knobs": knobs}), found
