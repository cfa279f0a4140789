"""Phases, overheads, hiding, cost and attribution as tables, on planted costs."""

from __future__ import annotations

from raybench.analysis import analyse
from raybench.report.diagnosis import diagnosis_markdown
from raybench.report.tables.study import (
    attribution_table,
    cost_table,
    hiding_table,
    hiding_words,
    overheads_table,
    phases_table,
)
from raybench.report.when_to_use import when_to_use
from raybench.spec import Setting
from raybench.testing import QUIET, FakeLearning, FakeRunner
from tests.unit.studies import SIXTEEN_TENTHS, exactly, grid, measured, planted, study, trained


def test_compute_that_hides_communication_is_told() -> None:
    # exposed: 10% of the step at 10 ms of compute, 2% at 40 ms
    table = hiding_table(planted({(32,): exactly(0.9), (128,): exactly(0.98, 0.04)}, "batch_size"))
    assert "hidden from about 23.8 ms" in table.caption
    assert "between 10.0 ms and 40.0 ms (batch 32 and 128)" in table.caption


def test_hiding_that_is_not_reached_or_always_there_says_so() -> None:
    (never,) = planted({(32,): exactly(0.5), (128,): exactly(0.8, 0.04)}, "batch_size").hiding
    assert hiding_words(never) == "not reached up to 40.0 ms of compute in a step."
    (always,) = planted({(32,): exactly(0.97), (128,): exactly(0.99, 0.04)}, "batch_size").hiding
    assert hiding_words(always) == "hidden at every batch measured, from 10.0 ms of compute on."


def test_what_runs_save_is_the_last_column() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", cost={"price_per_device_hour": 1.5, "runs": 4})
    assert [column.heading for column in cost_table(found).columns][-1] == "4 runs save"


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


def test_knobs_changed_together_are_counted() -> None:
    costs = {(8, 1): exactly(0.4), (8, 4): exactly(0.5), (128, 1): exactly(0.6), (128, 4): exactly(0.9)}
    table = attribution_table(planted(costs, "batch_size", "gradient_accumulation"))
    assert table.rows[2][1].startswith("2 knobs")


def test_overheads_stand_side_by_side_with_intervals() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    (row,) = overheads_table(found).rows
    assert tuple(cell.replace(".0%", "%").replace(".0,", ",").replace(".0]", "]") for cell in row[2:7]) == (
        "2.50 [2.50, 2.50]",
        "20% [20, 20]",
        "1.00 [1.00, 1.00]",
        "8% [8, 8]",
        "25% [25, 25]",
    )


def test_phases_per_epoch_where_its_samples_are_known() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", workload={"name": "vision", "samples": 6400})
    table = phases_table(found)
    assert [column.heading for column in table.columns][-2:] == [
        "one device, s an epoch",
        "2 devices, s an epoch",
    ]
    forward = next(row for row in table.rows if row[0] == "forward")
    assert forward[-2:] == ("0.600 [0.600, 0.600]", "0.345 [0.345, 0.345]")
    without = phases_table(planted({(32,): SIXTEEN_TENTHS}, "batch_size"))
    assert len(without.columns) == 5


def test_one_device_or_nothing_has_no_such_table() -> None:
    for records in ([], [measured(SIXTEEN_TENTHS, world_size=1, setting=Setting(strategy="single"))]):
        found = analyse(study(knobs={"batch_size": [32]}), records)
        tables = (
            phases_table(found),
            overheads_table(found),
            hiding_table(found),
            cost_table(found),
            attribution_table(found),
        )
        assert [table.rows for table in tables] == [()] * 5
        assert when_to_use(found) == ""
        assert diagnosis_markdown(found).startswith("# Diagnosis: fake")
