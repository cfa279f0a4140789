"""A study's records, each trial estimated once: what every further analysis begins with."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from raybench.analysis import choice
from raybench.analysis.curves import BatchCurve, Curve, batch_curves, curves
from raybench.analysis.labels import label
from raybench.analysis.largest_batch import LargestFit, knobs_in_numbers, largest_by_setting, largest_fits_of
from raybench.analysis.reference import (
    KnownBuckets,
    Related,
    confirmed_rates,
    in_whose_rounds,
    known_buckets,
    of_first_role,
    one_of_equal,
    references,
)
from raybench.analysis.stats.efficiency import Scaling, one_device, scaling
from raybench.analysis.stats.repeated import (
    one_of_starts,
    scaling_over_starts,
    starts_of,
    times_before,
    waterfall_over_starts,
    without_superseded,
)
from raybench.analysis.stats.waterfall import Waterfall
from raybench.records.record import TrialRecord
from raybench.records.requests import COMPARED_ROLES, Configuration, Role
from raybench.spec.study import Study

SEEN_APART = 0.05  # relative: two speed-ups so far apart are two to a reader


@dataclass(frozen=True)
class MeasuredStudy:
    """Records with one id count once, the last of them. ``scalings`` and ``waterfalls`` are by trial id.

    ``study`` has numbers in the place of ``batch_size = "max"``. The probes that found them are not among
    ``records``. Of a trial that was repeated in several starts of the workers one record is ``measured``: its
    estimates are over all starts. Of a setting that was measured more than once one of the ``measured`` is
    ``tried``: which, ``raybench.analysis.reference`` says.
    """

    study: Study
    records: tuple[TrialRecord, ...]  # of every start
    measured: tuple[TrialRecord, ...]  # with step times: what is complete and no training
    tried: tuple[TrialRecord, ...]  # by which settings are compared: one of the curve or a search for each
    target_world_size: int
    own_scalings: dict[str, Scaling]  # of each of ``measured``, in its own rounds
    scalings: dict[str, Scaling]  # the same, but of a setting that was confirmed as the confirmation has it
    waterfalls: dict[str, Waterfall | None]
    reported: Mapping[str, Scaling]  # the same as ``scalings``, but of one device in the rounds of several
    reported_by: Mapping[str, str]  # of each of which another trial tells: which one does
    buckets: KnownBuckets
    curves: tuple[Curve, ...]
    batch_curves: tuple[BatchCurve, ...]  # the first is the one to speak of
    headline: TrialRecord | None  # the default at the target, or the nearest to it that is complete
    headline_label: str
    largest: tuple[LargestFit, ...]  # batches that fit, for ``batch_size = "max"``

    @cached_property
    def complete(self) -> tuple[TrialRecord, ...]:
        """The records with numbers, of a repeated trial one."""
        return tuple(record for record in self.records if record.training or record.trial_id in self.scalings)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The records without, of every start."""
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
        """How the setting of one of the measured records scales, by the trials that speak for it."""
        return self.scalings[record.trial_id]

    @cached_property
    def bases(self) -> Mapping[str, Scaling]:
        """The one device over which the speed-up of each trial is told, by trial id; not of all."""
        every = ((each, one_device(each, self.reported[each.trial_id])) for each in self.measured)
        return {record.trial_id: base for record, base in every if base is not None}

    @cached_property
    def bases_apart(self) -> frozenset[str]:
        """Trials whose base is far from what is told of the trial on one device, or that have none.

        Other rounds may have been faster or slower: who divides their rates would find another speed-up.
        """
        told = dict[Hashable, float]()
        for one in self.tried:
            if one.config.world_size == 1:
                question = one.config.key(1, one.config.ANY_SIZE)
                told[question] = self.reported[one.trial_id].throughput_samples_per_s.value
        found = set[str]()
        for record in self.tried:
            base = self.bases.get(record.trial_id)
            rate = told.get(record.config.key(1, record.config.ANY_SIZE))
            if base and not (rate and abs(rate / base.throughput_samples_per_s.value - 1) < SEEN_APART):
                found.add(record.trial_id)
        return frozenset(found)

    def reference(self, record: TrialRecord) -> TrialRecord:
        """The trial whose figures stand for the record's setting there; itself where there is no other."""
        return self.reference_of(record.config) or record

    def reference_of(self, config: Configuration) -> TrialRecord | None:
        """The same of a setting; None where no curve and no search has it."""
        return self._references.get(self.buckets.key(config))

    @cached_property
    def _references(self) -> dict[Hashable, TrialRecord]:
        return {self.buckets.key(record.config): record for record in self.tried}

    @cached_property
    def superseded(self) -> dict[str, Scaling]:
        """How trials scaled that were measured again, each by itself; by trial id."""
        kept = {record.trial_id for record in self.measured}
        again = {times_before(record) for record in self.records if record.steps} - {0}
        return {
            record.trial_id: scaling(record)
            for record in self.records
            if again and record.steps is not None and record.trial_id not in kept and _is_first_start(record)
        }

    def starts(self, record: TrialRecord) -> tuple[TrialRecord, ...]:
        """The complete records of one of the measured, one for each start of the workers."""
        return starts_of(record, self.related.of(record))

    @cached_property
    def related(self) -> Related:
        """Which records bear on which."""
        return Related(without_superseded(self.records))

    def by_start(self, record: TrialRecord) -> list[Scaling]:
        """How one of the measured scales in each of its starts."""
        return [scaling(each, self.related.of(each)) for each in self.starts(record)]

    def label(self, record: TrialRecord) -> str:
        """The record's setting by the knobs and variables that the study explores."""
        return label(self.study, record.config)

    def by_role(self, *roles: Role) -> tuple[TrialRecord, ...]:
        """The measured records of the first of these roles of which there are any; of settings alike one."""
        return tuple(one_of_equal(of_first_role(self.measured, *roles), self.buckets))

    @property
    def epoch_samples(self) -> int | None:
        """Samples that an epoch trains on: as training or real input counted them, else as the study asks.

        None where neither says.
        """
        trained = (sum(record.training.epochs[-1].samples) for record in self.records if record.training)
        stepped = (record.steps.epoch_samples for record in self.records if record.steps)
        asked: int | None = getattr(self.study.workload, "samples", None)
        return next((count for count in (*trained, *stepped, asked) if count is not None), None)


