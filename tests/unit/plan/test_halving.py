"""Asynchronous successive halving: what a training must reach, and which settings are trained at all."""

import pytest
from pydantic import ValidationError

from raybench.analysis import analyse
from raybench.commands.dry_run import plan_lines
from raybench.commands.progress import outcome_words
from raybench.machine.resources import Resources
from raybench.plan.halving import with_rungs
from raybench.plan.left_out import left_out_words
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, TrainingRequest
from raybench.report.answer import answer_of
from raybench.report.code import use_it
from raybench.report.parity_words import changed_words
from raybench.report.tables.training import changes_table, training_table
from raybench.spec.training import TrainingSpec
from tests.support.planted import FakeLearning, FakeRunner
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import study

ASHA = {"epochs": 10, "settings": "measured", "early_stopping": "asha"}
KNOBS = {"batch_size": [16, 32, 64, 128], "bucket_cap_mb": [25, 1]}


class ByBatch(FakeLearning):
    """The accuracy that a batch comes to."""

    ACCURACIES = {16: 0.8, 32: 0.82, 64: 0.6, 128: 0.79}  # noqa: RUF012

    def _final_accuracy(self, config: Configuration, random: object) -> float:
        return self.ACCURACIES[config.setting.batch_size]


def planned(training: dict[str, object] = ASHA, **given: object) -> Plan:
    tables = {
        "workload": {"name": "vision", "input": "real"},
        "knobs": KNOBS,
        "search": {"method": "grid"},
        "training": training,
        "measure": {"half_width": 0.02},
    } | given
    return make_plan(study(**tables), Resources("cpu", 2, "a CPU"))


def trained(store: MemoryStore) -> list[TrialRecord]:
    return [record for record in store.records if record.training is not None]


def fake() -> FakeRunner:
    return FakeRunner(noise=QUIET_ENOUGH, learning=ByBatch())


@pytest.mark.parametrize(
    ("fields", "rungs"),
    [
        ({}, (1, 3, 9)),
        ({"epochs": 9}, (1, 3)),
        ({"grace_epochs": 2, "reduction_factor": 2}, (2, 4, 8)),
        ({"evaluate_every": 2}, (2, 4)),
        ({"evaluate_every": 10}, ()),
        ({"early_stopping": "none"}, ()),
    ],
)
def test_rungs_are_epochs_with_an_evaluation_before_the_last(fields, rungs):
    assert TrainingSpec(**ASHA | fields).rung_epochs == rungs


def test_early_stopping_needs_settings_that_may_be_stopped():
    with pytest.raises(ValidationError, match="needs settings"):
        study(workload={"name": "vision", "input": "real"}, training={"early_stopping": "asha"})


def test_of_settings_that_learn_alike_the_fastest_is_trained_and_the_worse_are_stopped():
    """Batch 64 learns too little after one epoch; batch 128 is within the tolerance of none but the third."""
    plan = planned()
    executed, store, _ = run(plan, fake())
    of_batch = {
        (each.config.setting.batch_size, each.config.world_size): each.training for each in trained(store)
    }
    assert len(trained(store)) == 5  # the default on one and two devices, the others' batches on two
    lasted = {key: len(result.epochs) for key, result in of_batch.items() if result}
    assert lasted[16, 1] == lasted[16, 2] == 10  # the default is never stopped
    assert lasted[32, 2] == 10  # the best
    assert lasted[64, 2] == 1
    stopped = of_batch[64, 2]
    assert stopped is not None
    assert stopped.stopped_by is not None
    assert stopped.stopped_by.epoch == 1
    assert stopped.epochs[-1].test_accuracy < stopped.stopped_by.least_accuracy
    said = [outcome_words(record, None) for record, _ in executed.watcher.done if record.training]
    assert sum("; stopped: going on needed a test accuracy of" in words for words in said) == 2
    assert left_out_words(plan.study, store.records) == []


def test_the_fastest_of_those_that_learn_alike():
    plan = planned()
    _, store, _ = run(plan, fake())
    results = analyse(plan.study, store.records)
    rates: dict[int, dict[object, float]] = {}
    for each in store.records:
        if each.steps is not None and each.request.role == "scaling" and each.config.world_size == 2:
            of_batch = rates.setdefault(each.config.setting.batch_size, {})
            of_batch[each.config.setting.bucket_cap_mb] = results.scaling(each).throughput_samples_per_s.value
    assert {batch: len(of_batch) for batch, of_batch in rates.items()} == {16: 2, 32: 2, 64: 2, 128: 2}
    chosen = {
        each.config.setting.batch_size: each.config.setting.bucket_cap_mb
        for each in trained(store)
        if each.config.world_size == 2
    }
    fastest = {batch: max(of_batch, key=lambda cap: of_batch[cap]) for batch, of_batch in rates.items()}
    assert chosen == fastest | {16: 25}  # the default is trained as it is


