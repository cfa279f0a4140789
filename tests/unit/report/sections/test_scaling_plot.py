"""Throughput and efficiency over the world size: the values, the axes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.plot import MOST_CURVES
from raybench.report.sections.scaling import draw_scaling, scaling_plot

pytestmark = pytest.mark.usefixtures("pictures")


def test_scaling_values(results: StudyResults) -> None:
    plot = scaling_plot(results)
    assert plot is not None
    assert plot.world_sizes == (1, 2)
    assert [line.label for line in plot.throughput] == ["batch 512, fp32", "batch 512, bf16"]
    one, two = plot.throughput[0].points
    assert plot.ideal == ((1, one.estimate.value), (2, 2 * one.estimate.value))
    assert two.estimate == results.curves[0].points[1].throughput_samples_per_s
    assert plot.efficiency[0].points[0].estimate.value == 1.0
    assert plot.rounds[0] >= 10


def test_more_curves_than_can_be_told_apart_are_counted(wide: StudyResults) -> None:
    plot = scaling_plot(wide)
    assert plot is not None
    assert len(plot.throughput) == MOST_CURVES
    assert plot.num_left_out == 2
    assert plot.throughput[0].label == wide.curves[0].label  # the default stays


def test_axes_have_units_and_plain_ticks(results: StudyResults) -> None:
    plot = scaling_plot(results)
    assert plot is not None
    figure = draw_scaling(plot)
    left, right = figure.axes
    assert left.get_ylabel() == "throughput (samples/s)"
    assert right.get_ylabel() == "scaling efficiency (%)"
    assert [label.get_text() for label in left.get_xticklabels()] == ["1", "2"]
    assert " rounds" in figure.get_suptitle()


def test_no_line_is_one_dot(results: StudyResults) -> None:
    """A setting that was measured on two devices alone is no curve, an efficiency at one size no line."""
    default, *others = results.curves
    alone = replace(default, label="on two alone", points=default.points[1:], is_default=False)
    plot = scaling_plot(replace(results, curves=(default, *others, alone)))
    assert plot is not None
    assert "on two alone" not in [line.label for line in plot.throughput]
    one, two = default.points
    unpaired = replace(default, points=(replace(one, efficiency=None), two))
    plot = scaling_plot(replace(results, curves=(unpaired,)))
    assert plot is not None
    assert plot.efficiency == ()
    assert len(draw_scaling(plot).axes) == 1
    assert scaling_plot(replace(results, curves=(alone,))) is None
