"""What a suggestion is worth by the rounds that it shared with the study's default."""

from __future__ import annotations

from raybench.analysis import choice
from raybench.analysis.stats.rounds import level, paired, series, step_series
from raybench.records.record import TrialRecord
from raybench.spec.study import Objective, Study


def objective_values(
    study: Study, record: TrialRecord, default: TrialRecord | None
) -> tuple[float, ...] | None:
    """The record's value for each objective of ``study``; None where it lacks one.

    Speed is its ratio to the anchor in the same rounds, times the speed of ``default``: what differs between
    trials is in neither. Where one of the two is missing it is the record's own.
    """
    values = choice.objective_values(study, record)
    if values is None:
        return None
    factor = _correction(record, default)
    of_factor: dict[Objective, float] = {"throughput": factor, "cost_per_sample": 1 / factor}
    objectives = study.search.objectives
    return tuple(value * of_factor.get(name, 1.0) for name, value in zip(objectives, values, strict=True))


def _correction(record: TrialRecord, default: TrialRecord | None) -> float:
    """Its rate by the default's rate and the rounds that it shared with the anchor, over its own rate."""
    steps, reference = record.steps, default.steps if default is not None else None
    if steps is None or reference is None or not steps.anchor_samples_per_step:
        return 1.0
    anchor, own, default_s = series(steps, "anchor"), series(steps, "ddp"), step_series(reference)
    ratios = None if anchor is None or own is None else paired(anchor, own)
    if ratios is None or own is None or default_s is None:
        return 1.0
    anchor_s = level(ratios).value * level(own).value
    return anchor_s / steps.anchor_samples_per_step * reference.samples_per_step / level(default_s).value
