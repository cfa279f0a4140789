"""Are a trial's rounds steady? Their noise, rounds apart from the rest, and drift."""

from __future__ import annotations

import math

import numpy as np

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.estimates.rounds import step_series
from raybench.analysis.estimates.statistics import TRIM
from raybench.analysis.estimates.stopping import asked_half_width, reached_half_width
from raybench.analysis.estimates.trends import mann_kendall, outlier_rounds, theil_sen

DRIFT_SIGNIFICANCE = 0.01
DRIFT_LEAST = 0.02  # relative, from the first round to the last


def noisy(case: Case) -> Finding | None:
    """The asked half-width was not reached in time; says how long it would take."""
    record, measurement = case.record, case.steps
    if measurement.stopped_by != "max_seconds":
        return None
    reached, request = reached_half_width(measurement.rounds), record.request
    assert request.kind == "steps"  # it has a measurement of steps
    asked = asked_half_width(request.measure, request.config.device)
    if reached is None or reached <= asked:
        return None
    num_rounds = len(measurement.rounds)
    needed_s = measurement.measure_s * (reached / asked) ** 2
    return Finding(
        FindingName.NOISY_MEASUREMENT,
        Severity.WARNING,
        record.trial_id,
        f"the half-width is {reached:.1%} after {num_rounds} rounds in {measurement.measure_s:.0f} s, "
        f"{asked:.1%} was asked",
        f"it shrinks with the square root of time: --set measure.max_seconds={_rounded_up(needed_s)}, or a "
        "quieter machine",
        {
            "half_width_ratio": reached,
            "asked_ratio": asked,
            "needed_s": needed_s,
            "rounds": num_rounds,
        },
    )


def outlying(case: Case) -> Finding | None:
    """Rounds apart from the rest: a note while the trimmed mean leaves them all out."""
    record, measurement = case.record, case.steps
    values = step_series(measurement)
    if values is None:
        return None
    outliers, num_rounds = outlier_rounds(values), len(measurement.rounds)
    if not len(outliers):
        return None
    furthest = outliers[np.argmax(np.abs(np.log(values[outliers] / np.nanmedian(values))))]
    worst = float(values[furthest] / np.nanmedian(values))
    too_many = len(outliers) > 2 * TRIM * num_rounds
    return Finding(
        FindingName.OUTLIER_ROUNDS,
        Severity.WARNING if too_many else Severity.NOTE,
        record.trial_id,
        f"{len(outliers)} of {num_rounds} rounds lie apart from the rest (rounds "
        f"{', '.join(str(int(index)) for index in outliers[:8])}{', ...' if len(outliers) > 8 else ''}); "
        f"the furthest took {worst:.2f} times the median",
        "something else used the machine: stop it and measure again"
        if too_many
        else "the trimmed mean leaves them out: nothing to do",
        {"rounds": num_rounds, "outliers": len(outliers), "worst_ratio": worst},
    )


def drifting(case: Case) -> Finding | None:
    """The step time rises or falls over the rounds, significantly and by 2% at least."""
    record, measurement = case.record, case.steps
    values = step_series(measurement)
    if values is None:
        return None
    measured = np.isfinite(values)
    at_s = np.array([each.at_s for each in measurement.rounds])[measured]
    logs = np.log(values[measured])
    significance = mann_kendall(logs)
    total = math.expm1(theil_sen(at_s, logs) * float(at_s[-1] - at_s[0]))
    if significance >= DRIFT_SIGNIFICANCE or abs(total) < DRIFT_LEAST:
        return None
    return Finding(
        FindingName.DRIFT,
        Severity.NOTE,
        record.trial_id,
        f"the step time changed by {total:+.1%} over {at_s[-1] - at_s[0]:.1f} s ({len(logs)} rounds, "
        f"Theil-Sen; Mann-Kendall p = {significance:.1g})",
        "efficiency is made of ratios within rounds, in which drift cancels; for the step time itself, warm "
        "up longer (measure.warmup_steps) or look at clocks and temperature",
        {"change_ratio": total, "significance": significance, "rounds": len(logs)},
    )


def _rounded_up(seconds: float) -> int:
    digits: int = 10 ** max(len(str(int(seconds))) - 2, 0)
    return int(math.ceil(seconds / digits) * digits)
