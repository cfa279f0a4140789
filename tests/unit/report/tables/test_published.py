"""Published figures beside measured ones, and where the write-ups contradict themselves, as tables."""

from __future__ import annotations

from pathlib import Path

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.records.requests import Configuration
from raybench.report.document import write_report
from raybench.report.tables.published import contradictions_table, departures_table, published_table
from raybench.spec import Setting
from raybench.testing import QUIET, FakeLearning, FakeRunner, StepCosts
from tests.unit.studies import grid, study, trained

STEP_S = {256: 0.01, 4096: 0.08}  # of one device


def costs(config: Configuration, setting: Setting) -> StepCosts:
    return StepCosts(plain_s=STEP_S[setting.batch_size], exposed_s=0.02)


def measured(name: str, *batches: int) -> StudyResults:
    spec = study(name=name, knobs={"batch_size": list(batches)})
    return analyse(spec, grid(spec, (1, 2), FakeRunner(costs, QUIET))[0])


def test_a_study_of_ones_own_has_no_such_table() -> None:
    results = measured("mine", 256)
    assert published_table(results).rows == ()
    assert contradictions_table(results).rows == ()


def test_another_batch_is_named() -> None:
    table = published_table(measured("resnet50_cifar10", 4096, 256))
    (cell,) = {row[7] for row in table.rows if row[0] == "speed-up of step time"}
    assert cell.endswith("at batch 4,096")


def test_another_world_size_is_named() -> None:
    assert "on 2 devices" in published_table(measured("transformer_imdb", 4096)).rows[0][7]


def test_how_long_was_trained_here_and_there_is_told() -> None:
    spec = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 640},
        knobs={"batch_size": 32},
        training={"epochs": 2},
    )
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
    table = published_table(measured("distilbert_ag_news", 256))
    (accuracy, *_) = (row for row in table.rows if row[0] == "train accuracy")
    assert accuracy[6:8] == ("measured, undated, approximate", "not here: no model was trained")
    assert "000 DDP 2-GPU Benchmark Results (undated, its line for the date" in table.caption
    dated = published_table(measured("resnet50_cifar10", 256))
    assert "(2026-02-14, " in dated.caption
    assert {row[6] for row in dated.rows if row[5] in ("1.03 USD", "36.4 min")} == {"computed"}


def test_where_a_study_is_not_the_write_ups_is_told() -> None:
    table = departures_table(measured("resnet50_cifar10", 256))
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["optimizer.learning_rate"] == ("0.01", "0.1")
    assert cells["knobs.precision"] == ('"fp32"', "does not say")
    assert departures_table(measured("mine", 256)).rows == ()
