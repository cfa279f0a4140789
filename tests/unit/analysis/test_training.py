"""What training trials amount to: parity of accuracy, times."""

import pytest

from raybench.analysis.stats.statistics import Estimate, geometric
from raybench.analysis.stats.verdict import Verdict
from raybench.analysis.training import TrainedRun, parity
from raybench.plan.training import training_requests
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.results import Epoch, TrainingResult
from tests.support.analysis import analyse
from tests.support.planted import FakeLearning, FakeRunner, to_record
from tests.unit.studies import cured_study, planned_training, trained_study


def run_of(*accuracies: float | None, target: float | None = None) -> TrainedRun:
    epochs = tuple(
        Epoch(
            epoch=number,
            steps=10,
            samples=(50, 50),
            learning_rate=0.1,
            train_loss=1.0,
            train_s=10.0 if number == 1 else 4.0,
            test_loss=1.0 - (accuracy or 0.0),
            test_correct=None if accuracy is None else round(accuracy * 1000),
            test_samples=1000,
            evaluation_s=1.0,
        )
        for number, accuracy in enumerate(accuracies, start=1)
    )
    request = training_requests(
        planned_training(training={"epochs": len(accuracies), "target_accuracy": target})
    )[1]
    result = TrainingResult(epochs=epochs)
    return TrainedRun(to_record(request, Outcome("complete", 1.0, result=result)))


@pytest.mark.parametrize(
    ("low", "high", "n", "verdict"),
    [
        (-0.3, 0.2, 3, Verdict.AS_GOOD),
        (-0.4, 0.4, 3, Verdict.AS_GOOD),
        (-0.5, 0.2, 3, Verdict.UNKNOWN),
        (-2.0, 2.0, 3, Verdict.UNKNOWN),
        (-2.0, -0.5, 3, Verdict.WORSE),
        (0.41, 0.9, 3, Verdict.BETTER),
        (0.1, 0.1, 1, Verdict.UNKNOWN),  # one seed has no interval
        (0.1, 0.1, 2, Verdict.UNKNOWN),  # nor have two
    ],
)
def test_the_verdict_is_the_whole_intervals(low, high, n, verdict):
    assert parity(Estimate((low + high) / 2, low, high, n), 0.4) is verdict


def test_the_interval_over_seeds_is_students_and_paired():
    """Differences 0.2, 0.4 and 0.6 points: mean 0.4, half-width t(0.975, 2) 0.2 / sqrt(3) = 0.4968."""
    plan, ones = planned_training(), list[TrialRecord]()
    for request in training_requests(plan):
        share = (
            0.70
            + 0.05 * request.config.seed
            + (0.002 * (request.config.seed + 1) if request.config.world_size > 1 else 0)
        )
        one = run_of(0.5, share).result
        ones.append(to_record(request, Outcome("complete", 1.0, result=one)))
    found = analyse(plan.study, ones).training
    assert found is not None
    (comparison,) = found.comparisons
    difference = comparison.difference_points
    assert difference is not None
    assert difference.value == pytest.approx(0.4)
    assert difference.half_width == pytest.approx(4.3027 * 0.2 / 3**0.5, rel=1e-4)
    assert comparison.parity is Verdict.UNKNOWN


def test_epochs_converged_and_to_the_target():
    run = run_of(0.5, 0.797, 0.8, 0.79, target=0.75)
    assert run.converged_epoch == 2
    assert run.final_accuracy == 0.79
    assert run.time_to_target_s == 16.0  # 10 and 4 s of training, twice 1 s of evaluation
    assert run.epoch_time_s == 4.0  # the first epoch warms up
    assert run.total_s == 26.0


def test_epoch_times_far_apart_still_have_an_interval_above_0():
    """Three seeds of two epochs on a busy machine: each has one epoch behind the warm-up."""
    runs = {size: [run_of(0.5, 0.6)] * 3 for size in (1, 2)}
    plan, records = planned_training(training={"epochs": 2, "seeds": 3}), []
    for request in training_requests(plan):
        one = runs[request.config.world_size][request.config.seed].result
        late = (request.config.seed + request.config.world_size) % 2  # other seeds on one device and on two
        slow = one.epochs[1].model_copy(update={"train_s": 4.0 * (1 + 2 * late)})
        result = one.model_copy(update={"epochs": (one.epochs[0], slow)})
        records.append(to_record(request, Outcome("complete", 1.0, result=result)))
    found = analyse(plan.study, records).training
    assert found is not None
    speedup = found.comparisons[0].epoch_speedup
    assert speedup is not None
    assert 0 < speedup.low < 1 < speedup.high
    for group in found.groups:
        assert 0 < group.total_s.low < group.total_s.value < group.total_s.high


