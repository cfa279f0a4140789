"""Efficiency against the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.answer import answer_of
from raybench.report.sections.scaling import (
    batch_plot,
    draw_batches,
    rounded_batch,
)

pytestmark = pytest.mark.usefixtures("pictures")


def test_batch_values(results: StudyResults) -> None:
    plot = batch_plot(results)
    assert plot is not None
    assert plot.world_size == 2
    assert plot.break_even == 0.5
    assert plot.crossover is not None
    assert 32 < plot.crossover < 128
    assert [point.x for point in plot.lines[0].points] == sorted(point.x for point in plot.lines[0].points)


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


def test_the_title_says_how_many_the_interval_is_of(results: StudyResults) -> None:
    plot = batch_plot(results)
    assert plot is not None
    assert "95% intervals, n" in draw_batches(plot).get_suptitle()
    best = replace(plot, at_once=5)
    assert "95% intervals, 5 settings at a batch, n" in draw_batches(best).get_suptitle()
