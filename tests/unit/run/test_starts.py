"""``measure.starts``: the curve is measured anew in worker groups of their own, one start after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raybench.analysis import analyse
from raybench.analysis.stats.verdict import Verdict
from raybench.errors import Interrupted
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.report.answer import answer_of
from raybench.report.method import method_words
from raybench.run.time_budget import TimeBudget
from raybench.spec import Setting
from tests.support.planted import FakeRunner, Noise, StepCosts
from tests.unit.runs import ClockRunner, Failing, MemoryStore, Watched, run
from tests.unit.studies import study

GRID = {"method": "grid"}


def planned(starts: int = 3, **fields: Any) -> Plan:
    given = {"knobs": {"batch_size": [32, 512]}, "search": GRID} | fields
    return make_plan(study(measure={"starts": starts}, **given), Resources("cpu", 2, "a CPU"))


def curve(store: MemoryStore) -> list[TrialRecord]:
    return [record for record in store.records if record.request.role == "scaling"]


def places(records: list[TrialRecord]) -> list[tuple[int, int, int]]:
    """Start, world size and batch of each trial of the curve."""
    found = []
    for record in records:
        assert record.request.kind == "steps"
        config = record.config
        found.append((record.request.start, config.world_size, config.setting.batch_size))
    return found


def groups(records: list[TrialRecord]) -> dict[int, set[int]]:
    """The worker groups that served each start."""
    found: dict[int, set[int]] = {}
    for record, (start, *_) in zip(records, places(records), strict=True):
        found.setdefault(start, set()).add(record.group)
    return found


def test_all_points_of_one_start_then_its_group_ends() -> None:
    _, store, runner = run(planned())
    once = [(2, 32), (2, 512), (1, 32), (1, 512)]
    assert places(curve(store)) == [(start, *point) for start in range(3) for point in once]
    assert groups(curve(store)) == {0: {1}, 1: {2}, 2: {3}}
    assert runner.num_starts == 3
    assert store.records[-1].request.role == "confirmation"  # in the group that runs: no start of its own
    assert store.records[-1].group == 3


def test_a_search_is_measured_once_and_its_group_serves_the_first_start() -> None:
    _, store, runner = run(planned(starts=2, search={"method": "optuna", "trials": 2}))
    searched = [record for record in store.records if record.request.role == "search"]
    assert len(searched) == 2
    assert {record.group for record in searched} == {1}
    assert groups(curve(store)) == {0: {1}, 1: {2}}
    starts = [start for start, *_ in places(curve(store))]
    assert starts == sorted(starts)  # of the default and the winner together
    assert runner.num_starts == 2


def test_process_knobs_have_groups_of_their_own_in_every_start() -> None:
    _, store, _ = run(planned(starts=2, environment={"A": ["1", "2"]}))
    assert groups(curve(store)) == {0: {1, 2}, 1: {3, 4}}


def test_the_first_start_is_the_trial_that_one_start_would_have_measured() -> None:
    one, three = ([trial.request.trial_id for trial in planned(starts).trials()] for starts in (1, 3))
    assert three[: len(one)] == one
    assert len(set(three)) == 3 * len(one)


def test_more_starts_on_resume_measure_only_what_is_new() -> None:
    _, store, _ = run(planned(starts=1))
    known = len(store.records)
    _, store, runner = run(planned(starts=3), store=store)
    asked = [record for record in store.records[known:] if record.request.role == "scaling"]
    assert {start for start, *_ in places(asked)} == {1, 2}
    assert len(asked) == 8
    assert runner.num_starts == 2
    assert groups(curve(store)) == {0: {1}, 1: {2}, 2: {3}}  # counted on, though the runner is a new one


def test_an_interrupted_start_goes_on_in_a_group_of_its_own() -> None:
    store = MemoryStore()
    with pytest.raises(Interrupted):
        run(planned(), Failing(6, Interrupted("SIGTERM")), store)
    done = places(store.records)
    assert done[-1][0] == 1
    _, store, runner = run(planned(), store=store)
    rest = places(curve(store))[len(done) :]
    assert sorted(done + rest) == sorted(places(run(planned())[1].records[:-1]))
    assert runner.num_starts == 2  # the rest of start 1, and start 2


def test_a_trial_that_is_tried_again_shares_no_group_with_another_start() -> None:
    _, store, _ = run(planned(starts=2), FailingOnce(2))
    assert [record.state for record in curve(store)].count("crashed") == 1
    _, store, _ = run(planned(starts=3), store=store, retry=frozenset({"crashed"}))
    again = curve(store)[8:]
    assert places(again)[0][0] == 0
    assert {start for start, *_ in places(again[1:])} == {2}
    assert again[0].group not in {record.group for record in again[1:]}


class FailingOnce(FakeRunner):
    """The trial of one number crashes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.fail = lambda request: ("crashed", "x") if len(self.requests) == number else None


class SlowToStart(ClockRunner):
    """A worker group needs 100 s, a trial 10."""

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        before = self.num_starts
        group = super().start(world_size, environment, anew=anew)
        self.now += 100.0 * (self.num_starts - before)
        return group


