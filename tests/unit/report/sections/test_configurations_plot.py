"""Configurations side by side."""

from __future__ import annotations

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.sections.configurations import configurations_plot

pytestmark = pytest.mark.usefixtures("pictures")


def test_configurations_keep_the_best_and_the_worst(wide: StudyResults) -> None:
    plot = configurations_plot(wide)
    assert plot is not None
    assert plot.world_size == 8
    assert len(plot.labels) == 8
    values = [each.value for each in plot.efficiency]
    assert values == sorted(values, reverse=True)
    assert plot.speedup[0].value == pytest.approx(8 * values[0])
