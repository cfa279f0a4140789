"""What more devices would bring: sentences, tables, plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.analysis import analyse
from raybench.analysis.cost import works
from raybench.analysis.objectives import Prices
from raybench.analysis.simulate.outlook import Outlook, forecast, outlook, shapes_of
from raybench.analysis.simulate.sources import group_of_study
from raybench.report.plot import to_png
from raybench.report.prediction import (
    MOST_BANDS,
    draw_prediction,
    law_table,
    outlook_sentences,
    prediction_plot,
    prediction_table,
    tradeoff_table,
)
from raybench.report.table import without_constant
from tests.unit.analysis.simulate.tables import groups
from tests.unit.studies import exactly, exactly_strong, grid, planted, study

pytestmark = pytest.mark.usefixtures("pictures")


def of_rows(folder: Path, rows: list[str], **asked: float) -> Outlook:
    (group,) = groups(folder, rows)
    return outlook(forecast(group, shapes_of((8,), 8)), works(1e6, 2), Prices(), **asked)


def test_a_limit_that_nothing_keeps_has_no_chance_where_nobody_said_how_sure(tmp_path: Path) -> None:
    found = of_rows(tmp_path, ["1,1,32,0.1", "1,2,32,0.1"], within_s=1e-3)
    (told,) = (line for line in outlook_sentences(found, costs=False) if line.startswith("cheapest"))
    assert told.startswith("cheapest within ")
    assert "(without restarts of the loader): none of what was measured or predicted; nearest is " in told
    assert told.endswith("(nobody said how sure that is)")
    assert "likely" not in told


def test_rows_of_the_front_that_do_not_fit_are_counted_as_such(tmp_path: Path) -> None:
    """Each number of devices is on the front: twice as many are not twice as fast."""
    rows = [f"1,{size},32,{0.1 * size**0.5}" for size in (1, 2, 4, 6, 8)]
    found = of_rows(tmp_path, rows)
    best = sum(way.on_front for way in found.ways)
    assert best >= 4
    table = tradeoff_table(found, most_rows=2)
    assert len(table.rows) == 2
    assert f"{best - 2} more that are" in table.caption
    both = len(found.ways) - best
    assert (f"{both} that are not" in table.caption) == bool(both)


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
    assert found.caption.startswith("Nothing could be predicted. Each further device brought ")
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


def test_two_numbers_of_devices_have_a_table_by_a_law() -> None:
    """80% on two devices: Amdahl's f is 1/4, so 2.29, 2.91 and 3.37 times as fast; Gustafson's is 2/5."""
    strong = planted({(128,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"})
    table = law_table(strong)
    assert (table.title, table.rows[0][:2]) == ("By Amdahl's law", ("4", "32"))
    assert [row[2].split("x")[0] for row in table.rows] == ["2.29", "2.91", "3.37"]
    assert "more than 4.00 (1/f)" in table.caption
    weak = planted({(32,): exactly(0.8)}, "batch_size")
    table = law_table(weak)
    assert [row[2].split("x")[0] for row in table.rows] == ["2.80", "5.20", "10.0"]
    assert (table.title, [row[1] for row in table.rows]) == ("By Gustafson's law", ["32"] * 3)


def test_no_law_speaks_of_devices_that_get_no_sample_or_share_cores() -> None:
    few = planted({(4,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"})
    assert [row[0] for row in law_table(few).rows] == ["4"]  # 8 have no sample each
    assert not law_table(planted({(2,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"})).rows
    assert not law_table(planted({(32,): exactly(0.4)}, "batch_size")).rows  # slower than one


def test_predict_answers_by_a_law_for_the_numbers_that_were_asked(tmp_path: Path) -> None:
    (found,) = groups(tmp_path, ["1,1,128,0.5", "1,2,128,0.3125"], scaling="strong")
    asked = outlook(forecast(found, shapes_of((32,), 8)), works(1e6, 2), Prices())
    (line,) = [each for each in outlook_sentences(asked, costs=False) if "Amdahl" in each]
    assert line.endswith(": 3.66x on 32")
    weak = outlook(forecast(found, shapes_of((32,), 8), "weak"), works(1e6, 2), Prices())
    assert not weak.laws
