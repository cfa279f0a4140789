"""Accuracy, loss and epoch times of training trials: the values that the plots show."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.sections.training import (
    draw_epoch_times,
    draw_training,
    epoch_time_plot,
    training_plot,
)

pytestmark = pytest.mark.usefixtures("pictures")


def test_a_line_for_each_number_of_devices(trained_results: StudyResults) -> None:
    plot = training_plot(trained_results)
    assert plot is not None
    assert trained_results.training is not None
    assert [line.label for line in plot.accuracy] == ["1 device", "2 devices, ddp"]
    assert [point.x for point in plot.loss[0].points] == [1, 2, 3, 4]
    for line, group in zip(plot.accuracy, trained_results.training.groups, strict=True):
        assert [point.estimate for point in line.points] == [means.test_accuracy for means in group.epochs]
    assert (plot.seeds, plot.target) == ((3, 3), 0.7)
    assert "n = 3 seeds" in draw_training(plot).get_suptitle()


def test_epoch_times_start_on_one_device(trained_results: StudyResults) -> None:
    plot = epoch_time_plot(trained_results)
    assert plot is not None
    assert [[point.x for point in line.points] for line in plot.lines] == [[1, 2]]
    assert plot.ideal[1][1] == plot.ideal[0][1] / 2
    assert draw_epoch_times(plot).axes[0].get_ylabel() == "training time of an epoch (s)"
