"""Efficiency against the batch, and every batch over the devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.answer import answer_of
from raybench.report.sections.scaling import (
    batch_plot,
    batch_scaling_plot,
    draw_batch_scaling,
    draw_batches,
    rounded_batch,
)
from tests.unit.studies import exactly_strong, planted

pytestmark = pytest.mark.usefixtures("pictures")


def test_batch_values(results: StudyResults) -> None:
    plot = batch_plot(results)
    assert plot is not None
    assert plot.world_size == 2
    assert plot.break_even == 0.5
    assert plot.crossover is not None
    assert 32 < plot.crossover < 128
    assert [point.x for point in plot.lines[0].points] == sorted(point.x for point in plot.lines[0].points)


def test_every_batch_has_a_line_from_one_device_and_its_own_ideal(results: StudyResults) -> None:
    plot = batch_scaling_plot(results)
    assert plot is not None
    assert [line.label for line in plot.throughput] == ["batch 32", "batch 128", "batch 512"]
    for line, ideal in zip(plot.throughput, plot.ideal, strict=True):
        assert [point.x for point in line.points] == [1, 2]
        assert line.points[0].estimate.value == ideal
    assert all(line.points[0].estimate.value == 1 for line in plot.speedup)
    assert set(plot.serial_fraction) == {None}  # in weak scaling nothing is serial


def test_amdahl_has_no_curve_through_a_speed_up_below_one() -> None:
    costs = {(128,): exactly_strong(0.8, 0.04), (8,): exactly_strong(0.3)}
    found = planted(costs, "batch_size", scaling={"mode": "strong"})
    plot = batch_scaling_plot(found)
    assert plot is not None
    small, large = plot.serial_fraction
    assert small is None
    assert large == pytest.approx(0.25, rel=0.1)
    _, right = draw_batch_scaling(plot).axes
    broad = [line for line in right.lines if line.get_linewidth() == 3.5]
    assert len(broad) == 1


def test_a_batch_between_two_is_said_in_the_same_words_everywhere(results: StudyResults) -> None:
    plot = batch_plot(results)
    assert plot is not None
    assert plot.crossover is not None
    words = f"about batch {rounded_batch(plot.crossover)}"
    assert words in answer_of(results)
    assert words in draw_batches(plot).get_suptitle()
    assert rounded_batch(104.4) == "100"
    assert rounded_batch(1_849) == "1,800"
    assert rounded_batch(7.4) == "7"


def test_the_title_says_whose_interval_it_is(results: StudyResults) -> None:
    plot = batch_plot(results)
    assert plot is not None
    assert "95% interval of each, n" in draw_batches(plot).get_suptitle()
    best = replace(plot, at_once=5)
    assert "95% interval, 5 a batch at once, n" in draw_batches(best).get_suptitle()
