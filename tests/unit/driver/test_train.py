"""The stage of whole epochs: after everything else, seed by seed, as far as the time allows."""

from collections.abc import Callable

import pytest

from raybench.analysis.labels import trial_words
from raybench.commands.progress import outcome_words
from raybench.driver.time_budget import TimeBudget
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import left_out
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.messages import Progress
from raybench.records.requests import TrialRequest
from tests.support.analysis import analyse
from tests.support.planted import FakeLearning, FakeRunner
from tests.unit.runs import QUIET_ENOUGH, ClockRunner, MemoryStore, run
from tests.unit.studies import study

REAL = {"name": "vision", "input": "real"}


def planned(devices: int = 2, **fields: object) -> Plan:
    given = {
        "workload": REAL,
        "training": {"epochs": 4, "seeds": 3, "target_accuracy": 0.7},
        "measure": {"half_width": 0.02, "visits": 1},
    } | fields
    return make_plan(study(**given), Resources("cpu", devices, "a CPU"))


def training(store: MemoryStore) -> list[TrialRequest]:
    return [record.request for record in store.records if record.request.kind == "training"]


@pytest.mark.parametrize("search", [{"method": "grid"}, {"method": "optuna", "trials": 4}])
def test_training_comes_after_everything_else_seed_by_seed(search):
    plan = planned(search=search, knobs={"batch_size": [64, 16], "bucket_cap_mb": [25, 1]})
    executed, store, _ = run(plan)
    roles = [record.request.role for record in store.records]
    first = roles.index("training")
    assert set(roles[first:]) == {"training"}
    assert [(r.config.seed, r.config.world_size) for r in training(store)] == [
        (s, n) for s in (0, 1, 2) for n in (1, 2)
    ]
    assert executed.not_reached == []
    record, scaling = executed.watcher.done[-1]
    assert trial_words(plan.study, record.request) == "2 devices, batch 64, 25 MiB buckets, seed 2"
    assert outcome_words(record, scaling).startswith("done, ")


def test_a_trained_study_is_not_trained_again():
    plan, runner = planned(), FakeRunner(noise=QUIET_ENOUGH)
    _, store, _ = run(plan, runner)
    asked = len(runner.requests)
    run(plan, runner, store)
    assert len(runner.requests) == asked


def test_training_that_would_take_too_long_is_named_and_not_begun(monkeypatch):
    """Trials take 10 s each; with 64 s, two are measured, and a first pair is trained, and one more."""
    plan, runner = planned(), ClockRunner(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 55))
    assert [(r.config.seed, r.config.world_size) for r in training(store)] == [(0, 1), (0, 2), (1, 1)]
    assert runner.now <= 1000 + 55
    assert [each.config.world_size for note in executed.not_reached for each in note.requests] == [2, 1, 2]
    assert executed.not_reached == left_out(plan.study, store.records)


def test_the_first_training_trial_is_expected_to_take_what_its_throughput_says(monkeypatch):
    """A million samples an epoch at some thousand samples/s never fit into 100 s: none is begun."""
    plan, runner = planned(), ClockRunner(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 100, epoch_samples=1e6))
    assert training(store) == []
    assert len(executed.not_reached[-1].requests) == executed.not_reached[-1].total == 6
    assert len(store.records) == 2  # what training needs does not keep steps from being measured


class Failing(FakeRunner):
    def __init__(self, fails: Callable[[TrialRequest], bool]) -> None:
        super().__init__(noise=QUIET_ENOUGH, fail=lambda r: ("oom", "no memory") if fails(r) else None)


def test_a_failed_training_trial_costs_nothing_else():
    plan, runner = (
        planned(),
        Failing(lambda r: r.kind == "training" and (r.config.seed, r.config.world_size) == (1, 2)),
    )
    _, store, _ = run(plan, runner)
    results = analyse(plan.study, store.records)
    assert len(results.failed) == 1
    assert results.training is not None
    (comparison,) = results.training.comparisons
    assert comparison.num_seeds == 2


def test_each_epoch_is_told():
    plan, told = planned(), list[Progress]()
    runner = FakeRunner(noise=QUIET_ENOUGH, learning=FakeLearning(spread=0.0))
    runner.run(training_requests(plan)[0], told.append)
    assert [each.detail for each in told if each.phase == "epoch"][:2] == [
        "epoch 1/4, train loss 0.4943 (50.6%), test loss 0.4943 (50.6%)",
        "epoch 2/4, train loss 0.3083 (69.2%), test loss 0.3083 (69.2%)",
    ]