def test_a_stopped_setting_gets_no_further_seed_and_nothing_is_trained_twice():
    plan, runner = planned(ASHA | {"seeds": 2}), fake()
    _, store, _ = run(plan, runner)
    seeds = [each.config.seed for each in trained(store) if each.config.setting.batch_size == 64]
    assert seeds == [0]
    assert [each.config.seed for each in trained(store) if each.config.setting.batch_size == 32] == [0, 1]
    asked = len(runner.requests)
    run(plan, runner, store)
    assert len(runner.requests) == asked


def test_the_id_does_not_know_of_the_rungs():
    plan = planned()
    _, store, _ = run(plan, fake())
    (asked,) = [each.request for each in trained(store) if each.config.setting.batch_size == 64]
    assert isinstance(asked, TrainingRequest)
    assert asked.rungs
    assert asked.trial_id == asked.model_copy(update={"rungs": ()}).trial_id


def test_what_was_stopped_is_compared_after_equally_many_epochs():
    plan = planned()
    _, store, _ = run(plan, fake())
    results = analyse(plan.study, store.records)
    assert results.training is not None
    stopped = next(each for each in results.training.changed if each.group.config.setting.batch_size == 64)
    after_one = 100 * (0.6 - 0.8) * (1 - 1 / 2.718281828)
    assert stopped.difference_points.value == pytest.approx(after_one, abs=0.05)
    assert stopped.base.num_epochs == stopped.group.num_epochs == 1
    difference = stopped.group.final_accuracy.value - stopped.base.final_accuracy.value
    assert 100 * difference == pytest.approx(stopped.difference_points.value)
    assert ", after epoch 1, where it was stopped" in changed_words(stopped)
    column = [each.heading for each in training_table(results).columns].index("epochs")
    assert {row[column] for row in training_table(results).rows} == {"10", "1, stopped"}
    table = changes_table(results)
    assert table.title == "Training with other settings"
    assert any("after epoch 1, for want of a test accuracy of" in cell for row in table.rows for cell in row)
    assert "2 of them stopped early" in answer_of(results)


def test_code_to_paste_says_what_its_setting_learned():
    plan = planned()
    _, store, _ = run(plan, fake())
    results = analyse(plan.study, store.records)
    use = use_it(results, {})
    assert use is not None
    assert results.recommendation.config.setting.batch_size == 128  # the fastest, and it learns less
    (trained_words,) = [line for line in use.sentences if line.startswith("Trained: ")]
    assert "with batch 128" in trained_words
    assert "points" in trained_words


def test_the_plan_says_what_it_will_train():
    lines = list(plan_lines(planned()))
    assert "training: of the other settings that learn alike the fastest, at world size 2" in lines
    assert "  after epoch 1 and 3 and 9 the best of 3 go on" in lines


def test_without_accuracy_the_loss_decides():
    plan = planned()
    _, store, _ = run(plan, fake())
    blind = [
        record.model_copy(
            update={
                "result": record.result.model_copy(
                    update={
                        "epochs": tuple(
                            epoch.model_copy(update={"test_correct": None})
                            for epoch in record.training.epochs
                        )
                    }
                )
            }
        )
        if record.training is not None
        else record
        for record in store.records
    ]
    request = next(each.request for each in trained(store) if each.config.setting.batch_size == 128)
    asked = with_rungs(plan, request, [each for each in blind if each.trial_id != request.trial_id])
    assert [rung.epoch for rung in asked.rungs] == [1, 3, 9]
    assert all(rung.most_loss is not None and rung.least_accuracy is None for rung in asked.rungs)


def epochs_of(store: MemoryStore) -> dict[int, int]:
    """Of each batch that was trained on two devices how many epochs."""
    return {
        each.config.setting.batch_size: len(each.training.epochs)
        for each in trained(store)
        if each.training is not None and each.config.world_size == 2
    }


def test_side_by_side_too_what_learns_too_little_is_stopped():
    """The others wait for the default, with which they are compared, then run side by side."""
    runner = FakeRunner(noise=QUIET_ENOUGH, learning=ByBatch(), capacity=8)
    executed, store, _ = run(planned(), runner)
    lasted = epochs_of(store)
    assert lasted[16] == lasted[32] == 10
    assert lasted[64] == 1
    assert any("3 trainings ran side by side" in note for note in executed.notes)


def test_where_the_default_fails_the_first_of_the_others_is_what_they_are_compared_with():
    def fails(request):
        is_default = request.config.setting.batch_size == 16
        return ("crashed", "planted") if request.kind == "training" and is_default else None

    runner = FakeRunner(noise=QUIET_ENOUGH, learning=ByBatch(), capacity=8, fail=fails)
    _, store, _ = run(planned(), runner)
    lasted = epochs_of(store)
    assert set(lasted) == {32, 64, 128}
    assert lasted[32] == 10
    assert lasted[64] == 1
