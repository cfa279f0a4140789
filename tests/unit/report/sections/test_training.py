"""Training trials epoch by epoch: what the table shows is what the records hold."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from raybench.analysis import analyse
from raybench.analysis.comparison import Side, side_by_side
from raybench.analysis.results import StudyResults
from raybench.report.answer import answer_of
from raybench.report.comparison import every_training_table, write_comparison
from raybench.report.document import draw_all
from raybench.report.sections.training import (
    changes_table,
    epochs_table,
    goodput_table,
    metrics_table,
    ranks_table,
    training_plot,
    training_table,
)
from tests.support.planted import FakeLearning
from tests.unit.studies import MACHINE, cured_study, grid, study, trained_study


def test_an_epoch_is_the_mean_over_its_seeds(trained_results: StudyResults) -> None:
    assert trained_results.training is not None
    group = trained_results.training.groups[1]
    third = group.epochs[2]
    assert (third.epoch, third.num_seeds) == (3, 3)
    assert third.test_accuracy is not None
    known = [run.epochs[2].test_accuracy or 0.0 for run in group.runs]
    assert third.test_accuracy.value == pytest.approx(fmean(known))
    table = epochs_table(trained_results)
    row = dict(zip((column.heading for column in table.columns), table.rows[4 + 2], strict=True))
    assert (row["devices"], row["epoch"], row["seeds"]) == ("2", "3", "3")
    assert row["test accuracy"].startswith(f"{100 * fmean(known):.2f}% [")


def test_one_device_is_the_baseline_of_the_others(trained_results: StudyResults) -> None:
    one, two = training_table(trained_results).rows
    assert one[4:6] == ("", "baseline")
    assert two[4].endswith("]")
    assert two[-1] == "3"


def test_one_device_and_several_stand_side_by_side_with_the_improvement(
    trained_results: StudyResults,
) -> None:
    assert trained_results.training is not None
    one, two = trained_results.training.groups
    table = metrics_table(trained_results)
    assert [each.heading for each in table.columns] == ["metric", "1 device", "2 devices, ddp", "change"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["speed-up, epoch"][0] == "1"
    (found,) = trained_results.training.comparisons
    assert found.epoch_speedup is not None
    assert rows["speed-up, epoch"][1].startswith(f"{found.epoch_speedup.value:.2f}x")
    change = two.epoch_time_s.value / one.epoch_time_s.value - 1
    assert rows["time per epoch"][2] == f"{change:+.1%}"
    points = 100 * (two.final_accuracy.value - one.final_accuracy.value)
    assert rows["test accuracy"][2] == f"{points:+.2f} points"
    samples = trained_results.epoch_samples
    assert rows["samples/s"][0].startswith(f"{samples / one.epoch_time_s.value:,.0f}"[:3])
    assert int(rows["optimizer steps an epoch"][1]) == two.runs[0].epochs[-1].steps


def test_tables_and_plots_hold_every_group():
    plan, records = trained_study(FakeLearning(), devices=4)
    results = analyse(plan.study, records)
    assert [row[0] for row in training_table(results).rows] == ["1", "2", "4"]
    assert len(epochs_table(results).rows) == 12
    assert len(ranks_table(results).rows) == 3 * (1 + 2 + 4)
    assert len(goodput_table(results).rows) == 3
    plot = training_plot(results)
    assert plot is not None
    for _, _, lines in plot.panels:
        assert [line.label for line in lines] == ["1 device", "2 devices, ddp", "4 devices, ddp"]
    assert plot.seeds == (3, 3)
    assert "training" in {drawn.name for drawn in draw_all(results)}


def test_one_run_that_learns_nothing_does_not_decide_the_noise_scale_told():
    """As "9,161,719 samples" beside efficiencies of 91% and 110%, which no such scale has."""
    plan, records = trained_study(FakeLearning(), devices=2)
    first = next(each for each in records if each.training is not None)
    caption = goodput_table(analyse(plan.study, records)).caption
    told = "Gradient noise scale: 64.0 samples after the first epoch, 64.0 after the last "
    assert caption.startswith(told)
    assert "; the median of 6 training trials, from 64.0 to 64.0 after the last)" in caption
    epochs = [each.model_copy(update={"noise": _flat(each.noise)}) for each in first.training.epochs]
    nothing = first.model_copy(update={"result": first.training.model_copy(update={"epochs": tuple(epochs)})})
    caption = goodput_table(
        analyse(plan.study, [nothing if each is first else each for each in records])
    ).caption
    assert caption.startswith(told)
    assert re.search(r"; the median of 6 training trials, from 64\.0 to [\d,]{7,} after the last\)", caption)


def _flat(noise):
    """Norms of gradients in which there is next to nothing but noise."""
    return tuple(
        each.model_copy(
            update={"big_square": (each.small_square * each.small_batch / each.big_batch) * 1.00001}
        )
        for each in noise
    )


def test_without_training_there_is_no_section():
    plan, records = trained_study(FakeLearning(), training=None)
    results = analyse(plan.study, records)
    assert results.training is None
    assert not training_table(results).rows
    assert training_plot(results) is None


def test_a_cure_stands_beside_the_default_in_tables_plots_and_answer():
    results = cured_study()
    words = "batch 512, accumulation 4"
    table = changes_table(results)
    rows = [dict(zip((column.heading for column in table.columns), row, strict=True)) for row in table.rows]
    assert [(row["devices"], row["change"], row["global batch"]) for row in rows] == [
        ("1", words, "512"),
        ("2", words, "512"),
    ]
    assert rows[1]["difference, points"].startswith("+1.0")
    assert rows[1]["speed-up"].startswith("2.82x")  # 160 steps of 15 ms against 10 of 85
    settings = [row[2] for row in training_table(results).rows]
    assert settings == ["the default", words, "the default", words]
    assert f"accuracy with {words} and without on 2 devices differs" in answer_of(results)


def test_one_setting_alone_needs_no_column(trained_results: StudyResults) -> None:
    assert changes_table(trained_results).rows == ()
    assert "setting" not in [column.heading for column in training_table(trained_results).columns]


def test_trainings_of_several_studies_stand_side_by_side(
    trained_results: StudyResults, tmp_path: Path
) -> None:
    spec = study(knobs={"batch_size": [32]})
    untrained = analyse(spec, grid(spec, (1, 2))[0])
    named = {"one": trained_results, "cured": cured_study(), "untrained": untrained}
    studies = side_by_side([Side(name, results, MACHINE) for name, results in named.items()])
    table = every_training_table(studies)
    headings = [each.heading for each in table.columns]
    assert headings[:4] == ["results", "devices", "strategy", "setting"]
    assert "test accuracy" in headings
    assert "verdict" not in headings
    found = [(row[0], row[1], row[3]) for row in table.rows]
    assert found[:2] == [("one", "1", "the default"), ("one", "2", "the default")]
    assert ("cured", "2", "the default") in found
    assert {row[0] for row in table.rows} == {"one", "cured"}
    assert not every_training_table(side_by_side(studies.sides[2:])).rows
    write_comparison(tmp_path, studies, "compare")
    plots = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"training_1.png", "training_2.svg"} <= plots
    assert "training_3.png" not in plots
    assert "## Every training" in (tmp_path / "report.md").read_text()
