"""Published figures beside measured ones, and where the write-ups contradict themselves, as tables."""

from __future__ import annotations

from pathlib import Path

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.records.requests import Configuration
from raybench.report.document import write_report
from raybench.report.tables.base import Table, without_constant
from raybench.report.tables.published import (
    contradictions_table,
    departures_table,
    further_published_table,
    published_table,
)
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeLearning, FakeRunner, StepCosts
from tests.unit.studies import grid, study, trained

STEP_S = {256: 0.01, 4096: 0.08}  # of one device


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
    return [row for row in rows_of(table) if row["quantity"] == quantity]


def measured(name: str, *batches: int) -> StudyResults:
    spec = study(name=name, knobs={"batch_size": list(batches)})
    return analyse(spec, grid(spec, (1, 2), FakeRunner(costs, QUIET))[0])


def test_a_study_of_ones_own_has_no_such_table() -> None:
    results = measured("mine", 256)
    assert published_table(results).rows == ()
    assert contradictions_table(results).rows == ()


def test_another_batch_is_named() -> None:
    (row,) = named(further_published_table(measured("resnet50_cifar10", 4096, 256)), "speed-up of step time")
    assert "batch 64 per device" in row["there"]
    assert "2 CPU workers; batch 4,096 per device" in row["here"]


def test_another_world_size_is_named() -> None:
    row = named(published_table(measured("transformer_imdb", 4096)), "speed-up")[0]
    assert (row["there"][:13], row["here"][:13]) == ("ddp on 4 GPUs", "2 CPU workers")


def test_where_it_was_measured_stays_in_the_row_though_it_is_the_same_in_all() -> None:
    table = without_constant(published_table(measured("mlp_scaling", 256)))
    assert {"there", "here"} <= {column.heading for column in table.columns}
    (row,) = named(table, "speed-up of throughput")
    assert row["there"] == "ddp on 2x NVIDIA V100-PCIE-16GB; batch 256 per device; MLP 4096-4096-2048"
    assert row["here"] == "2 CPU workers; batch 256 per device; MLP 1024-1024-512, 3 layers"


def test_a_range_is_one_row_with_two_ends() -> None:
    results = measured("transformer_ag_news_tuned", 256, 4096)
    (speedup,) = named(published_table(results), "speed-up")
    assert speedup["published"] == "2.8 to 3.2x"
    every = [
        *named(published_table(results), "efficiency"),
        *named(further_published_table(results), "efficiency"),
    ]
    assert {row["published"] for row in every} == {"75 to 80%", "70 to 80%"}  # it says both
    assert named(further_published_table(results), "compute time")[0]["published"] == "120 to 150 ms"


def test_few_rows_that_matter_come_first_and_none_is_lost() -> None:
    results = measured("resnet50_cifar10", 256, 4096)
    first, further = (make(results).rows for make in (published_table, further_published_table))
    assert {row[0].partition(" of ")[0] for row in first} <= {
        "speed-up", "efficiency", "throughput", "epoch time", "total time", "accuracy"
    }  # fmt: skip
    assert 0 < len(first) < 12 < len(further)
    assert not set(first) & set(further)


def test_no_cell_is_empty() -> None:
    for name in ("distilbert_ag_news", "mlp_scaling", "resnet50_cifar10", "transformer_imdb"):
        results = measured(name, 256, 4096)
        for table in (published_table(results), further_published_table(results)):
            assert all(cell.strip() for row in table.rows for cell in row)


def test_a_time_is_said_in_a_unit_that_suits_it() -> None:
    """A run that took minutes there takes seconds here: no 0.0499 min."""
    results = analyse(SHORT, [*grid(SHORT, (1, 2))[0], *trained(SHORT, (1, 2), FakeLearning(num_train=640))])
    cells = [
        row["measured here"]
        for table in (published_table(results), further_published_table(results))
        for row in named(table, "total time")
    ]
    assert any(cell.endswith((" s", " ms")) for cell in cells)
    assert not any("0.0" in cell and " min" in cell for cell in cells)


def test_write_ups_have_title_author_and_place_as_far_as_they_are_known() -> None:
    def caption(name: str) -> str:
        return published_table(measured(name, 256)).caption

    assert '"DDP 2-GPU Benchmark Results" (author not named, a notebook on Kaggle' in caption(
        "distilbert_ag_news"
    )
    assert 'DistributedDataParallel" (by Wenuka, github.com/Wenuka' in caption("strategies_resnet_cifar10")
    assert "(author not named, place not named, undated)" in caption("transformer_imdb")


def test_how_long_was_trained_here_and_there_is_told() -> None:
    spec = SHORT
    learning = FakeLearning(num_train=640)
    results = analyse(spec, [*grid(spec, (1, 2))[0], *trained(spec, (1, 2), learning)])
    words = "Trained here: 2 epochs of 640 samples; published: 3 epochs of 120,000 samples."
    assert words in published_table(results).caption


def test_the_report_has_both_sections(tmp_path: Path) -> None:
    results = measured("resnet50_cifar10", 256, 4096)
    write_report(tmp_path, results, {})
    for kind in ("html", "md"):
        text = (tmp_path / f"report/report.{kind}").read_text()
        assert "Published beside measured" in text
        assert "Their hardware is not this one" in text
        assert "Where the published figures contradict themselves" in text
        assert "6.15x stated, a parallel fraction of 95% makes 5.93x" in text


def test_what_is_not_measured_here_says_why_and_what_is_undated_says_so() -> None:
    results = measured("distilbert_ag_news", 256)
    accuracy = named(further_published_table(results), "train accuracy")[0]
    assert accuracy["which was"] == "measured, undated, approximate"
    assert accuracy["measured here"] == "not here: no model was trained"
    assert "free tier, undated, its line for the date" in published_table(results).caption
    dated = measured("resnet50_cifar10", 256)
    assert "an assignment, 2026-02-14, " in published_table(dated).caption
    computed = [
        row["which was"]
        for row in rows_of(further_published_table(dated))
        if row["published"] in ("1.03 USD", "36.4 min")
    ]
    assert set(computed) == {"computed"}


def test_where_a_study_is_not_the_write_ups_is_told() -> None:
    table = departures_table(measured("resnet50_cifar10", 256))
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["optimizer.learning_rate"] == ("0.01", "0.1")
    assert cells["knobs.precision"] == ('"fp32"', "does not say")
    assert departures_table(measured("mine", 256)).rows == ()
