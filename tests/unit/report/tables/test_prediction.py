"""What is predicted, as a table: refusals once, with their reason."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.cost import works
from raybench.analysis.prices import Prices
from raybench.analysis.simulate.outlook import Outlook, forecast, outlook, shapes_of
from raybench.analysis.simulate.sources import group_of_study
from raybench.report.tables.base import without_constant
from raybench.report.tables.prediction import prediction_table, tradeoff_table
from tests.unit.studies import exactly, grid, planted, study


@pytest.fixture(scope="module")
def refused() -> Outlook:
    """Two batches on one and two devices of a node; asked for two nodes and for four."""
    group = group_of_study(planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size"))
    assert group is not None
    return outlook(forecast(group, shapes_of((4, 8), 2)), works(), Prices())


def test_a_refusal_stands_once_for_all_batches(refused: Outlook) -> None:
    """As two batches of two shapes were four rows, under a caption of columns that were not there."""
    found = without_constant(prediction_table(refused, refusals=True))
    assert [row[:2] for row in found.rows] == [("4/2", "8, 128"), ("8/4", "8, 128")]
    assert found.caption.startswith("Nothing could be predicted. Amdahl's law: f = ")
    assert "Naive" not in found.caption


def test_a_word_has_no_unit(refused: Outlook) -> None:
    assert "In every row: step time refused." in without_constant(prediction_table(refused)).caption


def test_an_epoch_has_its_interval_in_a_document() -> None:
    """As "0.18" stood for 180 ms [177, 183]."""
    spec = study(knobs={"batch_size": [32]})
    group = group_of_study(analyse(spec, grid(spec, (1, 2))[0]))  # with noise
    assert group is not None
    found = outlook(forecast(group, shapes_of((4,), 2)), works(5_000, 3), Prices())
    (place,) = [place for place, each in enumerate(tradeoff_table(found).columns) if "epoch" in each.heading]
    assert all(" [" in row[place] for row in tradeoff_table(found).rows)
