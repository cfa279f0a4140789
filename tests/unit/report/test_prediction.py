"""What more devices would bring: sentences, tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from raybench.analysis.cost import run_of
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.as_if import as_if_on
from raybench.analysis.simulate.outlook import Outlook, outlook, shapes_of
from raybench.analysis.simulate.sources import group_of_study
from raybench.records.requests import AsIf
from raybench.report.prediction import (
    more_sentences,
    more_table,
    outlook_sentences,
    prediction_table,
    refusals_words,
    required_table,
)
from raybench.report.table import NONE, Table, without_constant
from tests.support.analysis import analyse
from tests.unit.analysis.simulate.planted import trial
from tests.unit.analysis.simulate.tables import groups
from tests.unit.analysis.simulate.test_as_if import exact, found, with_as_if
from tests.unit.studies import LARGE_NODE, exactly, exactly_strong, grid, planted, study


@pytest.fixture(scope="module")
def refused() -> Outlook:
    """Two batches on one and two devices of a node; asked for two nodes and for four."""
    group = group_of_study(planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size"))
    assert group is not None
    return outlook(group, shapes_of((4, 8), 2), run_of(), None)


def test_a_refusal_stands_once_for_all_batches(refused: Outlook) -> None:
    (line,) = refusals_words(refused)
    assert line.startswith("refused at 4, 8 devices: a fit takes measurements on 3 numbers of devices")


def test_a_word_has_no_unit(refused: Outlook) -> None:
    caption = without_constant(prediction_table(refused)).caption
    assert "In every row: step time = refused." in caption


def test_a_run_has_its_interval() -> None:
    """As "0.18" stood for 180 ms [177, 183]."""
    spec = study(knobs={"batch_size": [32]})
    group = group_of_study(analyse(spec, grid(spec, (1, 2, 4))[0]))  # with noise
    assert group is not None
    found = outlook(group, shapes_of((8,), 8), run_of(5_000, 3), None)
    table = prediction_table(found, costs=True)
    (place,) = [place for place, each in enumerate(table.columns) if each.heading.startswith("run")]
    assert all(" [" in row[place] for row in table.rows)


def test_amdahls_column_stands_beside_what_is_predicted_of_each_global_batch(tmp_path: Path) -> None:
    """Tenths that are serial: 1 / (0.1 + 0.9 / 8) and 1 / (0.2 + 0.8 / 8)."""
    times = {256: 0.1, 512: 0.2}
    rows = [f"1,{n},{batch},{0.4 * (f + (1 - f) / n)}" for n in (1, 2, 4) for batch, f in times.items()]
    (group,) = groups(tmp_path, rows, scaling="strong")
    table = prediction_table(outlook(group, shapes_of((8,), 8), run_of(), None))
    (place,) = [
        place for place, each in enumerate(table.columns) if each.heading == "speed-up by Amdahl's law"
    ]
    assert [row[place] for row in table.rows] == ["4.71x", "3.33x"]
    weak = prediction_table(outlook(group, shapes_of((8,), 8), run_of(), None, "weak"))
    assert {row[place] for row in weak.rows} == {NONE}


def by_law(results: StudyResults) -> Table:
    return more_table(results.more_devices, run_of(), None)


def test_a_fit_has_a_row_for_each_number_of_devices() -> None:
    spec = study(knobs={"batch_size": [128, 32]})
    results = analyse(spec, grid(spec, (1, 2, 4))[0], LARGE_NODE)
    assert results.outlook is not None
    table = more_table(results.more_devices, run_of(), None)
    assert [row[:3] for row in table.rows] == [(size, "fit", "128") for size in ("8", "16", "32")]
    assert table.caption.startswith("Fit: a model of the step")
    assert len(results.outlook.answered) == 6  # of both batches
    gustafson = [each.heading for each in table.columns].index("by Gustafson's law")
    assert all(row[gustafson] != NONE for row in table.rows)
    assert all(" [" in row[-1] for row in table.rows)
    (said,) = more_sentences(results.more_devices)
    assert said.startswith("8 devices would train ")


def test_two_numbers_of_devices_have_a_table_by_a_law() -> None:
    """80% on two devices: Amdahl's f is 1/4, so 2.29, 2.91 and 3.37 times as fast; Gustafson's is 2/5."""
    table = by_law(planted({(128,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"}))
    assert table.rows[0][:3] == ("4", "law", "32")
    assert all(" [" in row[-1] for row in table.rows)  # the time of a run
    assert [row[4].split("x")[0] for row in table.rows] == ["2.29", "2.91", "3.37"]
    assert table.caption.startswith("By Amdahl's law, not predicted: f = 25%")
    assert "at most 4.00x (1/f)" in table.caption
    table = by_law(planted({(32,): exactly(0.8)}, "batch_size"))
    assert [row[4].split("x")[0] for row in table.rows] == ["2.80", "5.20", "10.0"]
    assert [row[2] for row in table.rows] == ["32"] * 3
    assert table.caption.startswith("By Gustafson's law")


def test_where_two_devices_are_slower_than_one_more_are_not_expected_to_pay() -> None:
    slow = planted({(128,): exactly_strong(0.4)}, "batch_size", scaling={"mode": "strong"})
    (said,) = more_sentences(slow.more_devices)
    assert said == "more devices are not expected to beat one at this batch, as 2 are slower already"


def test_no_law_speaks_of_devices_that_get_no_sample_or_share_cores() -> None:
    few = planted({(4,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"})
    assert [row[0] for row in by_law(few).rows] == ["4"]  # 8 have no sample each
    assert not by_law(planted({(2,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"})).rows
    assert not by_law(planted({(32,): exactly(0.4)}, "batch_size")).rows  # slower than one


def test_predict_answers_by_a_law_for_the_numbers_that_were_asked(tmp_path: Path) -> None:
    (found,) = groups(tmp_path, ["1,1,128,0.5", "1,2,128,0.3125"], scaling="strong")
    asked = outlook(found, shapes_of((32,), 8), run_of(1e6, 2), None)
    (line,) = [each for each in outlook_sentences(asked) if "Amdahl" in each]
    assert line.endswith(": 3.66x on 32")
    weak = outlook(found, shapes_of((32,), 8), run_of(1e6, 2), None, "weak")
    assert not weak.laws


def test_what_was_measured_or_simulated_over_a_network_is_not_proposed_over_another() -> None:
    """As `predict --network 8xinfiniband-400` ended with "To measure it as if: ... --network 2xtcp-100"."""
    measured = with_as_if(trial(), AsIf(world_size=8))
    for more in (found(measured), found(trial(), exact(100e6), (8,))):
        assert more.points
        assert required_table(more).rows
        assert "--as-if" not in required_table(more).caption
    assert "--as-if 4,8,16 --network" in required_table(found(trial())).caption


def test_the_answer_names_the_ends_of_what_lies_beyond_the_devices_here() -> None:
    """Not two devices as if on two, which the report says already."""
    more = found(trial(), exact(1e9), (2, 4, 8, 16))
    assert [each.shape.world_size for each in more.points] == [2, 4, 8, 16]
    assert [words.split()[0] for words in more_sentences(more)] == ["4", "16"]


def test_as_many_devices_as_there_are_over_another_network_are_the_answer_where_no_more_were_asked() -> None:
    """As a command to measure them as if followed a figure that had been measured so."""
    asked = as_if_on(exact(50e6), 2, "cpu")
    (said,) = more_sentences(found(with_as_if(trial(), asked), exact(50e6), (2,)))
    assert said.startswith("2 devices over exact would train ")


def test_fewer_devices_than_there_are_have_no_command_as_if() -> None:
    more = found(trial())
    fewer = replace(more, requirements=(replace(more.requirements[0], world_size=1),))
    assert "--as-if" not in required_table(fewer).caption


def test_an_upper_bound_of_the_step_is_a_lower_one_of_the_speedup() -> None:
    asked = as_if_on(exact(1e9), 8, "cpu")
    bound, sure = (more_sentences(found(with_as_if(trial(), asked, shorter_s=each))) for each in (0.02, 0.0))
    assert re.search(r"would train at least [\d.]+ times as fast as one", bound[0])
    assert re.search(r"would train [\d.]+ to [\d.]+ times as fast as one", sure[0])
