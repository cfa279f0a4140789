"""Accuracy, loss and time of training trials over the epochs."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.sections.training import ACCURACY, LOSS, draw_training, training_plot

pytestmark = pytest.mark.usefixtures("pictures")


def test_a_line_for_each_number_of_devices(trained_results: StudyResults) -> None:
    plot = training_plot(trained_results)
    assert plot is not None
    assert trained_results.training is not None
    panels = {name: lines for name, _, lines in plot.panels}
    assert list(panels) == [ACCURACY, LOSS]
    assert [line.label for line in panels[ACCURACY]] == ["1 device", "2 devices, ddp"]
    assert [point.x for point in panels[LOSS][0].points] == [1, 2, 3, 4]
    for line, group in zip(panels[ACCURACY], trained_results.training.groups, strict=True):
        assert [point.estimate for point in line.points] == [means.test_accuracy for means in group.epochs]
    for line, group in zip(panels[LOSS], trained_results.training.groups, strict=True):
        assert [point.estimate for point in line.points] == [means.test_loss for means in group.epochs]
    assert plot.target == 0.7
    assert "n = 3 seeds" in draw_training(plot).get_suptitle()


def test_the_title_says_what_more_devices_bring(trained_results: StudyResults) -> None:
    plot = training_plot(trained_results)
    assert plot is not None
    assert trained_results.training is not None
    (found,) = trained_results.training.comparisons
    assert found.epoch_speedup is not None
    assert f"{found.epoch_speedup.value:.2f} times as fast as one" in plot.title
    assert f"{found.group.final_accuracy.value:.1%} accuracy against" in plot.title
