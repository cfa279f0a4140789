"""The steps of several settings as bars of shares."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.plot import to_svg
from raybench.report.sections.waterfall import PART_WORDS, REST, draw_waterfall, waterfall_plot
from tests.unit.studies import exactly, planted

pytestmark = pytest.mark.usefixtures("pictures")


def test_a_bar_has_what_is_surely_lost_and_the_rest(results: StudyResults) -> None:
    plot = waterfall_plot(results)
    assert plot is not None
    assert [bar.label for bar in plot.bars][:2] == ["batch 512, fp32", "batch 512, bf16"]
    for bar, setting in zip(plot.bars, results.settings, strict=True):
        found = setting.waterfall
        assert found is not None
        shares = dict(bar.shares)
        for name, part in found.parts.present().items():
            if part.low > 0 and name != "undivided":
                expected = part.value / found.step_time_s.value
                assert shares.pop(PART_WORDS[name]) == pytest.approx(expected)
        assert set(shares) <= {REST}
        if REST in shares:
            assert sum(share for _, share in bar.shares) == pytest.approx(1.0)


def test_the_title_holds_for_every_bar_and_of_one_names_the_largest_loss(results: StudyResults) -> None:
    plot = waterfall_plot(results)
    assert plot is not None
    ideals = [dict(bar.shares)["ideal"] for bar in plot.bars]
    ends = f"{min(ideals):.0%} to {max(ideals):.0%}"
    assert plot.title == f"Computing takes {ends} of a step on 2 devices, the rest is lost"
    alone = waterfall_plot(planted({(8,): exactly(0.5)}, "batch_size"))
    assert alone is not None
    assert alone.title == "Computing takes 50% of a step on 2 devices, communication 50%"


def test_the_same_values_give_the_same_svg(results: StudyResults) -> None:
    plot = waterfall_plot(results)
    assert plot is not None
    one, other = (to_svg(draw_waterfall(plot)) for _ in range(2))
    assert one == other
    assert b"<dc:date>" not in one
