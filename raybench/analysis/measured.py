"""A study's records, each trial estimated once: what every further analysis begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from raybench.analysis import choice
from raybench.analysis.curves import BatchCurve, Curve, batch_curves, curves
from raybench.analysis.estimates.efficiency import Scaling, scaling
from raybench.analysis.estimates.repeated import estimates_of_many, one_of_starts, starts_of
from raybench.analysis.estimates.waterfall import Waterfall
from raybench.analysis.labels import label
from raybench.analysis.largest_batch import LargestFit, knobs_in_numbers, largest_by_setting, largest_fits_of
from raybench.analysis.same_setting import Related, of_first_role
from raybench.records.record import TrialRecord
from raybench.records.requests import Role
from raybench.spec.study import Study


@dataclass(frozen=True)
class MeasuredStudy:
    """Records with one id count once, the last of them. ``scalings`` and ``waterfalls`` are by trial id.

    ``study`` has numbers in the place of ``batch_size = "max"``. The probes that found them are not among
    ``records``. Of a trial that was repeated in several starts of the workers one record is ``measured``: its
    estimates are over all starts.
    """

    study: Study
    records: tuple[TrialRecord, ...]  # of every start
    measured: tuple[TrialRecord, ...]  # with step times: what is complete and no training
    target_world_size: int
    scalings: dict[str, Scaling]  # of each of ``measured``
    waterfalls: dict[str, Waterfall | None]
    curves: tuple[Curve, ...]
    batch_curves: tuple[BatchCurve, ...]  # the first is the one to speak of
    headline: TrialRecord | None  # the default at the target, or the nearest to it that is complete
    headline_label: str
    largest: tuple[LargestFit, ...]  # batches that fit, for ``batch_size = "max"``

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        """The records with numbers, of a repeated trial one."""
        return tuple(record for record in self.records if record.training or record.trial_id in self.scalings)

    @property
    def tried(self) -> tuple[TrialRecord, ...]:
        """Those of the measured that a curve or a search asked for: what settings are compared by."""
        return tuple(record for record in self.measured if record.request.role in choice.COMPARED_ROLES)

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
        """How one of the measured records scales."""
        return self.scalings[record.trial_id]

    def starts(self, record: TrialRecord) -> tuple[TrialRecord, ...]:
        """The complete records of one of the measured, one for each start of the workers."""
        return starts_of(record, self.related.of(record))

    @cached_property
    def related(self) -> Related:
        """Which records bear on which."""
        return Related(self.records)

    def by_start(self, record: TrialRecord) -> list[Scaling]:
        """How one of the measured scales in each of its starts."""
        return [scaling(each, self.related.of(each)) for each in self.starts(record)]

    def label(self, record: TrialRecord) -> str:
        """The record's setting by the knobs and variables that the study explores."""
        return label(self.study, record.config)

    def by_role(self, *roles: Role) -> tuple[TrialRecord, ...]:
        """The measured records of the first of these roles of which there are any."""
        return of_first_role(self.measured, *roles)

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
    headline = choice.headline(study, measured, target)
    scalings, waterfalls = estimates_of_many(measured, Related(everything))
    return MeasuredStudy(
        study=study,
        records=tuple(record for record in everything if record.request.kind != "probe"),
        measured=tuple(measured),
        target_world_size=target,
        scalings=scalings,
        waterfalls=waterfalls,
        curves=tuple(curves(study, measured, scalings)),
        batch_curves=tuple(batch_curves(study, measured, scalings, headline)),
        headline=headline,
        headline_label=label(study, headline.config) if headline else "",
        largest=largest,
    )


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