def test_what_has_no_accuracy_or_is_not_reached_is_unknown():
    assert run_of(None, 0.6, target=0.75).time_to_target_s is None
    assert run_of(None, 0.6).time_to_target_s is None
    assert run_of(None, None).final_accuracy is None
    assert run_of(0.5, 0.8, target=0.75).time_to_target_s == 16.0


def test_planted_epoch_times_are_found():
    plan, records = trained_study(FakeLearning(), knobs={"batch_size": [32, 96]})
    results = analyse(plan.study, records)
    found, runner = results.training, FakeRunner()
    assert found is not None
    one, two = (runner.truth(group.runs[0].record.config)["step_time_s"] for group in found.groups)
    truth = (one * 32) / (two * 16)  # 1,000 samples in steps of 32 and of 64
    speedup = found.comparisons[0].epoch_speedup
    assert speedup is not None
    assert speedup.low <= truth <= speedup.high


def test_training_leaves_the_rest_of_the_analysis_as_it_is():
    plan, records = trained_study(FakeLearning())
    steps = [record for record in records if record.steps is not None]
    with_training, without = analyse(plan.study, records), analyse(plan.study, steps)
    for name in ("headline", "settings", "best", "gains", "diagnosis", "waterfall"):
        assert getattr(with_training, name) == getattr(without, name)


def test_with_one_seed_there_is_no_interval_and_no_verdict():
    plan, records = trained_study(FakeLearning(), training={"epochs": 3})
    found = analyse(plan.study, records).training
    assert found is not None
    (comparison,) = found.comparisons
    assert comparison.parity is Verdict.UNKNOWN
    for estimate in (
        comparison.epoch_speedup,
        comparison.total_speedup,
        *(group.epoch_time_s for group in found.groups),
    ):
        assert estimate is not None
        assert estimate.n == 1
        assert estimate.low == estimate.value == estimate.high


def times_of(plan, epoch_times_s):
    """A record of each seed and size; ``epoch_times_s`` by size and seed, a first epoch before them."""
    records = list[TrialRecord]()
    for request in training_requests(plan):
        times = epoch_times_s[request.config.world_size][request.config.seed]
        one = run_of(*[0.5] * (1 + len(times))).result
        epochs = tuple(
            epoch.model_copy(update={"train_s": time_s})
            for epoch, time_s in zip(one.epochs, (100.0, *times), strict=True)
        )
        result = one.model_copy(update={"epochs": epochs})
        records.append(to_record(request, Outcome("complete", 1.0, result=result)))
    return records


def test_the_speedup_of_an_epoch_has_one_value_a_seed_paired_by_seed():
    """Seeds that are slow on one device are as slow on two: a speed-up of 2, and hardly an interval.

    Epochs of one run are alike, so pooled they would say that there are nine measurements, not three.
    """
    plan = planned_training(training={"epochs": 4, "seeds": 3})
    times = {
        1: {0: (8.0, 8.1, 7.9), 1: (16.0, 16.2, 15.8), 2: (12.0, 12.0, 12.0)},
        2: {0: (4.0, 4.1, 3.9), 1: (8.0, 8.2, 7.8), 2: (6.0, 6.0, 6.0)},
    }
    found = analyse(plan.study, times_of(plan, times)).training
    assert found is not None
    (comparison,) = found.comparisons
    speedup = comparison.epoch_speedup
    assert speedup is not None
    assert (speedup.value, speedup.n) == (pytest.approx(2.0), 3)
    assert speedup.relative_half_width == pytest.approx(0, abs=1e-9)
    expected = geometric([8.0, 16.0, 12.0])
    assert comparison.base.epoch_time_s == Estimate(
        *(pytest.approx(end) for end in (expected.value, expected.low, expected.high)), 3
    )


