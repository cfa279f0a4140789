"""That plots draw, and that nothing is clipped, on the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raybench.analysis import analyse
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.results import StudyResults
from raybench.report.plots.batches import batch_plot, batch_scaling_plot, draw_batch_scaling, draw_batches
from raybench.report.plots.configurations import configurations_plot, draw_configurations
from raybench.report.plots.drawing import far_apart, legend_below, make_figure, to_png, write_title
from raybench.report.plots.scaling import draw_scaling, scaling_plot
from raybench.report.plots.step_times import draw_step_times, step_time_plot
from raybench.report.plots.waterfall import draw_waterfall, waterfall_plot
from raybench.spec import Setting
from raybench.testing import StepCosts
from tests.unit.studies import measured, study


def test_nothing_to_draw_is_none() -> None:
    spec = study(knobs={"batch_size": [64]})
    empty = analyse(spec, [])
    one = analyse(spec, [measured(StepCosts(plain_s=0.01), world_size=1, setting=Setting(strategy="single"))])
    for results in (empty, one):
        assert scaling_plot(results) is None
        assert batch_plot(results) is None
        assert waterfall_plot(results) is None
        assert batch_scaling_plot(results) is None
        assert configurations_plot(results) is None
    assert step_time_plot(empty, None) is None


@pytest.mark.parametrize("which", ["results", "wide"])
def test_nothing_is_clipped(which: str, request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(which)
    pairs = (
        (scaling_plot(results), draw_scaling),
        (batch_plot(results), draw_batches),
        (batch_scaling_plot(results), draw_batch_scaling),
        (configurations_plot(results), draw_configurations),
        (waterfall_plot(results), draw_waterfall),
        (step_time_plot(results, None), draw_step_times),
    )
    for value, draw in pairs:
        assert value is not None
        figure = draw(value)  # type: ignore[operator]
        assert to_png(figure).startswith(b"\x89PNG")
        tight, whole = figure.get_tightbbox(), figure.bbox_inches
        assert tight.x0 >= -0.02
        assert tight.y0 >= -0.02
        assert tight.x1 <= whole.width + 0.02
        assert tight.y1 <= whole.height + 0.02


def test_an_interval_wider_than_all_values_leaves_the_picture(results: StudyResults) -> None:
    """A few rounds on a machine that others use: one of 4 rounds gave 25% [0, 31035]."""
    plot = scaling_plot(results)
    assert plot is not None
    (line, *others), points = plot.efficiency, plot.efficiency[0].points
    wild = replace(points[-1], estimate=Estimate(0.25, 1e-9, 3.75e6, 4))
    figure = draw_scaling(replace(plot, efficiency=(replace(line, points=(*points[:-1], wild)), *others)))
    right = figure.axes[1]
    assert right.get_ylim()[1] <= 400
    assert len(right.get_yticks()) < 20
    assert to_png(figure).startswith(b"\x89PNG")


def test_batches_too_near_for_labels_keep_the_largest() -> None:
    shown = far_apart([8, 9, 10, 1024])
    assert shown == [10, 1024]
    assert far_apart(list(2 ** np.arange(4))) == [1, 2, 4, 8]


def test_a_name_with_dollars_is_no_formula_and_powers_stay() -> None:
    figure, (axes,) = make_figure(3, 3)
    axes.plot([1, 2], [1, 1000], label=r"NCCL_NET=$\frac{$")
    axes.set_yscale("log")
    axes.set_xticks([1, 2], [r"$\frac{$", "b$_{}^$"])
    write_title(figure, r"$\frac{$")
    legend_below(figure, axes)
    assert to_png(figure)  # matplotlib refuses each of them as a formula
    assert any(tick.get_parse_math() for tick in axes.get_yticklabels())