def measured_study(study: Study, records: Sequence[TrialRecord]) -> MeasuredStudy:
    """The records with their estimates, whatever their states and however many there are."""
    everything = tuple({record.trial_id: record for record in records}.values())
    study, largest = _in_numbers(study, everything)
    trials = one_of_starts(everything)
    measured = [record for record in trials if record.steps is not None]
    asked = [record for record in everything if record.request.kind == "steps"]
    target = choice.target_world_size(study, (record.config.world_size for record in asked))
    buckets = known_buckets(study, measured)
    compared = [record for record in measured if record.request.role in COMPARED_ROLES]
    tried = references(compared, buckets)
    headline = choice.headline(study, tried, target)
    related = Related(without_superseded(everything))
    own = {each.trial_id: scaling_over_starts(each, related.of(each)) for each in measured}
    waterfalls = {each.trial_id: waterfall_over_starts(each, related.of(each)) for each in measured}
    confirmed = confirmed_rates(tried, measured, own, buckets)
    scalings = own | {trial_id: found for trial_id, (_, found) in confirmed.items()}
    found_curves = curves(study, tried, scalings)
    of_one = _of_one_device(found_curves, tried, scalings)
    return MeasuredStudy(
        study=study,
        records=tuple(record for record in everything if record.request.kind != "probe"),
        measured=tuple(measured),
        tried=tuple(tried),
        target_world_size=target,
        own_scalings=own,
        scalings=scalings,
        waterfalls=waterfalls,
        reported=scalings | {trial_id: found for trial_id, (_, found) in of_one.items()},
        reported_by={trial_id: record.trial_id for trial_id, (record, _) in (confirmed | of_one).items()},
        buckets=buckets,
        curves=tuple(found_curves),
        batch_curves=tuple(batch_curves(study, tried, scalings, headline)),
        headline=headline,
        headline_label=label(study, headline.config) if headline else "",
        largest=largest,
    )


def _of_one_device(
    found: Sequence[Curve], tried: Sequence[TrialRecord], scalings: Mapping[str, Scaling]
) -> dict[str, tuple[TrialRecord, Scaling]]:
    """Of each trial on one device in whose rounds, and how, the first curve that it is on has it."""
    by_id, told = {record.trial_id: record for record in tried}, dict[str, tuple[TrialRecord, Scaling]]()
    for curve in found:
        one, largest = (by_id[curve.points[end].trial_id] for end in (0, -1))
        if one.config.world_size == 1 < largest.config.world_size:
            told.setdefault(one.trial_id, in_whose_rounds(one, largest, scalings))
    return told


def _is_first_start(record: TrialRecord) -> bool:
    return record.request.kind == "steps" and record.request.start == 0


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