def test_only_seeds_that_both_have_are_compared():
    plan = planned_training(training={"epochs": 2, "seeds": 3})
    times = {1: dict.fromkeys(range(3), (8.0,)), 2: {0: (4.0,), 1: (2.0,), 2: (1.0,)}}
    records = [
        record
        for record in times_of(plan, times)
        if (record.config.world_size, record.config.seed) not in ((1, 2), (2, 0))
    ]
    found = analyse(plan.study, records).training
    assert found is not None
    (comparison,) = found.comparisons
    speedup = comparison.epoch_speedup
    assert speedup is not None
    assert (comparison.num_seeds, speedup.value, speedup.n) == (1, 4.0, 1)
    apart = analyse(plan.study, [record for record in records if record.config.seed != 1]).training
    assert apart is not None
    (comparison,) = apart.comparisons
    assert comparison.num_seeds == 0
    assert comparison.epoch_speedup is comparison.total_speedup is comparison.difference_points is None


def test_a_training_that_was_stopped_early_is_compared_after_as_many_epochs():
    """It had no comparison, as those are of groups that are cut to the same epochs."""
    plan = planned_training(training={"epochs": 4, "seeds": 3})
    times = {1: dict.fromkeys(range(3), (8.0,)), 2: dict.fromkeys(range(3), (4.0, 4.0, 1.0))}
    found = analyse(plan.study, times_of(plan, times)).training
    assert found is not None
    (two,) = [group for group in found.groups if group.world_size == 2]
    comparison = found.comparison(two)
    assert comparison is not None
    assert len(comparison.group.epochs) == len(comparison.base.epochs) == 2
    assert comparison.epoch_speedup is not None
    assert comparison.epoch_speedup.value == pytest.approx(2.0)


def test_a_group_has_its_estimates_over_the_seeds_as_values():
    """Accuracies of 0.79 and 0.81, epochs of 4 and 9 s, and a target that one seed of two reaches."""
    training = {"epochs": 2, "seeds": 2, "target_accuracy": 0.8}
    plan, records = planned_training(training=training), list[TrialRecord]()
    for request in training_requests(plan):
        one = run_of(0.5, (0.79, 0.81)[request.config.seed]).result
        last = one.epochs[1].model_copy(update={"train_s": (4.0, 9.0)[request.config.seed]})
        result = one.model_copy(update={"epochs": (one.epochs[0], last)})
        records.append(to_record(request, Outcome("complete", 1.0, result=result)))
    found = analyse(plan.study, records).training
    assert found is not None
    group = found.groups[0]
    assert group.final_accuracy is not None
    assert (group.final_accuracy.value, group.final_accuracy.n) == (pytest.approx(0.8), 2)
    assert group.epoch_time_s.value == pytest.approx(6.0)
    assert (group.total_s.value, group.total_s.n) == (pytest.approx((16.0 + 21.0) / 2), 2)
    assert {run.converged_epoch for run in group.runs} == {2}
    assert group.time_to_target_s == Estimate(21.0, 21.0, 21.0, 1)


def test_without_a_target_or_without_reaching_it():
    for target in (None, 0.9):
        plan = planned_training(training={"epochs": 1, "target_accuracy": target})
        one = run_of(0.5).result
        records = [to_record(each, Outcome("complete", 1.0, result=one)) for each in training_requests(plan)]
        found = analyse(plan.study, records).training
        assert found is not None
        assert all(group.time_to_target_s is None for group in found.groups)


def test_a_cure_is_compared_with_the_default_and_with_its_own_one_device() -> None:
    found = cured_study().training
    assert found is not None
    kinds = [(group.world_size, group.config.global_batch_size, group.changes) for group in found.groups]
    words = "batch 512, accumulation 4"
    assert kinds == [(1, 32, ""), (1, 512, words), (2, 32, ""), (2, 512, words)]
    assert [(each.group.changes, each.base.changes, each.base.world_size) for each in found.comparisons] == [
        ("", "", 1),
        (words, words, 1),
    ]
    alone, several = found.changed
    assert (alone.group.world_size, several.group.world_size) == (1, 2)
    for each, steps_s in ((alone, (160 * 0.010, 10 * 0.080)), (several, (160 * 0.015, 10 * 0.085))):
        assert each.base.changes == ""
        assert each.difference_points is not None
        assert each.difference_points.value == pytest.approx(1.0, abs=0.02)
        assert each.parity in (Verdict.WORSE, Verdict.BETTER)
        assert each.epoch_speedup is not None
        assert each.epoch_speedup.value == pytest.approx(steps_s[0] / steps_s[1])


def test_several_strategies_are_no_changes() -> None:
    plan, records = trained_study(FakeLearning(), knobs={"strategy": ["ddp", "fsdp"]})
    found = analyse(plan.study, records).training
    assert found is not None
    assert found.changed == ()
    assert [each.group.strategy for each in found.comparisons] == ["ddp", "fsdp"]
