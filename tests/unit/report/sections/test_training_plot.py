"""Accuracy, loss and time of training trials over the epochs."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.sections.training import ACCURACY, LOSS, draw_training

pytestmark = pytest.mark.usefixtures("pictures")


def test_a_line_for_each_number_of_devices(trained_results: StudyResults) -> None:
    figure, training = draw_training(trained_results), trained_results.training
    assert figure is not None
    assert training is not None
    assert [axes.get_ylabel() for axes in figure.axes] == [ACCURACY, LOSS]
    accuracy, loss = (axes.containers for axes in figure.axes)
    assert [line.get_label() for line in accuracy] == ["1 device", "2 devices, ddp"]
    for line, group in zip(accuracy, training.groups, strict=True):
        expected = [means.test_accuracy.value for means in group.epochs if means.test_accuracy]
        assert list(line[0].get_ydata()) == pytest.approx([100 * each for each in expected])
    for line, group in zip(loss, training.groups, strict=True):
        assert list(line[0].get_xdata()) == [1, 2, 3, 4]
        expected = [means.test_loss.value for means in group.epochs if means.test_loss]
        assert list(line[0].get_ydata()) == pytest.approx(expected)
    assert "n = 3 seeds, dotted: the target of 70.0%" in figure.get_suptitle()


def test_the_title_says_what_more_devices_bring(trained_results: StudyResults) -> None:
    figure = draw_training(trained_results)
    assert figure is not None
    assert trained_results.training is not None
    (found,) = trained_results.training.comparisons
    assert found.epoch_speedup is not None
    title = " ".join(figure.get_suptitle().split())
    assert f"{found.epoch_speedup.value:.2f} times as fast as one" in title
    assert f"{found.group.final_accuracy.value:.1%} accuracy against" in title