@pytest.mark.parametrize(("seconds", "reached"), [(165, 1), (235, 1), (310, 2), (480, 3)])
def test_the_time_budget_knows_what_a_group_takes(
    monkeypatch: pytest.MonkeyPatch, seconds: float, reached: int
) -> None:
    """Four trials and a group are 140 s a start; the confirmation is kept for last."""
    runner = SlowToStart(monkeypatch)
    end = runner.now + seconds
    executed, store, _ = run(planned(), runner, budget=TimeBudget(end))
    assert runner.now <= end
    assert {start for start, *_ in places(curve(store))} == set(range(reached))
    assert store.records[-1].request.role == "confirmation"
    if reached < 3:
        assert {each.start for each in executed.not_reached[0].requests} >= {reached}
    else:
        assert executed.not_reached == []


def test_a_suggestion_counts_once_however_often_it_was_started() -> None:
    plan = planned()
    _, store, _ = run(plan)
    results = analyse(plan.study, store.records)
    assert results.best is not None
    assert (results.best.num_suggestions, results.best.num_failed) == (2, 0)
    assert len(results.configurations) == 2
    assert len(results.curves) == 2
    assert len(results.complete) == 5  # four points and the confirmation
    told = " ".join(method_words(results))
    assert "repeated in 3 starts of the workers" in told
    assert "of one start of the workers:" not in told
    one = " ".join(method_words(analyse(plan.study, store.records[:4])))
    assert "All intervals are of one start of the workers" in one


def test_starts_become_one_point_whose_interval_holds_what_they_differ_by() -> None:
    plan = planned(starts=4, knobs={"batch_size": [32]})
    runner = FakeRunner(noise=Noise(block=0.002, step=0.001, start=0.05), seed=3)
    _, store, _ = run(plan, runner)
    results = analyse(plan.study, store.records)
    assert [(each.config.world_size, len(results.starts(each))) for each in results.measured] == [
        (2, 4),
        (1, 4),
    ]
    assert len(results.records) == 8
    truth = runner.truth(results.measured[0].config)["step_time_s"]
    found = results.scaling(results.measured[0]).step_time_s
    assert found.low < truth < found.high
    assert found.starts == 4
    one_start = analyse(plan.study, store.records[:2]).scaling(store.records[0]).step_time_s
    assert found.relative_half_width > 5 * one_start.relative_half_width
    assert [(row.world_size, row.starts, row.rounds) for row in results.summaries] == [
        (2, 4, sum(len(each.steps.rounds) for each in results.starts(results.measured[0]) if each.steps)),
        (1, 4, sum(len(each.steps.rounds) for each in results.starts(results.measured[1]) if each.steps)),
    ]
    assert results.curves[0].points[-1].throughput_samples_per_s.starts == 4


# --- process knobs


VARIABLES = {"environment": {"A": ["1", "2", "3"]}, "knobs": {"batch_size": 32}}


def test_from_the_second_start_on_the_groups_of_variables_are_shuffled() -> None:
    orders = []
    for seed in range(8):
        plan = planned(starts=3, seed=seed, **VARIABLES)
        configs = [trial.request.config for trial in plan.trials()]
        values = [config.environment["A"] for config in configs if config.world_size == 2]
        first, *further = (tuple(values[start * 3 : start * 3 + 3]) for start in range(3))
        assert first == ("1", "2", "3")
        assert all(sorted(order) == ["1", "2", "3"] for order in further)
        orders += further
    assert len(set(orders)) > 3
    assert planned(starts=3, **VARIABLES).trials() == planned(starts=3, **VARIABLES).trials()


@pytest.mark.parametrize(("share", "verdict"), [(0.5, Verdict.BETTER), (0.0, Verdict.NONE)])
def test_a_winner_that_needs_other_processes_is_confirmed_by_starts(share: float, verdict: Verdict) -> None:
    """Half as fast again with one variable, in starts that differ by 3%."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        faster = 1 + share * (config.environment["A"] == "2") + 1e-3 * (config.environment["A"] != "1")
        return StepCosts(plain_s=0.010 / faster, exposed_s=0.002 / faster)

    plan = planned(starts=5, search={"method": "optuna", "trials": 3}, **VARIABLES)
    _, store, _ = run(plan, FakeRunner(costs, Noise(start=0.03), seed=4))
    results = analyse(plan.study, store.records)
    if results.best is not None and results.best.is_default:
        assert verdict is Verdict.NONE
        return
    (found,) = results.confirmations
    assert not found.paired
    assert found.gain.gain.starts > 1
    assert found.gain.verdict is verdict
    assert found.gain.gain.low < share < found.gain.gain.high
    assert ("measured apart" in answer_of(results)) is (verdict is Verdict.BETTER)


def test_what_a_start_takes_is_told_without_the_wait_for_places(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(ClockRunner):
        """Groups start in 10 s, once others have given back the places 30 s later."""

        def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
            before = self.num_starts
            group = super().start(world_size, environment, anew=anew)
            if self.num_starts == before:
                return group
            self.now += 40.0
            return replace(group, waited_s=30.0)

    class Told(Watched):
        def group(self, num_workers: int, seconds: float | None) -> None:
            told.append(seconds)

    told = list[float | None]()
    session, _, _ = run(planned(2), Busy(monkeypatch), watcher=Told())
    assert [seconds for seconds in told if seconds] == pytest.approx([10.0, 10.0])
    assert session.budget.start_s == pytest.approx(10.0)
