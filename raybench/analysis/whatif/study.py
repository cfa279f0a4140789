"""What if, of a study: which trial is asked, and which buckets it would have chosen by that one alone."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis import choice
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.whatif.buckets import BucketCap
from raybench.analysis.whatif.changes import Change
from raybench.analysis.whatif.predictions import Predicted, WhatIf, can_be_asked, what_if
from raybench.records.record import TrialRecord
from raybench.spec.study import Study

USUAL_CAPS: tuple[BucketCap, ...] = ("default", 1.0, 5.0, 25.0, 100.0)  # where a study has one


@dataclass(frozen=True)
class BucketChoice:
    """The buckets that one trial of the default says are best, none of the others measured."""

    found: WhatIf  # a point for each of the buckets, the trial's own among them

    @property
    def best(self) -> Predicted:
        """The fastest as predicted; the trial's own where no other is faster by more than is unsure."""
        own = next(each for each in self.found.points if each.setting == self.found.record.config.setting)
        first = min(self.found.points, key=lambda each: each.step_time_s.value)
        return first if first.gain.low > 0 else own

    @property
    def is_own(self) -> bool:
        """Whether nothing is to be changed."""
        return self.best.setting == self.found.record.config.setting

    @property
    def first(self) -> Predicted:
        """The fastest as predicted, however unsure."""
        return min(self.found.points, key=lambda each: each.step_time_s.value)


def trial_to_ask(results: MeasuredStudy) -> TrialRecord | None:
    """The headline, else of the trials that can be predicted from one of the most devices; None without."""
    headline = results.headline
    if headline is not None and can_be_asked(headline):
        return headline
    able = [record for record in results.measured if can_be_asked(record)]
    return max(able, key=lambda record: record.config.world_size, default=None)


def bucket_choice(
    study: Study, record: TrialRecord, measured: tuple[TrialRecord, ...] = ()
) -> BucketChoice | None:
    """What ``record``, a trial of the default, says of the study's buckets; None where it says nothing.

    ``measured`` is looked at only for what stands beside the predictions.
    """
    if not can_be_asked(record) or not choice.is_default(study, record.config):
        return None
    explored = study.knobs.explored().get("bucket_cap_mb")
    caps = [record.config.setting.bucket_cap_mb, *(explored or USUAL_CAPS)]
    changes = [Change(bucket_cap_mb=cap) for cap in dict.fromkeys(caps)]
    found = what_if(record, changes, measured=measured)
    return None if found is None else BucketChoice(found)


def study_what_if(results: MeasuredStudy) -> BucketChoice | None:
    """What the first trial of the default that was taken apart says, at the target world size."""
    for record in (*results.tried, *results.measured):  # first by the trial whose figures the report has
        if record.config.world_size == results.target_world_size:
            found = bucket_choice(results.study, record, results.measured)
            if found is not None:
                return found
    return None
