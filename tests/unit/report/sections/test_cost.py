"""Costs: columns that are there only where there is something to say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raybench.records.record import TrialRecord
from raybench.report.sections.cost import cost_table
from raybench.report.table import NONE, without_constant
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeLearning, FakeRunner, StepCosts
from tests.unit.studies import SIXTEEN_TENTHS, grid, metered, planted, study, trained


@pytest.mark.parametrize(
    ("price", "headings"),
    [
        (None, ["time", "device-time", "device-time over one's", "time saved in 1 and 10 runs"]),
        (1.5, ["time", "cost", "device-time", "time saved in 1 and 10 runs", "money saved in 1 and 10 runs"]),
    ],
)
def test_device_time_is_shown_with_a_price_and_without(price: float | None, headings: list[str]) -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size", cost={"price_per_device_hour": price})
    table = cost_table(found)
    last = dict(zip([column.heading for column in table.columns], table.rows[-1], strict=True))
    assert [name for name, cell in last.items() if cell != NONE] == ["devices", "setting", *headings]
    assert last["time saved in 1 and 10 runs"].startswith("117 s, 19.5 min [")  # of 312.5 s


def test_a_study_of_ones_own_that_trains_has_the_costs_of_a_run() -> None:
    spec = study(
        workload={"name": "vision", "input": "real"}, knobs={"batch_size": [32]}, training={"epochs": 7}
    )
    learning = FakeLearning(num_train=5_000)
    records = [
        *grid(spec, (1, 2), FakeRunner(noise=QUIET, learning=learning))[0],
        *trained(spec, (1, 2), learning),
    ]
    table = cost_table(analyse(spec, records))
    assert table.caption.startswith("A run is 7 epochs.")
    assert [row[0] for row in table.rows] == ["1", "2"]


def test_energy_is_shown_where_it_was_measured() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    again = analyse(found.study, metered(found.records, 6.4))
    assert "energy, kJ" in [column.heading for column in without_constant(cost_table(again)).columns]
    assert "energy, kJ" not in [column.heading for column in without_constant(cost_table(found)).columns]


def test_epochs_that_were_trained_make_a_run() -> None:
    """As 3.84 s [2.83, 5.21] for the run of three epochs that had just been trained in 5.60 s."""
    spec = study(
        workload={"name": "vision", "input": "real"},
        knobs={"batch_size": [32]},
        training={"epochs": 3},
        cost={"price_per_device_hour": 1.2},
    )
    learning = FakeLearning(num_train=5_000)
    runs = trained(spec, (1, 2), learning)
    slow = [_slower(each, 3.0 if each.config.world_size == 2 else 1.0) for each in runs]
    results = analyse(spec, [*grid(spec, (1, 2), FakeRunner(noise=QUIET, learning=learning))[0], *slow])
    table = cost_table(results)
    assert [row[0] for row in table.rows] == ["1", "2"]
    assert "By the epochs trained" in table.caption
    point = next(each for each in results.costs if each.at.world_size == 2)
    (by_seed,) = [each for each in slow if each.config.world_size == 2]
    assert by_seed.training is not None
    taken_s = sum(epoch.train_s for epoch in by_seed.training.epochs)
    assert point.is_trained
    assert point.cost.time_s.value == pytest.approx(taken_s)
    assert point.cost.device_s.value == pytest.approx(2 * taken_s)


def test_the_ratio_of_what_was_trained_is_that_of_its_own_row() -> None:
    """As 1.08 s on one device, 1.90 s of two devices' time, and "1.53x", which was of all but epoch 1."""
    spec = study(
        workload={"name": "vision", "input": "real"}, knobs={"batch_size": [32]}, training={"epochs": 3}
    )
    learning = FakeLearning(num_train=5_000)
    runs = [
        _slower(each, 5.0 if each.config.world_size == 2 else 1.0, num_epochs=1)
        for each in trained(spec, (1, 2), learning)
    ]
    results = analyse(spec, [*grid(spec, (1, 2), FakeRunner(noise=QUIET, learning=learning))[0], *runs])
    one, two = results.costs
    assert two.is_trained
    assert two.device_time_ratio is not None
    ratio = two.device_time_ratio.value
    assert ratio == pytest.approx(two.cost.device_s.value / one.cost.time_s.value)
    table = cost_table(results)
    place = [column.heading for column in table.columns].index("device-time over one's")
    assert [row[place] for row in table.rows if row[0] == "2"] == [f"{ratio:.2f}x"]


def _slower(record: TrialRecord, factor: float, num_epochs: int | None = None) -> TrialRecord:
    """Its epochs, or the first so many of them, took so many times as long."""
    assert record.training is not None
    first = record.training.epochs[:num_epochs]
    slower = [each.model_copy(update={"train_s": each.train_s * factor}) for each in first]
    epochs = (*slower, *record.training.epochs[len(first) :])
    return record.model_copy(update={"result": record.training.model_copy(update={"epochs": epochs})})


def test_one_device_that_was_measured_beside_several_only_has_its_row() -> None:
    """As a winner whose one device the time budget left out: its ratio had nothing beside it."""
    spec = study(knobs={"batch_size": [32]})
    table = cost_table(analyse(spec, grid(spec, (2,), FakeRunner(noise=QUIET))[0]))
    place = [column.heading for column in table.columns].index("devices")
    assert [row[place] for row in table.rows] == ["1", "2"]


def test_numbers_of_devices_are_compared_without_one_device() -> None:
    """Where one device was not measured, nothing is over it."""
    spec = study(scaling={"world_sizes": [2, 4]}, knobs={"batch_size": [64]})
    costs = StepCosts(plain_s=0.01, missing={"plain": "out of memory"})
    runner = FakeRunner(lambda config, _: replace(costs, exposed_s=config.world_size * 1e-3), QUIET)
    table = without_constant(cost_table(analyse(spec, grid(spec, (2, 4), runner)[0])))
    assert [column.heading for column in table.columns] == ["devices", "time", "device-time"]
    assert [row[0] for row in table.rows] == ["2", "4"]
    assert cost_table(analyse(spec, grid(spec, (2,), runner)[0])).rows == ()
