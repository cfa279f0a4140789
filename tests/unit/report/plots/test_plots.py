"""Plots are asserted on by their values; that they draw, and that nothing is clipped, on the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raybench.analysis import analyse
from raybench.analysis.batch_lines import amdahl_speedup
from raybench.analysis.results import StudyResults
from raybench.report.answer import answer_of
from raybench.report.plots import drawing
from raybench.report.plots import figures as plots
from raybench.report.plots import values as plot_values
from raybench.report.plots.values import MOST_CURVES
from raybench.report.wording import rounded_batch
from raybench.spec import Setting
from raybench.testing import StepCosts
from tests.unit.studies import measured, study


def test_scaling_values(results: StudyResults) -> None:
    plot = plot_values.scaling_plot(results)
    assert plot is not None
    assert plot.world_sizes == (1, 2)
    assert [line.label for line in plot.throughput] == ["batch 512, fp32", "batch 512, bf16"]
    one, two = plot.throughput[0].points
    assert plot.ideal == ((1, one.estimate.value), (2, 2 * one.estimate.value))
    assert two.estimate == results.curves[0].points[1].throughput_samples_per_s
    assert plot.efficiency[0].points[0].estimate.value == 1.0
    assert plot.rounds[0] >= 10


def test_more_curves_than_can_be_told_apart_are_counted(wide: StudyResults) -> None:
    plot = plot_values.scaling_plot(wide)
    assert plot is not None
    assert len(plot.throughput) == MOST_CURVES
    assert plot.num_left_out == 2
    assert plot.throughput[0].label == wide.curves[0].label  # the default stays


def test_batch_values(results: StudyResults) -> None:
    plot = plot_values.batch_plot(results)
    assert plot is not None
    assert plot.world_size == 2
    assert plot.break_even == 0.5
    assert plot.crossover is not None
    assert 32 < plot.crossover < 128
    assert [point.x for point in plot.lines[0].points] == sorted(point.x for point in plot.lines[0].points)


def test_every_batch_has_a_line_from_one_device_and_its_own_ideal(results: StudyResults) -> None:
    plot = plot_values.batch_scaling_plot(results)
    assert plot is not None
    assert [line.label for line in plot.throughput] == ["batch 32", "batch 128", "batch 512"]
    for line, ideal in zip(plot.throughput, plot.ideal, strict=True):
        assert [point.x for point in line.points] == [1, 2]
        assert line.points[0].estimate.value == ideal
    for line, fraction in zip(plot.speedup, plot.serial_fraction, strict=True):
        assert line.points[0].estimate.value == 1
        assert amdahl_speedup(fraction, 2) == pytest.approx(line.points[1].estimate.value)


def test_configurations_keep_the_best_and_the_worst(wide: StudyResults) -> None:
    plot = plot_values.configurations_plot(wide)
    assert plot is not None
    assert plot.world_size == 8
    assert len(plot.labels) == 8
    values = [each.value for each in plot.efficiency]
    assert values == sorted(values, reverse=True)
    assert plot.speedup[0].value == pytest.approx(8 * values[0])


def test_a_batch_between_two_is_said_in_the_same_words_everywhere(results: StudyResults) -> None:
    plot = plot_values.batch_plot(results)
    assert plot is not None
    assert plot.crossover is not None
    words = f"about batch {rounded_batch(plot.crossover)}"
    assert words in answer_of(results)
    assert words in plots.draw_batches(plot).get_suptitle()
    assert rounded_batch(104.4) == "100"
    assert rounded_batch(1_849) == "1,800"
    assert rounded_batch(7.4) == "7"


def test_waterfall_bars_start_where_the_last_one_ended(results: StudyResults) -> None:
    plot = plot_values.waterfall_plot(results)
    assert plot is not None
    for below, above in zip(plot.bars, plot.bars[1:], strict=False):
        assert above.start_s == pytest.approx(below.start_s + below.part.value)
    last = plot.bars[-1]
    assert last.start_s + last.part.value == pytest.approx(plot.step_time_s.value)


def test_step_times_without_samples_are_block_means(results: StudyResults) -> None:
    plot = plot_values.step_time_plot(results, None)
    assert plot is not None
    assert not plot.of_steps
    assert results.headline is not None
    assert results.headline.steps is not None
    assert len(plot.distributions[-1].sorted_s) == len(results.headline.steps.rounds)


def test_step_times_from_samples_take_the_slowest_rank(results: StudyResults, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert results.headline is not None
    columns = {
        "variant": pa.array(["synced"] * 4).dictionary_encode(),
        "round": [0] * 4,
        "rank": [0, 0, 1, 1],
        "step": [0, 1, 0, 1],
        "step_time_s": [0.1, 0.4, 0.3, 0.2],
    }
    pq.write_table(pa.table(columns), tmp_path / f"{results.headline.trial_id}.parquet")
    plot = plot_values.step_time_plot(results, tmp_path)
    assert plot is not None
    assert plot.of_steps
    assert [each.label for each in plot.distributions] == ["DDP"]
    assert plot.distributions[0].sorted_s.tolist() == [0.3, 0.4]


def test_a_damaged_samples_file_is_done_without(results: StudyResults, tmp_path: Path) -> None:
    assert results.headline is not None
    (tmp_path / f"{results.headline.trial_id}.parquet").write_bytes(b"torn")
    plot = plot_values.step_time_plot(results, tmp_path)
    assert plot is not None
    assert not plot.of_steps


def test_nothing_to_draw_is_none() -> None:
    spec = study(knobs={"batch_size": [64]})
    empty = analyse(spec, [])
    one = analyse(spec, [measured(StepCosts(plain_s=0.01), world_size=1, setting=Setting(strategy="single"))])
    for results in (empty, one):
        assert plot_values.scaling_plot(results) is None
        assert plot_values.batch_plot(results) is None
        assert plot_values.waterfall_plot(results) is None
        assert plot_values.batch_scaling_plot(results) is None
        assert plot_values.configurations_plot(results) is None
    assert plot_values.step_time_plot(empty, None) is None


@pytest.mark.parametrize("which", ["results", "wide"])
def test_nothing_is_clipped(which: str, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(which)
    pairs = (
        (plot_values.scaling_plot(results), plots.draw_scaling),
        (plot_values.batch_plot(results), plots.draw_batches),
        (plot_values.batch_scaling_plot(results), plots.draw_batch_scaling),
        (plot_values.configurations_plot(results), plots.draw_configurations),
        (plot_values.waterfall_plot(results), plots.draw_waterfall),
        (plot_values.step_time_plot(results, None), plots.draw_step_times),
    )
    for value, draw in pairs:
        assert value is not None
        figure = draw(value)  # type: ignore[operator]
        assert drawing.to_png(figure).startswith(b"\x89PNG")
        tight, whole = figure.get_tightbbox(), figure.bbox_inches
        assert tight.x0 >= -0.02
        assert tight.y0 >= -0.02
        assert tight.x1 <= whole.width + 0.02
        assert tight.y1 <= whole.height + 0.02


def test_axes_have_units_and_plain_ticks(results: StudyResults) -> None:
    plot = plot_values.scaling_plot(results)
    assert plot is not None
    figure = plots.draw_scaling(plot)
    left, right = figure.axes
    assert left.get_ylabel() == "throughput (samples/s)"
    assert right.get_ylabel() == "scaling efficiency (%)"
    assert [label.get_text() for label in left.get_xticklabels()] == ["1", "2"]
    assert "n = 10" in figure.get_suptitle()


def test_the_same_values_give_the_same_svg(results: StudyResults) -> None:
    plot = plot_values.waterfall_plot(results)
    assert plot is not None
    one, other = (drawing.to_svg(plots.draw_waterfall(plot)) for _ in range(2))
    assert one == other
    assert b"<dc:date>" not in one


def test_batches_too_near_for_labels_keep_the_largest() -> None:
    shown = drawing.far_apart([8, 9, 10, 1024])
    assert shown == [10, 1024]
    assert drawing.far_apart(list(2 ** np.arange(4))) == [1, 2, 4, 8]
