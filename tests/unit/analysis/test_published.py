"""Published figures: the files against their write-ups, the pairing, and the contradictions by arithmetic."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from raybench.analysis.contradictions import Rule, contradictions

from raybench.analysis import analyse
from raybench.analysis.published import Figure, half_digit, load_figures
from raybench.analysis.published_pairs import Pair, pairs
from raybench.analysis.results import StudyResults
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.records.requests import Configuration
from raybench.report import write_report
from raybench.report.tables.published import contradictions_table, published_table
from raybench.spec import Setting, Study
from raybench.testing import QUIET, FakeLearning, FakeRunner, StepCosts, run_all
from tests.unit.studies import grid, study

STUDIES = (
    "mlp_scaling",
    "distilbert_ag_news",
    "resnet50_cifar10",
    "strategies_resnet_cifar10",
    "transformer_imdb",
    "transformer_ag_news",
    "transformer_ag_news_tuned",
)
STEP_S = {256: 0.01, 4096: 0.08}  # of one device


def costs(config: Configuration, setting: Setting) -> StepCosts:
    return StepCosts(plain_s=STEP_S[setting.batch_size], exposed_s=0.02)


def measured(spec: Study, sizes: tuple[int, ...] = (1, 2)) -> StudyResults:
    return analyse(spec, grid(spec, sizes, FakeRunner(costs, QUIET))[0])


def beside(found: tuple[Pair, ...], quantity: str, size: int, batch: int | None) -> Pair:
    return next(
        pair
        for pair in found
        if (pair.figure.quantity, pair.figure.world_size, pair.figure.batch_size) == (quantity, size, batch)
    )


@pytest.fixture(scope="module")
def mlp() -> StudyResults:
    return measured(study(name="mlp_scaling", knobs={"batch_size": [256, 4096]}))


@pytest.mark.parametrize("name", STUDIES)
def test_each_figure_stands_in_its_write_up(name: str, data_dir: Path) -> None:
    folder = data_dir.parent / "published"
    if not folder.is_dir():
        pytest.skip("the write-ups are not here")
    figures = load_figures(name)
    assert figures
    (path,) = folder.glob(f"{figures[0].source[:3]}_*.txt")
    text = path.read_text(encoding="utf-8")
    for figure in figures:
        whole, point, decimals = figure.printed.partition(".")
        commas = f"{int(whole):,}" if whole.isdigit() else whole
        minutes, seconds = divmod(int(figure.value), 60) if figure.unit == "s" else (0, 0)
        ways = {figure.printed, f"{commas}{point}{decimals}", f"{minutes}m {seconds:02d}s"}
        patterns = (re.escape(way) + ("0*" if "." in way else "") for way in ways)
        assert any(re.search(rf"(?<![\d.]){pattern}(?!\d)", text) for pattern in patterns), figure


def test_projected_figures_are_flagged() -> None:
    for figure in load_figures("resnet50_cifar10"):
        if figure.world_size is not None and figure.quantity != "runs":
            assert figure.projected == (figure.world_size > 1), figure
    assert all(figure.projected for figure in load_figures("transformer_ag_news_tuned"))
    assert not any(figure.projected for figure in load_figures("transformer_ag_news"))


def test_a_study_of_ones_own_has_none(mlp: StudyResults) -> None:
    assert load_figures("default") == ()
    assert published_table(mlp, ()).rows == ()
    assert contradictions_table(()).rows == ()


def test_measured_figures_stand_beside_published_ones_in_their_unit(mlp: StudyResults) -> None:
    found = pairs(mlp, load_figures("mlp_scaling"))
    step = beside(found, "step_time", 2, 256)
    assert step.figure.words == "41.40 ms"
    assert step.measured is not None
    assert step.measured.value == pytest.approx(30.0)
    assert step.measured.low is not None
    assert step.measured.n == 10
    one = beside(found, "throughput", 1, 4096).measured
    assert one is not None
    assert one.value == pytest.approx(4096 / 0.08)
    speedup, efficiency = (beside(found, name, 2, 4096).measured for name in ("speedup", "efficiency"))
    assert speedup is not None
    assert efficiency is not None
    assert speedup.value == pytest.approx(1.6)
    assert efficiency.value == pytest.approx(80)
    assert beside(found, "speedup", 2, 256).measured is not None


def test_what_was_not_measured_has_nothing_beside_it() -> None:
    results = measured(study(name="mlp_scaling", knobs={"batch_size": [256]}), (2,))
    found = pairs(results, load_figures("mlp_scaling"))
    assert beside(found, "throughput", 2, 4096).measured is None
    one = beside(found, "throughput", 1, 256).measured  # in the rounds of the trial on two
    assert one is not None
    assert one.value == pytest.approx(25_600)


def test_epoch_times_come_from_training_else_from_steps() -> None:
    spec = study(name="distilbert_ag_news", knobs={"batch_size": [256]})
    results = measured(spec)
    figures = [replace(figure, batch_size=None) for figure in load_figures("distilbert_ag_news")]
    epoch = beside(pairs(results, figures), "epoch_time", 1, None).measured
    assert epoch is not None
    assert epoch.value == pytest.approx(120_000 / 25_600)
    assert epoch.derived
    trained = tuple(replace(row, epoch_time_s=100.0, accuracy=0.9) for row in results.summaries)
    found = pairs(replace(results, summaries=trained), figures)
    epoch, total = (beside(found, name, 1, None).measured for name in ("epoch_time", "total_time"))
    assert epoch is not None
    assert total is not None
    assert (epoch.value, epoch.low, epoch.derived) == (100.0, None, "")
    assert total.value == 300.0
    accuracy = beside(found, "accuracy", 2, None).measured
    assert accuracy is not None
    assert accuracy.value == pytest.approx(90)
    assert all(pair.measured is None for pair in found if pair.figure.epoch is not None)


def test_batches_that_were_not_published_stand_beside_the_largest_published_one() -> None:
    results = measured(study(name="resnet50_cifar10", knobs={"batch_size": [4096, 256]}))
    figures = load_figures("resnet50_cifar10")
    speedup = beside(pairs(results, figures), "speedup", 2, 64).measured
    assert speedup is not None
    assert speedup.batch_size == 4096
    (cell,) = {row[7] for row in published_table(results, figures).rows if row[0] == "speed-up of step time"}
    assert cell.endswith("at batch 4,096")


def test_what_a_training_learned_stands_beside_the_published_epochs() -> None:
    spec = study(
        name="distilbert_ag_news",
        workload={"name": "vision", "input": "real", "samples": 640},
        knobs={"batch_size": 32},
        training={"epochs": 2},
    )
    plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
    runner = FakeRunner(noise=QUIET, learning=FakeLearning())
    results = analyse(spec, run_all(runner, [*plan.requests(), *plan.training()])[0])
    figures = load_figures("distilbert_ag_news")
    beside_ = {
        (p.figure.quantity, p.figure.of, p.figure.epoch): p.measured
        for p in pairs(results, figures)
        if p.figure.world_size == 2
    }
    (trained,) = [r.training for r in results.records if r.training and r.config.world_size == 2]
    for number, epoch in enumerate(trained.epochs, start=1):
        learned = {
            "accuracy": 100 * (epoch.test_accuracy or 0),
            "train_loss": epoch.train_loss,
            "epoch_time": epoch.train_s,
        }
        for quantity, value in learned.items():
            found = beside_[quantity, "", number]
            assert found is not None
            assert found.value == pytest.approx(value)
    assert beside_["accuracy", "", 3] is None  # only two epochs were trained
    assert results.training is not None
    (comparison,) = results.training.comparisons
    speedup = beside_["speedup", "total_time", None]
    assert speedup is not None
    assert comparison.total_speedup is not None
    assert speedup.value == pytest.approx(comparison.total_speedup.value)
    words = "Trained here: 2 epochs of 640 samples; published: 3 epochs of 120,000 samples."
    assert words in published_table(results, figures).caption


def test_other_world_sizes_stand_beside_the_smallest_published_one() -> None:
    results = measured(study(name="transformer_imdb", knobs={"batch_size": [4096]}))
    figures = load_figures("transformer_imdb")
    measured_ = beside(pairs(results, figures), "speedup", 4, None).measured
    assert measured_ is not None
    assert measured_.world_size == 2
    assert "on 2 devices" in published_table(results, figures).rows[0][7]


def test_the_report_has_both_sections(mlp: StudyResults, tmp_path: Path) -> None:
    spec = mlp.study.model_copy(update={"name": "resnet50_cifar10"})
    write_report(tmp_path, spec, mlp.records, {})
    for kind in ("html", "md"):
        text = (tmp_path / f"report/report.{kind}").read_text()
        assert "Published beside measured" in text
        assert "Their hardware is not this one" in text
        assert "Where the published figures contradict themselves" in text
        assert "6.15x stated, a parallel fraction of 95% makes 5.93x" in text


def of(name: str, rule: Rule, size: int | None = 2) -> list[str]:
    found = contradictions(load_figures(name))
    return [each.evidence for each in found if each.rule is rule and each.world_size == size]


def test_steady_write_ups_have_no_contradiction() -> None:
    for name in ("mlp_scaling", "strategies_resnet_cifar10", "transformer_imdb", "transformer_ag_news"):
        assert contradictions(load_figures(name)) == (), name


def test_the_amdahl_table_is_recomputed() -> None:
    found = [c for c in contradictions(load_figures("resnet50_cifar10")) if c.rule is Rule.AMDAHL]
    table = {c.world_size: c.expected for c in found if c.stated[0].quantity == "amdahl_speedup"}
    assert table == {8: pytest.approx(5.926, abs=1e-3), 16: pytest.approx(9.143, abs=1e-3)}
    assert [c.world_size for c in found if c.stated[0].quantity == "speedup"] == [16]  # above its own limit


def test_the_distributed_figures_that_do_not_fit() -> None:
    name = "resnet50_cifar10"
    values = of(name, Rule.ONE_VALUE)
    assert any("speed-up" in each and "1.78x beside 2.02x" in each for each in values)
    assert any("communication fraction" in each and "3.7% beside 11%" in each for each in values)
    assert any("89% beside 99%" in each for each in values)
    assert "2,469.67 s stated, 10 epochs of 218.53 s makes 2,185 s" in of(name, Rule.EPOCHS, 1)[0]
    assert of(name, Rule.EPOCHS, 2) == []  # 1,224 s is ten times 122.4 s
    assert "makes 229 samples/s" in of(name, Rule.THROUGHPUT, 1)[0]
    assert "makes 409 samples/s" in of(name, Rule.THROUGHPUT)[0]
    assert "makes 0.91 USD" in of(name, Rule.COST, 1)[0]
    assert "makes 46.2 device-min" in of(name, Rule.DEVICE_TIME)[0]
    shares = of(name, Rule.GAIN)
    assert [each.rsplit(" ", 1)[1] for each in shares] == ["41.6%", "48.9%", "13.5%", "91.5%"]
    assert of(name, Rule.PHASES, 1) == of(name, Rule.PHASES) == of(name, Rule.SHARE) == []
    assert of(name, Rule.SAVINGS) == of(name, Rule.RATIO) == []
    assert "0.2 stated" in of(name, Rule.LINEAR)[0]


def test_the_conclusion_that_does_not_fit() -> None:
    name = "distilbert_ag_news"
    (efficiency,) = of(name, Rule.EFFICIENCY)
    assert "87.5% stated, 1.78x makes 89.0%, 1.74x makes 87.0%" in efficiency
    assert "825 s stated, 285 s + 270 s + 265 s makes 820 s" in of(name, Rule.EPOCHS)[0]
    assert "93.8% stated, epoch 3 makes 95.0%" in of(name, Rule.LAST_EPOCH)[0]
    assert len(of(name, Rule.LAST_EPOCH)) == 1  # the test accuracy is the last epoch's
    assert any("270 s beside 273 s" in each for each in of(name, Rule.ONE_VALUE))


def test_an_expected_range_that_does_not_fit() -> None:
    (found,) = of("transformer_ag_news_tuned", Rule.EFFICIENCY, 4)
    assert "75% stated, 2.8x makes 70.0%" in found


def test_rounding_is_no_contradiction() -> None:
    def stated(quantity: str, printed: str, unit: str) -> Figure:
        return replace(
            load_figures("mlp_scaling")[2],
            quantity=quantity,
            printed=printed,
            unit=unit,
            of="",
            within=half_digit(printed),
        )

    speedup = stated("speedup", "1.75", "x")
    assert contradictions([speedup, stated("efficiency", "87", "%")]) == ()  # 87.25 to 87.75
    (found,) = contradictions([speedup, stated("efficiency", "86", "%")])
    assert found.rule is Rule.EFFICIENCY
    assert found.expected == pytest.approx(87.5)
    assert [half_digit(each) for each in ("41", "1.78", "2e-5")] == [0.5, pytest.approx(0.005), 0.5e-5]
