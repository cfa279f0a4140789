"""What training trials amount to: parity of accuracy, times, files, tables, plots, and the time budget."""

import csv

import pytest

from raybench.analysis import analyse
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.training import Parity, TrainedRun, parity
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from raybench.records.trainings import Epoch, TrainingResult
from raybench.report.answer import answer_of
from raybench.report.document import draw_all, method_words
from raybench.report.plots import values as plot_values
from raybench.report.tables import training as training_tables
from raybench.testing import FakeLearning, FakeRunner, Noise, run_all, to_record
from tests.unit.records.test_store import ENVIRONMENT
from tests.unit.studies import study

REAL = {"name": "vision", "input": "real"}
QUIET_ENOUGH = Noise(block=0.005, step=0.002)


def planned(devices: int = 2, **fields: object) -> Plan:
    given = {
        "workload": REAL,
        "training": {"epochs": 4, "seeds": 3, "target_accuracy": 0.7},
        "measure": {"half_width": 0.02},
    } | fields
    return make_plan(study(**given), Resources("cpu", devices, "a CPU"))


def trained(learning: FakeLearning, devices: int = 2, **fields: object) -> tuple[Plan, list[TrialRecord]]:
    plan = planned(devices, **fields)
    runner = FakeRunner(noise=QUIET_ENOUGH, learning=learning, seed=4)
    return plan, run_all(runner, [*(trial.request for trial in plan.trials()), *plan.training()])[0]


def run_of(*accuracies: float | None, target: float | None = None) -> TrainedRun:
    epochs = tuple(
        Epoch(
            epoch=number,
            steps=10,
            samples=(50, 50),
            learning_rate=0.1,
            train_loss=1.0,
            train_s=10.0 if number == 1 else 4.0,
            test_correct=None if accuracy is None else round(accuracy * 1000),
            test_samples=None if accuracy is None else 1000,
            evaluation_s=None if accuracy is None else 1.0,
        )
        for number, accuracy in enumerate(accuracies, start=1)
    )
    request = planned(training={"epochs": len(accuracies), "target_accuracy": target}).training()[1]
    result = TrainingResult(
        epochs=epochs, global_batch_size=64, reference_batch=32, peak_learning_rate=0.1, setup_s=1.0
    )
    return TrainedRun(to_record(request, Outcome("complete", 1.0, training=result)))


@pytest.mark.parametrize(
    ("low", "high", "n", "verdict"),
    [
        (-0.3, 0.2, 3, Parity.SAME),
        (-0.4, 0.4, 3, Parity.SAME),
        (-0.5, 0.2, 3, Parity.UNKNOWN),
        (-2.0, 2.0, 3, Parity.UNKNOWN),
        (-2.0, -0.5, 3, Parity.DIFFERENT),
        (0.41, 0.9, 3, Parity.DIFFERENT),
        (0.1, 0.1, 1, Parity.UNKNOWN),  # one seed has no interval
    ],
)
def test_the_verdict_is_the_whole_intervals(low, high, n, verdict):
    assert parity(Estimate((low + high) / 2, low, high, n), 0.4) is verdict


def test_the_interval_over_seeds_is_students_and_paired():
    """Differences 0.2, 0.4 and 0.6 points: mean 0.4, half-width t(0.975, 2) 0.2 / sqrt(3) = 0.4968."""
    plan, ones = planned(), []
    for request in plan.training():
        share = (
            0.70
            + 0.05 * request.config.seed
            + (0.002 * (request.config.seed + 1) if request.config.world_size > 1 else 0)
        )
        one = run_of(0.5, share).result
        ones.append(to_record(request, Outcome("complete", 1.0, training=one)))
    found = analyse(plan.study, ones).training
    assert found is not None
    (comparison,) = found.comparisons
    difference = comparison.difference_points
    assert difference is not None
    assert difference.value == pytest.approx(0.4)
    assert difference.half_width == pytest.approx(4.3027 * 0.2 / 3**0.5, rel=1e-4)
    assert comparison.parity is Parity.UNKNOWN


def test_with_one_seed_there_is_no_interval_and_no_verdict():
    plan, records = trained(FakeLearning(), training={"epochs": 3})
    results = analyse(plan.study, records)
    assert results.training is not None
    assert results.training.comparisons[0].parity is Parity.UNKNOWN
    clause = answer_of(results).split("; ")[-1]
    assert clause.startswith("trained 3 epochs: whether accuracy on 2 devices (ddp) and one is the same")
    assert "cannot be told" in clause
    assert "1 seed)" in clause


@pytest.mark.parametrize(
    ("per_device", "words"), [(0.0, "is the same within"), (-0.05, "differs by more than")]
)
def test_the_answer_says_what_was_planted(per_device, words):
    plan, records = trained(FakeLearning(spread=0.0002, per_device=per_device))
    results = analyse(plan.study, records)
    assert f"accuracy on 2 devices (ddp) and one {words} ±0.4 points" in answer_of(results)
    assert "3 seeds" in answer_of(results)


def test_epochs_best_converged_and_to_the_target():
    run = run_of(0.5, 0.797, 0.8, 0.79, target=0.75)
    assert (run.best_epoch, run.converged_epoch) == (3, 2)
    assert run.final_accuracy == 0.79
    assert run.time_to_target_s == 16.0  # 10 and 4 s of training, twice 1 s of evaluation
    assert run.samples_to_target == 200
    assert run.epoch_time_s == 4.0  # the first epoch warms up
    assert run.total_s == 26.0


