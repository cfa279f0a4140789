"""The steps of several settings as bars of shares."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.plot import saved
from raybench.report.sections.scaling import plotted_settings
from raybench.report.sections.waterfall import PART_WORDS, REST, draw_waterfall, shares_drawn
from tests.unit.studies import exactly, planted

pytestmark = pytest.mark.usefixtures("pictures")


def test_a_bar_has_what_is_surely_lost_and_the_rest(results: StudyResults) -> None:
    figure = draw_waterfall(plotted_settings(results))
    assert figure is not None
    labels = [each.get_text().splitlines()[0] for each in figure.axes[0].get_yticklabels()]
    assert [each.replace("\u00a0", " ") for each in labels][:2] == ["batch 512, fp32", "batch 512, bf16"]
    for setting in results.settings:
        found = setting.waterfall
        assert found is not None
        shares = shares_drawn(found)
        for name, part in found.parts.present().items():
            if part.low > 0 and name != "undivided":
                expected = part.value / found.step_time_s.value
                assert shares.pop(PART_WORDS[name]) == pytest.approx(expected)
        assert set(shares) <= {REST}
        if REST in shares:
            assert sum(shares_drawn(found).values()) == pytest.approx(1.0)


def test_the_title_holds_for_every_bar_and_of_one_names_the_largest_loss(results: StudyResults) -> None:
    figure = draw_waterfall(plotted_settings(results))
    assert figure is not None
    ideals = [shares_drawn(each.waterfall)["ideal"] for each in results.settings if each.waterfall]
    ends = f"{min(ideals):.0%} to {max(ideals):.0%}"
    assert figure.get_suptitle() == f"Computing takes {ends} of a step on 2 devices, the rest is lost"
    alone = draw_waterfall(plotted_settings(planted({(8,): exactly(0.5)}, "batch_size")))
    assert alone is not None
    assert alone.get_suptitle() == "Computing takes 50% of a step on 2 devices, communication 50%"


def test_the_same_values_give_the_same_svg(results: StudyResults) -> None:
    one, other = (draw_waterfall(plotted_settings(results)) for _ in range(2))
    assert one is not None
    assert other is not None
    assert saved(one, "svg") == saved(other, "svg")
    assert b"<dc:date>" not in saved(one, "svg")
