"""Costs: columns that are there only where there is something to say."""

from __future__ import annotations

from raybench.analysis import analyse
from raybench.report.tables.cost import cost_table
from raybench.testing import QUIET, FakeLearning, FakeRunner
from tests.unit.studies import SIXTEEN_TENTHS, grid, planted, study, trained


def test_what_runs_save_are_the_last_columns() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", cost={"price_per_device_hour": 1.5, "runs": 4})
    assert [column.heading for column in cost_table(found).columns][-2:] == [
        "4 runs save",
        "4 runs save, money",
    ]


def test_a_study_of_ones_own_that_trains_has_costs_of_an_epoch_and_of_a_run() -> None:
    spec = study(
        workload={"name": "vision", "input": "real"}, knobs={"batch_size": [32]}, training={"epochs": 7}
    )
    learning = FakeLearning(num_train=5_000)
    records = [
        *grid(spec, (1, 2), FakeRunner(noise=QUIET, learning=learning))[0],
        *trained(spec, (1, 2), learning),
    ]
    rows = cost_table(analyse(spec, records)).rows
    text = " ".join(cell for row in rows for cell in row)
    assert "an epoch of 5,000 samples" in text
    assert "a run of 7 epochs" in text


def test_energy_is_shown_where_it_was_measured() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    metered = [
        record.model_copy(update={"result": record.steps.model_copy(update={"energy_joules": 6.4})})
        for record in found.records
        if record.steps is not None
    ]
    again = analyse(found.study, metered)
    assert "energy, kJ" in [column.heading for column in cost_table(again).columns]
    assert "energy, kJ" not in [column.heading for column in cost_table(found).columns]
