"""From how much compute on communication is hidden."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.overlap import HIDDEN, passage
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, run_all
from tests.unit.studies import exactly, planted, request, study


def test_compute_that_hides_communication_is_interpolated() -> None:
    # exposed: 10% of the step at 10 ms of compute, 2% at 40 ms
    found = planted({(32,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size")
    (each,) = found.overlaps.shown
    assert each.measure == "communication"
    assert each.compute_s == pytest.approx(0.010 * 4**0.625)
    assert (each.below and each.below.batch_size, each.above and each.above.batch_size) == (32, 128)


def test_hiding_that_is_not_reached_or_always_there_says_so() -> None:
    (never,) = planted({(32,): exactly(0.5), (128,): exactly(0.8, 0.04)}, "batch_size").overlaps.shown
    assert never.compute_s is None
    (always,) = planted({(32,): exactly(0.97), (128,): exactly(0.99, 0.04)}, "batch_size").overlaps.shown
    assert always.compute_s is None
    assert max(point.fraction.value for point in always.points) <= HIDDEN


def test_places_side_by_side_are_named() -> None:
    """As pack and spread were rows of one name, each with a sentence of its own."""
    spec = study(knobs={"batch_size": [32, 128]}, scaling={"placement": ["pack", "spread"]})
    requests = [
        request(world_size=size, placement=place, setting=Setting(batch_size=batch))
        for batch in (32, 128)
        for size, place in ((1, "pack"), (2, "pack"), (2, "spread"))
    ]
    found = analyse(spec, run_all(FakeRunner(noise=QUIET), requests)[0])
    assert [each.label for each in found.overlaps.shown] == ["pack", "spread"]
    assert [each.compute_s for each in found.overlaps.shown] == [None, None]


def test_the_last_passage_counts() -> None:
    assert passage([(1, 0.04), (2, 0.06), (4, 0.02)]) == (pytest.approx(2 * 2**0.25), 1)
    assert passage([(1, 0.02), (2, 0.06)]) is None
