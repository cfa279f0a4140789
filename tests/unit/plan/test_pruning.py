"""Optuna's pruners: which trainings are stopped early, and which settings are trained at all."""

import pytest
from pydantic import ValidationError

from raybench.commands.progress import outcome_words
from raybench.commands.runs import plan_lines
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import left_out
from raybench.plan.pruning import pruned_after
from raybench.plan.training import with_peers
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, TrainingRequest
from raybench.records.results import Epoch
from raybench.report.sections.training import training_table
from tests.support.analysis import analyse
from tests.support.planted import FakeLearning, FakeRunner
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import study

MEASURED = {"epochs": 10, "settings": "measured"}
KNOBS = {"batch_size": [16, 32, 64, 128], "bucket_cap_mb": [25, 1]}


class ByBatch(FakeLearning):
    """The accuracy that a batch comes to."""

    ACCURACIES = {16: 0.8, 32: 0.82, 64: 0.6, 128: 0.79}  # noqa: RUF012

    def _final_accuracy(self, config: Configuration, random: object) -> float:
        return self.ACCURACIES[config.setting.batch_size]


def planned(
    training: dict[str, object] = MEASURED, pruner: str = "successive_halving", **given: object
) -> Plan:
    tables = {
        "workload": {"name": "vision", "input": "real"},
        "knobs": KNOBS,
        "search": {"method": "grid", "pruner": pruner},
        "training": training,
        "measure": {"half_width": 0.02, "visits": 1},
    } | given
    return make_plan(study(**tables), Resources("cpu", 2, "a CPU"))


def trained(store: MemoryStore) -> list[TrialRecord]:
    return [record for record in store.records if record.training is not None]


def fake() -> FakeRunner:
    return FakeRunner(noise=QUIET_ENOUGH, learning=ByBatch())


@pytest.mark.parametrize(
    "training", [None, {"settings": "default"}], ids=["nothing is trained", "only the default"]
)
def test_a_pruner_needs_settings_that_may_be_stopped(training):
    given = {} if training is None else {"training": training}
    with pytest.raises(ValidationError, match=r"search\.pruner: needs training\.settings"):
        study(workload={"name": "vision", "input": "real"}, search={"pruner": "median"}, **given)


def test_of_settings_that_learn_alike_the_fastest_is_trained_and_the_worse_are_stopped():
    """Batch 64 learns too little after one epoch."""
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
    assert (stopped.stopped_by.epoch, stopped.stopped_by.pruner) == (1, "successive_halving")
    said = [outcome_words(record, None) for record, _ in executed.watcher.done if record.training]
    assert sum("; stopped early (successive_halving)" in words for words in said) == 2
    assert left_out(plan.study, store.records) == []


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
    plan, runner = planned(MEASURED | {"seeds": 2}), fake()
    _, store, _ = run(plan, runner)
    seeds = [each.config.seed for each in trained(store) if each.config.setting.batch_size == 64]
    assert seeds == [0]
    assert [each.config.seed for each in trained(store) if each.config.setting.batch_size == 32] == [0, 1]
    asked = len(runner.requests)
    run(plan, runner, store)
    assert len(runner.requests) == asked


def test_the_id_does_not_know_of_the_pruner():
    plan = planned()
    _, store, _ = run(plan, fake())
    (asked,) = [each.request for each in trained(store) if each.config.setting.batch_size == 64]
    assert isinstance(asked, TrainingRequest)
    assert asked.peers
    assert asked.trial_id == asked.model_copy(update={"pruner": "none", "peers": ()}).trial_id


@pytest.mark.parametrize("pruner", ["median", "successive_halving", "hyperband"])
def test_each_pruner_stops_a_training_below_all_others(pruner):
    plan = planned(pruner=pruner)
    _, store, _ = run(plan, fake())
    (asked,) = [each.request for each in trained(store) if each.config.setting.batch_size == 64]
    worst = next(each.training for each in trained(store) if each.config.setting.batch_size == 64).epochs[:1]
    better = tuple((epoch, 0.9) for epoch in range(1, 11))
    peers = (better,) * 12  # hyperband compares within one of three brackets
    compared = asked.model_copy(update={"pruner": pruner, "peers": peers})
    stops = [number for number in range(1, 10) if pruned_after(compared, _as_if(worst[0], number))]
    assert stops
    stopped = pruned_after(compared, _as_if(worst[0], stops[0]))
    assert (stopped.epoch, stopped.pruner) == (stops[0], pruner)
    assert pruned_after(compared, _as_if(worst[0], 10)) is None  # it has trained all epochs
    assert pruned_after(compared.model_copy(update={"peers": ()}), _as_if(worst[0], 9)) is None


def _as_if(epoch: Epoch, number: int) -> list[Epoch]:
    """As many epochs, all with the same accuracy."""
    return [epoch.model_copy(update={"epoch": each}) for each in range(1, number + 1)]


def test_without_a_pruner_all_epochs_are_trained():
    _, store, _ = run(planned(pruner="none"), fake())
    assert {len(each.training.epochs) for each in trained(store)} == {10}
    assert {each.request.peers for each in trained(store)} == {()}


def test_what_was_stopped_is_compared_after_equally_many_epochs():
    plan = planned()
    _, store, _ = run(plan, fake())
    results = analyse(plan.study, store.records)
    assert results.training is not None
    stopped = next(each for each in results.training.changed if each.group.config.setting.batch_size == 64)
    after_one = 100 * (0.6 - 0.8) * (1 - 1 / 2.718281828)
    assert stopped.difference_points.value == pytest.approx(after_one, abs=0.05)
    assert len(stopped.base.epochs) == len(stopped.group.epochs) == 1
    difference = stopped.group.final_accuracy.value - stopped.base.final_accuracy.value
    assert 100 * difference == pytest.approx(stopped.difference_points.value)
    table = training_table({"": results})
    (epochs,) = [cells for metric, *cells in table.rows if metric == "epochs"]
    assert set(epochs) == {"10", "1, stopped"}
    assert epochs == sorted(epochs, reverse=True)  # what was stopped stands last
    assert "What was stopped early is compared after its last epoch." in table.caption


def test_the_plan_says_what_it_will_train():
    lines = list(plan_lines(planned()))
    assert "  and of other settings that learn equally the fastest, at world size 2" in lines


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
    asked = with_peers(plan, request, blind)
    assert asked.peers
    assert all(score < 0 for curve in asked.peers for _, score in curve)


def epochs_of(store: MemoryStore) -> dict[int, int]:
    """Of each batch that was trained on two devices how many epochs."""
    return {
        each.config.setting.batch_size: len(each.training.epochs)
        for each in trained(store)
        if each.training is not None and each.config.world_size == 2
    }


def test_where_the_default_fails_the_first_of_the_others_is_what_they_are_compared_with():
    def fails(request):
        is_default = request.config.setting.batch_size == 16
        return ("crashed", "planted") if request.kind == "training" and is_default else None

    runner = FakeRunner(noise=QUIET_ENOUGH, learning=ByBatch(), fail=fails)
    _, store, _ = run(planned(), runner)
    lasted = epochs_of(store)
    assert set(lasted) == {32, 64, 128}
    assert lasted[32] == 10
    assert lasted[64] == 1