def test_two_epoch_times_far_apart_still_have_an_interval_above_0():
    """Two seeds of two epochs on a busy machine: each has one epoch behind the warm-up."""
    runs = {size: [run_of(0.5, 0.6), run_of(0.5, 0.6)] for size in (1, 2)}
    plan, records = planned(training={"epochs": 2, "seeds": 2}), []
    for request in plan.training():
        one = runs[request.config.world_size][request.config.seed].result
        slow = one.epochs[1].model_copy(update={"train_s": 4.0 * (1 + 2 * request.config.seed)})
        result = one.model_copy(update={"epochs": (one.epochs[0], slow)})
        records.append(to_record(request, Outcome("complete", 1.0, training=result)))
    found = analyse(plan.study, records).training
    assert found is not None
    speedup = found.comparisons[0].epoch_speedup
    assert speedup is not None
    assert 0 < speedup.low < 1 < speedup.high
    assert speedup.value == pytest.approx(1.0)


def test_what_is_not_evaluated_or_not_reached_is_unknown():
    assert run_of(None, 0.6, target=0.75).time_to_target_s is None
    assert run_of(None, 0.6).time_to_target_s is None
    assert run_of(None, None).final_accuracy is None
    assert run_of(None, None).best_epoch is None
    assert run_of(None, 0.8, target=0.75).time_to_target_s == 15.0


def test_planted_epoch_times_and_noise_are_found():
    plan, records = trained(FakeLearning(variance=96.0, squared_gradient=2.0), knobs={"batch_size": [32, 96]})
    results = analyse(plan.study, records)
    found, runner = results.training, FakeRunner()
    assert found is not None
    one, two = (runner.truth(group.runs[0].record.request)["step_time_s"] for group in found.groups)
    truth = (one * 32) / (two * 16)  # 1,000 samples in steps of 32 and of 64
    speedup = found.comparisons[0].epoch_speedup
    assert speedup is not None
    assert speedup.low <= truth <= speedup.high
    assert found.noise_scale == pytest.approx((48.0, 48.0))
    for each in found.goodput:  # (phi + B0) / (phi + B), B0 = 32
        batch = each.record.config.global_batch_size
        assert each.statistical_efficiency == pytest.approx(80 / (48 + batch))
        assert each.goodput_samples_per_s.value == pytest.approx(
            each.throughput_samples_per_s.value * 80 / (48 + batch)
        )
    assert {each.record.config.global_batch_size for each in found.goodput} == {32, 64, 96, 192}


def test_training_leaves_the_rest_of_the_analysis_as_it_is():
    plan, records = trained(FakeLearning())
    steps = [record for record in records if record.steps is not None]
    with_training, without = analyse(plan.study, records), analyse(plan.study, steps)
    for name in ("headline", "curves", "batch_curves", "best", "confirmations", "findings", "waterfall"):
        assert getattr(with_training, name) == getattr(without, name)
    assert method_words(with_training) == method_words(without)


def test_the_summary_has_the_training_columns():
    plan, records = trained(FakeLearning(spread=0.0))
    rows = [row for row in analyse(plan.study, records).summaries if row.role == "verification"]
    assert len(rows) == 6
    for row in rows:
        assert row.accuracy == pytest.approx(0.7853, abs=1e-4)  # 0.8 (1 - e^-4)
        assert row.epoch_time_s is not None
        assert row.time_to_target_s is not None
        assert row.time_to_target_s > 3 * row.epoch_time_s  # 0.8 (1 - e^-3) is the first above 0.7
        assert row.step_time_s is None


def test_tables_and_plots_hold_every_group():
    plan, records = trained(FakeLearning(), devices=4)
    results = analyse(plan.study, records)
    assert [row[0] for row in training_tables.training_table(results).rows] == ["1", "2", "4"]
    assert len(training_tables.epochs_table(results).rows) == 12
    assert len(training_tables.ranks_table(results).rows) == 3 * (1 + 2 + 4)
    assert len(training_tables.goodput_table(results).rows) == 3
    plot = plot_values.training_plot(results)
    assert plot is not None
    assert [line.label for line in plot.accuracy] == ["1 device", "2 devices, ddp", "4 devices, ddp"]
    assert plot.seeds == (3, 3)
    times = plot_values.epoch_time_plot(results)
    assert times is not None
    assert times.ideal[2][1] == pytest.approx(times.ideal[0][1] / 4)
    assert {"training", "epoch_times"} <= {drawn.name for drawn in draw_all(results)}


def test_without_training_there_is_no_section():
    plan, records = trained(FakeLearning(), training=None)
    results = analyse(plan.study, records)
    assert results.training is None
    assert not training_tables.training_table(results).rows
    assert plot_values.training_plot(results) is None


def test_epochs_csv_is_made_of_the_records_and_again_on_resume(tmp_path):
    plan, records = trained(FakeLearning(num_train=1001))
    store = ResultsDirectory.create(tmp_path / "results", plan.study, ENVIRONMENT)
    path = tmp_path / "results" / "epochs.csv"
    for record in records:
        store.append(record)
    store.close()
    written = path.read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert len(rows) == 6 * 4  # one an epoch and seed
    assert {(row["world_size"], row["seed"]) for row in rows} == {(n, s) for n in "12" for s in "012"}
    two = next(row for row in rows if row["world_size"] == "2")
    assert two["samples_by_rank"] == "501 500"
    assert 0 < float(two["test_accuracy"]) < 1
    path.unlink()
    ResultsDirectory.resume(tmp_path / "results").close()
    assert path.read_text() == written
