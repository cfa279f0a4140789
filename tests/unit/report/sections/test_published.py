"""Published figures next to measured ones, as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raybench.analysis.phases import SYNCHRONIZATION
from raybench.analysis.published import load_figures, published_rows
from raybench.analysis.results import StudyResults
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.training import training_requests
from raybench.records.requests import Configuration
from raybench.report.document import write_report
from raybench.report.sections.published import published_table
from raybench.report.table import Table
from raybench.spec.knobs import Setting
from tests.corpus.words import unfolded
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeLearning, FakeRunner, StepCosts, run_all
from tests.unit.studies import SIXTEEN_TENTHS, grid, study, trained

STEP_S = {32: 0.005, 256: 0.01, 4096: 0.08}  # of one device


def costs(config: Configuration, setting: Setting) -> StepCosts:
    return StepCosts(plain_s=STEP_S[setting.batch_size], exposed_s=0.02)


SHORT = study(
    name="distilbert_ag_news",
    workload={"name": "vision", "input": "real", "samples": 640},
    knobs={"batch_size": 32},
    training={"epochs": 2},
)


def rows_of(table: Table) -> list[dict[str, str]]:
    """Each row by its headings."""
    return [dict(zip([c.heading for c in table.columns], row, strict=True)) for row in table.rows]


def named(table: Table, quantity: str) -> list[dict[str, str]]:
    """The rows of a quantity."""
    return [row for row in rows_of(table) if row["quantity"].partition(",")[0] == quantity]


def measured(name: str, *batches: int) -> StudyResults:
    spec = study(name=name, knobs={"batch_size": list(batches)})
    return analyse(spec, grid(spec, (1, 2), FakeRunner(costs, QUIET))[0])


def test_a_study_of_ones_own_has_no_such_table() -> None:
    assert published_table(measured("mine", 256)).rows == ()


def test_another_batch_and_world_size_are_named() -> None:
    row = named(published_table(measured("resnet50_cifar10", 4096, 256)), "speed-up of step time")[0]
    assert row["quantity"].endswith(", ddp, batch 64")
    assert row["here"].endswith("(batch 4,096)")
    row = named(published_table(measured("transformer_imdb", 4096)), "speed-up")[0]
    assert row["hardware"] == "4 GPUs"
    assert row["here"].endswith("(2 devices)")
    row = named(published_table(measured("mlp_scaling", 256)), "speed-up of throughput")[0]
    assert row["here"].endswith("]")  # as published


def test_a_range_is_one_row_with_two_ends() -> None:
    table = published_table(measured("transformer_ag_news_tuned", 256, 4096))
    assert [row["published"] for row in named(table, "speed-up")] == ["2.8 to 3.2x*"]
    assert [row["published"] for row in named(table, "efficiency")] == ["75 to 80%* or 70 to 80%*"]
    assert named(table, "compute time")[0]["published"] == "120 to 150 ms*"


def test_prints_of_one_quantity_are_one_row_and_show_how_they_came_about() -> None:
    table = published_table(measured("distilbert_ag_news", 32))
    (row,) = named(table, "speed-up")
    assert row["published"] == "~1.75x or 1.78x"
    (time, _) = named(table, "epoch time")
    assert time["published"] == "~4.5 min or 270 s or 273 s*"
    assert "*: expected or computed" in table.caption


def test_the_values_are_those_of_the_trial() -> None:
    """The speed-up and the step time that were planted."""
    results = measured("mlp_scaling", 256)
    (row,) = named(published_table(results), "speed-up of throughput")
    record = next(each for each in results.complete if each.config.world_size == 2)
    speedup = results.scaling(record).speedup
    assert speedup is not None
    assert float(row["here"].partition("x")[0]) == pytest.approx(speedup.value, abs=0.005)


def test_rows_that_matter_come_first_and_no_cell_is_empty() -> None:
    for name in ("distilbert_ag_news", "mlp_scaling", "resnet50_cifar10", "transformer_imdb"):
        rows = rows_of(published_table(measured(name, 256, 4096)))
        assert rows[0]["quantity"].startswith("speed-up")
        assert all(cell.strip() for row in rows for cell in row.values())


def test_training_is_what_trained_figures_stand_next_to() -> None:
    results = analyse(SHORT, [*grid(SHORT, (1, 2))[0], *trained(SHORT, (1, 2), FakeLearning(num_train=640))])
    table = published_table(results)
    assert "Trained here: 2 epochs of 640 samples; published: 3 epochs of 120,000 samples." in table.caption
    assert all(named(table, quantity) for quantity in ("epoch time", "total time", "accuracy"))
    assert "†" not in table.caption
    assert not any("0.0" in row["here"] and " min" in row["here"] for row in rows_of(table))


def test_an_epoch_without_a_training_follows_from_the_steps() -> None:
    table = published_table(measured("distilbert_ag_news", 32, 256))
    cells = [row["here"] for row in named(table, "epoch time")]
    assert cells
    assert all(cell.endswith("†") for cell in cells)


def test_the_report_has_it_folded(tmp_path: Path) -> None:
    write_report(tmp_path, measured("resnet50_cifar10", 256, 4096))
    for kind in ("html", "md"):
        assert "on the hardware named" in (tmp_path / f"report/report.{kind}").read_text()
    assert "on the hardware named" not in unfolded((tmp_path / "report/report.md").read_text())


def test_toy_sizes_do_not_stand_next_to_published_figures() -> None:
    results = measured("resnet50_cifar10", 256)
    smoke = replace(results, study=results.study.model_copy(update={"is_smoke": True}))
    assert published_table(results).rows
    assert not published_table(smoke).rows


def test_compute_over_communication_is_the_ratio_of_two_other_rows() -> None:
    """As 14.4 ms over 3.54 ms next to a ratio of 7.0."""
    spec = study(name="transformer_ag_news", knobs={"batch_size": [32]})
    results = analyse(spec, grid(spec, (1, 2), FakeRunner(lambda *_: SIXTEEN_TENTHS, QUIET))[0])
    rows = published_rows(results, load_figures(spec.name))
    found = {row.figures[0].quantity: row.value.value for row in rows}
    assert found["compute_time"] == pytest.approx(0.011, rel=0.02)  # alone, and contention
    ratio = found["compute_time"] / found["communication_time"]
    assert found["compute_to_communication"] == pytest.approx(ratio)


def test_gradient_synchronization_has_its_share_of_the_step() -> None:
    """20 of 100 ms with the larger batch, the one next to the published 64."""
    results = measured("resnet50_cifar10", 256, 4096)
    rows = published_rows(results, load_figures(results.study.name))
    (row,) = [each for each in rows if each.figures[0].of == SYNCHRONIZATION]
    assert row.figures[0].quantity == "phase_share"
    assert row.value.value == pytest.approx(0.2, abs=0.01)


def test_phases_and_memory_stand_next_to_the_published_ones() -> None:
    results = measured("resnet50_cifar10", 256, 4096)
    table = published_table(results)
    shares = [row for row in rows_of(table) if row["quantity"].startswith("phase share of")]
    alone = {row["quantity"].split(",")[0]: row["here"] for row in shares if "MPS" in row["hardware"]}
    assert {name.rpartition(" ")[2] for name in alone} >= {"forward", "backward", "optimizer"}
    assert sum(float(cell.partition("%")[0]) for cell in alone.values()) == pytest.approx(100, abs=2)
    assert named(table, "memory") or named(table, "utilization")


def test_rows_of_one_place_are_of_one_setting() -> None:
    """A device has 64 samples with the larger batch, and with all changes, which are what is trained."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        step_s = 0.001 * config.batch_size
        return StepCosts(plain_s=step_s, base_s=step_s * config.world_size, exposed_s=0.005)

    spec = study(
        name="transformer_ag_news_tuned",
        workload={"name": "vision", "input": "real", "samples": 5120},
        scaling={"mode": "strong"},
        knobs={"batch_size": [32, 128], "gradient_accumulation": [1, 4]},
        search={"method": "ablation"},
        training={"epochs": 2},
    )
    plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
    requests = [*plan.trials(), *training_requests(plan)]
    runner = FakeRunner(costs, QUIET, learning=FakeLearning(num_train=5120))
    results = analyse(plan.study, run_all(runner, requests)[0])
    assert results.training is not None
    assert {each.config.batch_size for each in results.training.groups if each.world_size == 2} == {16, 64}
    table = published_table(results)
    assert {row["quantity"].partition(",")[0] for row in rows_of(table)} >= {"speed-up", "epoch time"}
    assert {row["setting here"] for row in rows_of(table)} == {"batch 128, accumulation 1"}
