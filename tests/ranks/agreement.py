"""When what was measured agrees with what was planted, and when it may be measured once more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import TypeVar

import pytest

from raybench.analysis.scaling import Fit
from raybench.analysis.stats.statistics import Estimate, num_trimmed, t_quantile
from raybench.machine.environment import Spreads
from raybench.records.record import TrialRecord
from raybench.records.results import StepsResult
from tests.conftest import BUSY

Found = TypeVar("Found")

STANDARD_ERRORS = 4.5
MUCH = 0.1  # of a core, by others: too much to measure exactly beside
NAMED = 0.03  # of a core, from which on a finding may say so: 2% of two are enough for it


# What one trial has of its own is in the clocks that it is held against: errors are of its rounds alone.
ROUNDS_ALONE = Spreads(1e-6, 1e-6, 1e-6, 1e-6)


def by_rounds(record: TrialRecord) -> Fit:
    """One trial by itself, with the errors of its rounds."""
    return Fit([record], known=ROUNDS_ALONE, is_certain=True)


def standard_error(estimate: Estimate) -> float:
    """That of an estimate whose 95% interval is Student's over its rounds, or of the pool normal."""
    if estimate.again is not None:
        return estimate.half_width / t_quantile(math.inf)
    degrees = estimate.n - 2 * num_trimmed(estimate.n) - 1
    return estimate.half_width / t_quantile(degrees)


def agrees(name: str, estimate: Estimate | None, planted: float, *, floor: float, most_error: float) -> None:
    """Assert that the two differ by at most ``floor`` and 4.5 standard errors, once.

    ``most_error``: the standard error up to which that means something.
    """
    assert estimate is not None, f"{name} was not found at all"
    error = standard_error(estimate)
    words = f"{name}: planted {planted:.5f}, found {estimate.value:.5f}, standard error {error:.5f}"
    print(f"{words}, floor {floor:.5f}")
    assert error <= most_error, f"{words}: larger than {most_error:.5f}, which shows nothing"
    assert abs(estimate.value - planted) <= floor + STANDARD_ERRORS * error, words


def ratios_agree(one: Estimate, other: Estimate, *, floor: float, most_error: float) -> None:
    """Assert the same of two ratios that were measured, relative, with the standard errors of both."""
    error = math.hypot(standard_error(one) / one.value, standard_error(other) / other.value)
    words = f"{one.value:.3f} and {other.value:.3f}, relative standard error {error:.3f}"
    print(words)
    assert error <= most_error, f"{words}: larger than {most_error:.3f}, which shows nothing"
    assert abs(math.log(one.value / other.value)) <= floor + STANDARD_ERRORS * error, words


def others_took(steps: StepsResult) -> float:
    """Cores' worth of time that others took, by the record: the mean over rounds, of the host with most."""
    of_rounds = [[each for each in round_.other_cores if each is not None] for round_ in steps.rounds]
    return fmean(max(of_hosts, default=0.0) for of_hosts in of_rounds)


def may_name_others(steps: StepsResult) -> bool:
    """Whether a finding about other processes has a reason in the record."""
    return others_took(steps) > NAMED


class Lazily(dict[str, Found]):
    """What is measured when it is first asked for: so a busy machine skips the tests of one case alone."""

    def __init__(self, measure: Callable[[str], Found], known: Mapping[str, Found] | None = None) -> None:
        """``known``: what was measured before."""
        super().__init__(known or {})
        self._measure = measure
        self._skipped = dict[str, str]()  # and why: nor is that measured again

    def __missing__(self, name: str) -> Found:
        if name in self._skipped:
            pytest.skip(self._skipped[name])
        try:
            found = self[name] = self._measure(name)
        except pytest.skip.Exception as skipped:
            self._skipped[name] = str(skipped)
            raise
        return found


def measured_undisturbed(measure: Callable[[], Found], steps_of: Callable[[Found], StepsResult]) -> Found:
    """What ``measure`` brings; where its own record says that others took cores, what it brings then.

    Once more at most, and before anybody has looked at a figure. Where others take cores again the test is
    skipped: beside them nothing here is exact, whatever raybench does.
    """
    for words in ("measured once more", "measured twice"):
        found = measure()
        if (took := others_took(steps_of(found))) <= MUCH:
            return found
        print(f"{words}: others took {took:.2f} of the cores")
    pytest.skip(f"{BUSY}: others took {took:.2f} of its cores when it was measured, and again")
