"""Training trials epoch by epoch: what the table shows is what the records hold."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from raybench.analysis.comparison import Side
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Verdict
from raybench.report.answer import answer_of
from raybench.report.comparison import write_comparison
from raybench.report.document import make_sections
from raybench.report.sections.training import _parity_of, draw_training, epochs_table, training_table
from raybench.report.table import NONE, without_constant
from tests.support.analysis import analyse
from tests.support.planted import FakeLearning
from tests.unit.studies import MACHINE, cured_study, grid, study, trained_study


def columns_of(results: StudyResults) -> dict[str, dict[str, str]]:
    """The cells of the table by column, then by metric."""
    table = training_table({"": results})
    headings = [each.heading for each in table.columns]
    return {
        heading: {row[0]: row[place] for row in table.rows}
        for place, heading in enumerate(headings)
        if heading != "metric"
    }


def test_an_epoch_is_the_mean_over_its_seeds(trained_results: StudyResults) -> None:
    assert trained_results.training is not None
    group = trained_results.training.groups[1]
    third = group.epochs[2]
    assert third.epoch == 3
    assert third.test_accuracy is not None
    assert third.test_accuracy.n == 3
    known = [run.epochs[2].test_accuracy or 0.0 for run in group.runs]
    assert third.test_accuracy.value == pytest.approx(fmean(known))
    table = epochs_table(trained_results)
    row = dict(zip((column.heading for column in table.columns), table.rows[4 + 2], strict=True))
    assert (row["trained on"], row["epoch"]) == ("2 devices, ddp", "3")
    assert row["test accuracy"].startswith(f"{100 * fmean(known):.2f}% [")


def test_one_device_and_several_stand_side_by_side(trained_results: StudyResults) -> None:
    assert trained_results.training is not None
    one, two = trained_results.training.groups
    columns = columns_of(trained_results)
    assert list(columns) == ["1 device", "2 devices, ddp", "speed-up", "change"]
    alone, several, faster, change = columns.values()
    (found,) = trained_results.training.comparisons
    assert found.epoch_speedup is not None
    assert found.difference_points is not None
    assert faster["time per epoch"].startswith(f"{found.epoch_speedup.value:.2f}x [")
    assert faster["samples/s"] == faster["time per epoch"]
    assert change["samples/s"].startswith(f"{100 * (found.epoch_speedup.value - 1):+.0f}% [")
    assert change["time per epoch"].startswith(f"{100 * (1 / found.epoch_speedup.value - 1):+.0f}% [")
    assert several["efficiency, epoch"].startswith(f"{found.epoch_speedup.value / 2:.0%} [")
    assert change["test accuracy"].startswith(f"{found.difference_points.value:+.2f} [")
    assert change["test accuracy"].endswith(f"] points, {found.parity}")
    assert not {"speed-up, epoch", "accuracy over one device"} & alone.keys()
    samples = trained_results.epoch_samples
    assert samples is not None
    assert alone["samples/s"].startswith(f"{samples / one.epoch_time_s.value:,.0f}"[:3])
    assert int(several["optimizer steps an epoch"]) == two.runs[0].epochs[-1].steps


def test_a_row_that_says_nothing_is_left_out(trained_results: StudyResults) -> None:
    """What is equal in every column stands in the caption, what nobody knows nowhere."""
    alone = columns_of(trained_results)["1 device"]
    assert not {"seeds", "epochs", "speed-up over the default"} & alone.keys()
    assert "After 4 epochs, n = 3 seeds" in training_table({"": trained_results}).caption


def test_memory_utilization_and_samples_of_a_device_are_rows(trained_results: StudyResults) -> None:
    alone, several, *_ = columns_of(trained_results).values()
    assert (alone["samples per device"], several["samples per device"]) == ("1,000", "500")
    assert trained_results.training is not None
    most = max(trained_results.training.groups[1].runs[0].result.device_memory_bytes or ())
    assert several["peak memory"] == f"{most / 2**20:,.0f} MiB"
    assert several["utilization"].startswith("90")


def test_the_caption_says_that_times_leave_out_the_first_of_several_epochs(
    trained_results: StudyResults,
) -> None:
    words = "Times of an epoch leave out the first, which warms up."
    assert words in training_table({"": trained_results}).caption
    plan, records = trained_study(FakeLearning(), training={"epochs": 1})
    assert words not in training_table({"": analyse(plan.study, records)}).caption


def test_losses_and_accuracies_stay_in_their_rows_though_nothing_is_learned() -> None:
    plan, records = trained_study(FakeLearning(accuracy=0.0, spread=0.0))
    table = without_constant(epochs_table(analyse(plan.study, records)))
    shown = {column.heading for column in table.columns}
    assert shown >= {"train loss", "train accuracy", "test loss", "test accuracy", "time"}


def test_without_a_metric_epochs_have_no_accuracies() -> None:
    plan, records = trained_study(FakeLearning())
    unknown = {"train_correct": None, "test_correct": None}
    blind = [
        each.model_copy(
            update={
                "result": each.training.model_copy(
                    update={"epochs": tuple(one.model_copy(update=unknown) for one in each.training.epochs)}
                )
            }
        )
        for each in records
        if each.training is not None
    ]
    table = epochs_table(analyse(plan.study, blind))
    assert [column.heading for column in table.columns][2:] == ["train loss", "test loss", "time"]


def test_the_most_devices_are_never_left_out() -> None:
    """As 4 GPUs with all changes, which was what the comparison had been made for."""
    results = cured_study(devices=8)
    most = {"8 devices, ddp", "8 devices, ddp, batch 512, accumulation 4"}
    columns = columns_of(results).keys()
    assert most < columns
    assert "2 devices, ddp, batch 512, accumulation 4" not in columns
    assert most < {row[0] for row in epochs_table(results).rows}
    figure = draw_training(results)
    assert figure is not None
    assert most < set(figure.axes[0].get_legend_handles_labels()[1])
    headings = {each.heading for each in training_table({"one": results, "other": results}).columns}
    assert {f"{name}: {each}" for name in ("one", "other") for each in most} < headings


def test_tables_and_plots_hold_every_group():
    plan, records = trained_study(FakeLearning(), devices=4)
    results = analyse(plan.study, records)
    assert list(columns_of(results)) == ["1 device", "2 devices, ddp", "4 devices, ddp"]
    assert len(epochs_table(results).rows) == 12
    figure = draw_training(results)
    assert figure is not None
    for axes in figure.axes:
        assert axes.get_legend_handles_labels()[1] == ["1 device", "2 devices, ddp", "4 devices, ddp"]
    assert "training" in {plot.name for plot in make_sections(results)["training"].plots}


def test_without_training_there_is_no_section():
    plan, records = trained_study(FakeLearning(), training=None)
    results = analyse(plan.study, records)
    assert results.training is None
    assert not training_table({"": results}).rows
    assert not epochs_table(results).rows
    assert draw_training(results) is None


def test_a_cure_stands_beside_the_default_in_tables_plots_and_answer():
    results = cured_study()
    words = "batch 512, accumulation 4"
    columns = columns_of(results)
    assert list(columns) == ["1 device", "2 devices, ddp", f"1 device, {words}", f"2 devices, ddp, {words}"]
    default, changed = columns["2 devices, ddp"], columns[f"2 devices, ddp, {words}"]
    assert (default["global batch"], changed["global batch"]) == ("32", "512")
    assert default["accuracy over the default"] == NONE
    assert changed["accuracy over the default"].startswith("+1.0")
    assert changed["speed-up over the default"].startswith("2.82x")  # 160 steps of 15 ms against 10 of 85
    said = f"Accuracy with {words} is 1.00 points above that of the default"
    assert said in answer_of(results)


def test_trainings_of_several_studies_stand_side_by_side(
    trained_results: StudyResults, tmp_path: Path
) -> None:
    spec = study(knobs={"batch_size": [32]})
    untrained = analyse(spec, grid(spec, (1, 2))[0])
    named = {"one": trained_results, "cured": cured_study(), "untrained": untrained}
    headings = [each.heading for each in training_table(named).columns]
    assert headings[:4] == ["metric", "one: 1 device", "one: 2 devices, ddp", "cured: 1 device"]
    assert len(headings) == 7
    assert not any(heading.startswith("untrained") for heading in headings)
    sides = [Side(name, results, MACHINE) for name, results in named.items()]
    write_comparison(tmp_path, sides, "compare")
    assert "## Training" in (tmp_path / "report.md").read_text()


def test_a_table_stays_narrow_and_says_what_it_leaves_out(trained_results: StudyResults) -> None:
    table = training_table(dict.fromkeys("abcde", trained_results))
    assert len(table.columns) == 8
    assert "3 more settings in epochs.csv" in table.caption


def test_what_the_seeds_leave_open_is_said_with_how_many_would_tell() -> None:
    """A difference that is shown, of which it is not known whether it is more than what counts."""
    group = SimpleNamespace(epochs=(1, 2), runs=[SimpleNamespace(spec=SimpleNamespace(epochs=2))])
    comparison: Any = SimpleNamespace(
        difference_points=Estimate(-0.27, -0.53, -0.01, 3), parity=Verdict.UNKNOWN, tolerance_points=0.4,
        num_seeds=3, noise_points=1.0, seeds_to_tell=5, group=group,
    )  # fmt: skip
    open_ = "3 seeds leave open whether by more than 0.4 points (5 would tell)"
    said = f"accuracy on two is 0.27 points below that on one, and {open_}"
    assert _parity_of(comparison, "on two", "on one") == said
