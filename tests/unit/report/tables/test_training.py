"""Training trials epoch by epoch: what the table shows is what the records hold."""

from __future__ import annotations

from statistics import fmean

import pytest

from raybench.analysis.results import StudyResults
from raybench.report.tables.training import epochs_table, training_table


def test_an_epoch_is_the_mean_over_its_seeds(trained: StudyResults) -> None:
    assert trained.training is not None
    group = trained.training.groups[1]
    third = group.epochs[2]
    assert (third.epoch, third.num_seeds) == (3, 3)
    assert third.test_accuracy is not None
    known = [run.epochs[2].test_accuracy or 0.0 for run in group.runs]
    assert third.test_accuracy.value == pytest.approx(fmean(known))
    table = epochs_table(trained)
    row = dict(zip((column.heading for column in table.columns), table.rows[4 + 2], strict=True))
    assert (row["devices"], row["epoch"], row["seeds"]) == ("2", "3", "3")
    assert row["test accuracy"].startswith(f"{100 * fmean(known):.2f}% [")


def test_one_device_is_the_baseline_of_the_others(trained: StudyResults) -> None:
    one, two = training_table(trained).rows
    assert one[4:6] == ("", "baseline")
    assert two[4].endswith("]")
    assert two[-1] == "3"
