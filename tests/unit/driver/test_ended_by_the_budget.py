"""A trial that goes on when the time budget is spent: ended soon, told as not reached, and asked again."""

from collections.abc import Callable

import pytest

from raybench.commands.progress import outcome_words
from raybench.driver.time_budget import TimeBudget
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import Stage, left_out
from raybench.plan.training import training_requests
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome, Progress
from raybench.records.record import State
from raybench.records.requests import StudyRequest, TrialRequest
from tests.unit.runs import ClockRunner, MemoryStore, run
from tests.unit.studies import study

GRID = {"search": {"method": "grid"}, "knobs": {"batch_size": [512, 32]}}
OPTUNA = {
    "search": {"method": "optuna", "trials": 6},
    "knobs": {"batch_size": [512, 32, 128], "bucket_cap_mb": [25, 1]},
}
START_S, TRIAL_S = 7.0, 10.0


def planned(**fields: object) -> Plan:
    return make_plan(study(**fields), Resources("cpu", 2, "a CPU"))


class Hanging(ClockRunner):
    """What ``hangs`` is never done: it takes until it is ended. A group takes seconds to start."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        hangs: Callable[[TrialRequest], bool],
        ends: tuple[State, str] = ("timeout", "not done in time"),
    ) -> None:
        super().__init__(monkeypatch, TRIAL_S)
        self.hangs, self.ends = hangs, ends

    def start(self, world_size, environment, *, anew=False):
        before = self.num_starts
        group = super().start(world_size, environment, anew=anew)
        self.now += START_S * (self.num_starts - before)
        return group

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        if not self.hangs(request):
            return super().run(request, on_progress)
        self.requests.append(request)
        self.now += request.timeout_s
        state, reason = self.ends
        return Outcome(state, request.timeout_s, reason, group=1)


def is_any(request: TrialRequest) -> bool:
    return True


def is_slow(request: TrialRequest) -> bool:
    return request.kind == "steps" and request.config.setting.batch_size == 32


@pytest.mark.parametrize("fields", [GRID, OPTUNA], ids=["grid", "optuna"])
@pytest.mark.parametrize(("hangs", "budget_s"), [(is_any, 40.0), (is_slow, 60.0)])
def test_a_trial_that_hangs_ends_soon_after_the_budget_and_is_asked_again(
    monkeypatch, fields, hangs, budget_s
):
    plan, runner = planned(**fields), Hanging(monkeypatch, hangs)
    session, store, _ = run(plan, runner, budget=TimeBudget(runner.now + budget_s))
    (ended,) = [each for each in runner.requests if hangs(each)]
    grace_s = runner.now - 1000 - budget_s
    assert 10 <= grace_s <= 20 + START_S + 1  # what the study's trials may take, and a start; not 300 s
    assert all(each.state == "complete" for each in store.records)
    assert [each.request.timeout_s for each in store.records] == [300.0] * len(store.records)
    told, of_it = session.watcher.done[-1]
    assert told.trial_id == ended.trial_id
    wanted = (
        f"timeout: the time budget was spent: ended after {ended.timeout_s:.0f} s, --resume asks it again"
    )
    assert outcome_words(told, of_it) == wanted
    if store.records:  # the report and the terminal name the same
        assert session.not_reached == left_out(plan.study, store.records, 1, session.ledger.winners())
    again = Hanging(monkeypatch, lambda request: False)
    session, _, _ = run(plan, again, store, budget=TimeBudget(again.now + 1000))
    assert session.not_reached == []
    assert ended.trial_id in {each.trial_id for each in again.requests}
    assert store.latest()[ended.trial_id].state == "complete"


def test_a_trial_that_takes_its_own_time_out_within_the_budget_has_failed(monkeypatch):
    plan = planned(**GRID, measure={"max_seconds": 5, "timeout_seconds": 30})
    runner = Hanging(monkeypatch, is_slow)
    session, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 200))
    failed = [each for each in store.records if each.state == "timeout"]
    assert {each.reason for each in failed} == {"not done in time"}
    assert session.not_reached == []


@pytest.mark.parametrize("state", ["crashed", "oom"])
def test_a_rank_that_tells_of_another_that_was_ended_has_not_failed(monkeypatch, state):
    plan = planned(**GRID)
    echo = (state, "rank 1: RuntimeError: Connection closed by peer")
    runner = Hanging(monkeypatch, is_slow, echo)
    session, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 60))
    assert [each.state for each in store.records if each.state != "complete"] == ["oom"] * (state == "oom")
    slow = next(each for each in runner.requests if is_slow(each))
    assert session.ledger.is_open(slow) == (state == "crashed")


def test_without_a_budget_a_trial_has_its_own_time_out(monkeypatch):
    runner = Hanging(monkeypatch, is_slow)
    _, store, _ = run(planned(**GRID), runner)
    assert {request.timeout_s for request in runner.requests} == {300.0}
    assert "timeout" in {each.state for each in store.records}


def test_a_visit_that_hangs_is_told_as_not_reached(monkeypatch):
    def hangs(request: TrialRequest) -> bool:
        return request.kind == "steps" and request.visit == 2

    plan, runner = planned(**OPTUNA), Hanging(monkeypatch, hangs)
    session, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 200))
    assert [each for each in runner.requests if hangs(each)]
    (note,) = session.not_reached
    assert note.stage is Stage.VISITS
    assert 2 in {each.visit for each in note.requests}
    assert all(each.state == "complete" for each in store.records)


def test_a_training_that_hangs_is_told_as_not_reached(monkeypatch):
    def hangs(request: TrialRequest) -> bool:
        return request.kind == "training" and request.config.world_size == 2

    workload = {"name": "vision", "input": "real"}
    plan = planned(workload=workload, training={"epochs": 4, "seeds": 1})
    runner = Hanging(monkeypatch, hangs)
    session, _, _ = run(plan, runner, budget=TimeBudget(runner.now + 500))
    late: list[StudyRequest] = [each for each in training_requests(plan) if hangs(each)]
    assert [(note.stage, note.requests) for note in session.not_reached] == [(Stage.TRAINING, tuple(late))]
    assert runner.now < 1000 + 500 + 60


def test_a_probe_that_hangs_says_nothing_of_the_batch(monkeypatch):
    plan = planned(knobs={"batch_size": "max"})
    runner = Hanging(monkeypatch, lambda request: request.kind == "probe")
    session, store, _ = run(plan, runner, MemoryStore(), budget=TimeBudget(runner.now + 100))
    assert store.records == []
    assert len(runner.requests) == 1
    assert session.not_reached[0].stage is Stage.LARGEST_BATCH


@pytest.mark.parametrize("budget_s", [1000.0, 60.0])
def test_steps_as_if_on_more_nodes_are_measured_where_there_is_time_and_not_missed_else(
    monkeypatch, budget_s
):
    plan = make_plan(study(knobs={"batch_size": [32]}), Resources("cpu", 4, "a CPU", num_nodes=2))
    runner = Hanging(monkeypatch, lambda request: False)
    session, store, _ = run(plan, runner, budget=TimeBudget(runner.now + budget_s))
    as_if = [each for each in store.records if each.request.as_if]
    others = [each for each in store.records if not each.request.as_if]
    assert len(others) == 9  # three visits on 1, 2 and 4 devices
    assert len(as_if) == (budget_s == 1000.0)
    assert session.not_reached == left_out(plan.study, store.records, 2, session.ledger.winners()) == []
