"""Tables and plots of the training trials."""

import pytest

from raybench.analysis import analyse
from raybench.report.document import draw_all, method_words
from raybench.report.plots import values as plot_values
from raybench.report.tables import training as training_tables
from raybench.testing import FakeLearning
from tests.unit.studies import trained_study


def test_tables_and_plots_hold_every_group():
    plan, records = trained_study(FakeLearning(), devices=4)
    results = analyse(plan.study, records)
    assert [row[0] for row in training_tables.training_table(results).rows] == ["1", "2", "4"]
    assert len(training_tables.epochs_table(results).rows) == 12
    assert len(training_tables.ranks_table(results).rows) == 3 * (1 + 2 + 4)
    assert len(training_tables.goodput_table(results).rows) == 3
    plot = plot_values.training_plot(results)
    assert plot is not None
    assert [line.label for line in plot.accuracy] == ["1 device", "2 devices, ddp", "4 devices, ddp"]
    assert plot.seeds == (3, 3)
    times = plot_values.epoch_time_plot(results)
    assert times is not None
    assert times.ideal[2][1] == pytest.approx(times.ideal[0][1] / 4)
    assert {"training", "epoch_times"} <= {drawn.name for drawn in draw_all(results)}


def test_without_training_there_is_no_section():
    plan, records = trained_study(FakeLearning(), training=None)
    results = analyse(plan.study, records)
    assert results.training is None
    assert not training_tables.training_table(results).rows
    assert plot_values.training_plot(results) is None


def test_training_leaves_the_words_on_the_method_as_they_are():
    plan, records = trained_study(FakeLearning())
    steps = [record for record in records if record.steps is not None]
    assert method_words(analyse(plan.study, records)) == method_words(analyse(plan.study, steps))
