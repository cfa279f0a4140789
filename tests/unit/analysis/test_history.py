"""What a machine has shown of its spreads: what the next study begins with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from raybench.analysis.history import known_spreads, shown
from raybench.analysis.resolve import resolve
from raybench.analysis.stats.pool import TYPICAL
from tests.support.planted import QUIET, FakeRunner
from tests.unit.studies import grid, study

MACHINE = {"device": "cpu", "name": "a CPU", "cores": 2, "nodes": 0}
START, TYPICALLY = 0.02, TYPICAL["cpu"]


def run(step_s: float, **more: Any) -> dict[str, Any]:
    found = {"machine": MACHINE, "trials": 9, "spreads": {"trial": 0.03, "unit": 0.01}, "default": "one"}
    return found | {"starts": 1, "step_time_s": step_s, "efficiency": 0.8} | more


def start_of(runs: list[dict[str, Any]]) -> float:
    known = known_spreads(MACHINE, runs)
    assert known is not None
    return known.start


def drawn(number: int, starts: int = 1) -> np.ndarray[Any, Any]:
    """Of runs that differ by ``START``; of each the mean of so many starts."""
    return 0.1 * np.exp(np.random.default_rng(4).normal(0.0, START / math.sqrt(starts), number))


def test_starts_are_what_runs_of_one_study_differ_by() -> None:
    assert start_of([run(step_s) for step_s in drawn(400)]) == pytest.approx(START, rel=0.2)
    assert start_of([run(0.1)]) == start_of([run(0.1), run(0.05)]) == TYPICALLY.start
    assert start_of([run(step_s, default=str(step_s)) for step_s in drawn(400)]) == TYPICALLY.start


def test_what_the_user_made_faster_is_no_spread() -> None:
    times = drawn(40)
    times[10:] *= 0.5
    times[30:] *= 0.7
    assert start_of([run(step_s) for step_s in times]) < 2 * START  # a standard deviation of 29% in all


def test_a_run_of_several_starts_says_more_of_one() -> None:
    runs = [run(step_s, starts=5) for step_s in drawn(400, 5)]
    assert start_of(runs) == pytest.approx(START, rel=0.2)


def test_the_efficiency_of_one_device_is_known_beforehand() -> None:
    spec = study(knobs={"batch_size": [32]})
    alone, two = (
        shown(resolve(spec, grid(spec, sizes, FakeRunner(noise=QUIET))[0]), MACHINE)
        for sizes in ((1,), (1, 2))
    )
    assert alone["efficiency"] is None
    assert 0 < two["efficiency"] < 1
    known = known_spreads(MACHINE, [run(0.1, efficiency=None)] * 9)
    assert known is not None
    assert known.start_unit == pytest.approx(TYPICALLY.start_unit)


def test_too_few_trials_and_other_machines_say_nothing() -> None:
    assert known_spreads(MACHINE, [run(0.1, trials=3), run(0.1, machine=MACHINE | {"cores": 4})]) is None
