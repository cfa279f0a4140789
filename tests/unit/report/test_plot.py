"""That plots draw, and that nothing is clipped, on the figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.report.plot import Line, draw_lines, legend_below, make_figure, saved, write_title
from raybench.report.sections.scaling import draw_scaling, plotted_settings
from raybench.report.sections.waterfall import draw_waterfall
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import StepCosts
from tests.unit.studies import measured, study

pytestmark = pytest.mark.usefixtures("pictures")


def test_nothing_to_draw_is_none() -> None:
    spec = study(knobs={"batch_size": [64]})
    empty = analyse(spec, [])
    one = analyse(spec, [measured(StepCosts(plain_s=0.01), world_size=1, setting=Setting(strategy="single"))])
    for results in (empty, one):
        assert draw_scaling(plotted_settings(results)) is None
        assert draw_waterfall(plotted_settings(results)) is None


@pytest.mark.parametrize("which", ["results", "wide"])
def test_nothing_is_clipped(which: str, request: pytest.FixtureRequest) -> None:
    settings = plotted_settings(request.getfixturevalue(which))
    for draw in (draw_scaling, draw_waterfall):
        figure = draw(settings)
        assert figure is not None
        assert saved(figure, "png").startswith(b"\x89PNG")
        tight, whole = figure.get_tightbbox(), figure.bbox_inches
        assert tight.x0 >= -0.02
        assert tight.y0 >= -0.02
        assert tight.x1 <= whole.width + 0.02
        assert tight.y1 <= whole.height + 0.02


def test_an_interval_wider_than_all_values_leaves_the_picture(results: StudyResults) -> None:
    """A few rounds on a machine that others use: one of 4 rounds gave 25% [0, 31035]."""
    (words, first), *others = plotted_settings(results)
    rates = [
        point.scaling.throughput_samples_per_s.value for each in results.settings for point in each.points
    ]
    highest, (one, many) = max(rates), first.points
    rate = Estimate(highest, 1e-9, 1e5 * highest, 4)
    step_s = inverse(rate).scaled(many.scaling.samples)
    wild = replace(many, scaling=replace(many.scaling, step_time_s=step_s))
    figure = draw_scaling([(words, replace(first, points=(one, wild))), *others])
    assert figure is not None
    _, axes = figure.axes
    assert axes.get_xlim()[1] <= 5 * highest
    assert len(axes.get_xticks()) < 20
    assert saved(axes.figure, "png").startswith(b"\x89PNG")


def test_a_name_with_dollars_is_no_formula_and_powers_stay() -> None:
    figure, (axes,) = make_figure(3, 3)
    axes.plot([1, 2], [1, 1000], label=r"NCCL_NET=$\frac{$")
    axes.set_yscale("log")
    axes.set_xticks([1, 2], [r"$\frac{$", "b$_{}^$"])
    write_title(figure, r"$\frac{$")
    legend_below(figure, axes)
    assert saved(figure, "png")  # matplotlib refuses each of them as a formula
    assert any(tick.get_parse_math() for tick in axes.get_yticklabels())


def lines_of(*estimates: Estimate) -> list[Line]:
    return [Line(f"curve {index}", {1.0: each, 2.0: each}) for index, each in enumerate(estimates)]


def test_curves_that_coincide_are_told_apart() -> None:
    """Their points stand a little apart, in other lines."""
    _, (axes,) = make_figure(4, 3)
    same = Estimate(1.0, 0.9, 1.1, 9)
    draw_lines(axes, [*lines_of(same, same), Line("unknown everywhere", {})])
    first, second, *_ = (each[0] for each in axes.containers)
    at = [each.get_transform().transform((1.0, 1.0))[0] for each in (first, second)]
    assert 1 < at[1] - at[0] < 10
    assert first.get_linestyle() != second.get_linestyle()
