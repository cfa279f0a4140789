"""The parts of a step, each from where the last one ended."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.plot import headline_title, to_svg
from raybench.report.sections.waterfall import draw_waterfall, waterfall_plot

pytestmark = pytest.mark.usefixtures("pictures")


def test_waterfall_bars_start_where_the_last_one_ended(results: StudyResults) -> None:
    plot = waterfall_plot(results)
    assert plot is not None
    for below, above in zip(plot.bars, plot.bars[1:], strict=False):
        assert above.start_s == pytest.approx(below.start_s + below.part.value)
    last = plot.bars[-1]
    assert last.start_s + last.part.value == pytest.approx(plot.step_time_s.value)


def test_the_same_values_give_the_same_svg(results: StudyResults) -> None:
    plot = waterfall_plot(results)
    assert plot is not None
    one, other = (to_svg(draw_waterfall(plot)) for _ in range(2))
    assert one == other
    assert b"<dc:date>" not in one


def test_the_title_is_the_settings_alone(results: StudyResults) -> None:
    plot, named = waterfall_plot(results), waterfall_plot(results, "before")
    assert plot is not None
    assert named is not None
    assert plot.title == headline_title(results)
    assert named.title == f"before: {headline_title(results)}"
