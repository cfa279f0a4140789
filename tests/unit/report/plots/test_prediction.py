"""The plot of what more devices would bring: points, bands, and what is shown of many batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.analysis.cost import works
from raybench.analysis.prices import Prices
from raybench.analysis.simulate.outlook import Outlook, forecast, outlook, shapes_of
from raybench.report.plots.drawing import to_png
from raybench.report.plots.prediction import MOST_BANDS, draw_prediction, prediction_plot
from tests.unit.analysis.simulate.tables import groups


def outlook_of(folder: Path, batches: tuple[int, ...], sizes: tuple[int, ...] = (32, 64)) -> Outlook:
    rows = [
        f"{-(-size // 4)},{size},{batch},{0.001 + batch * 1e-5 + 0.0002 * size}"
        for size in (1, 2, 4, 8, 16)
        for batch in batches
    ]
    (group,) = groups(folder, rows)
    return outlook(forecast(group, shapes_of(sizes, 4)), works(), Prices())


def test_measured_points_and_a_band_that_begins_at_the_last_of_them(tmp_path: Path) -> None:
    found = outlook_of(tmp_path, (100,))
    plot = prediction_plot(found)
    assert plot is not None
    assert plot.world_sizes == (1, 2, 4, 8, 16, 32, 64)
    assert plot.largest_measured == 16
    (rate,), (efficiency,) = plot.throughput, plot.efficiency
    assert [point.x for point in rate.measured.points] == [1, 2, 4, 8, 16]
    assert [point.x for point in rate.predicted.points] == [16, 32, 64]
    assert rate.measured.points[-1].estimate.value == pytest.approx(1600 / 0.0052)
    assert rate.predicted.points[-1].estimate == found.forecast.predicted[-1].throughput_samples_per_s
    assert efficiency.predicted.points[-1].estimate == found.forecast.predicted[-1].efficiency
    figure = draw_prediction(plot)
    assert len(figure.axes) == 2
    assert to_png(figure).startswith(b"\x89PNG")


def test_of_many_batches_the_smallest_the_largest_and_some_between(tmp_path: Path) -> None:
    plot = prediction_plot(outlook_of(tmp_path, (10, 20, 40, 80, 160, 320, 640)))
    assert plot is not None
    labels = [line.measured.label for line in plot.throughput]
    assert len(labels) == MOST_BANDS
    assert (labels[0], labels[-1]) == ("batch 10", "batch 640")
    assert plot.num_left_out == 7 - MOST_BANDS


def test_there_is_no_plot_where_everything_is_refused(tmp_path: Path) -> None:
    assert prediction_plot(outlook_of(tmp_path, (100,), (100_000,))) is None
    assert prediction_plot(None) is None
