"""What was measured twice and not alike is measured again, where there is time."""

from dataclasses import replace

import pytest
from raybench.analysis.stats.repeated import MOST_AGAIN

from raybench.analysis import analyse
from raybench.machine.host import Resources
from raybench.plan.notes import RepeatReason, Stage
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, TrialRequest
from raybench.report.answer import answer_box, answer_of
from raybench.report.finding_texts import next_step
from raybench.run.time_budget import TimeBudget
from raybench.spec import Setting
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, ClockRunner, MemoryStore, run
from tests.unit.studies import study


class Disturbed(FakeRunner):
    """A neighbour slows the first ``times`` trials of the default's curve on two devices, 1.6 times."""

    def __init__(self, times: int = 1) -> None:
        super().__init__(self.of_now, QUIET_ENOUGH)
        self.left, self.slow = times, 1.0

    def of_now(self, config: Configuration, setting: Setting) -> StepCosts:
        alone_s = 0.008 if setting.precision == "bf16" else 0.010
        exposed_s = 0.002 if config.world_size > 1 else 0.0
        return StepCosts(plain_s=self.slow * alone_s, exposed_s=self.slow * exposed_s)

    def run(self, request: TrialRequest, on_progress):  # type: ignore[no-untyped-def]
        self.before(request)
        return super().run(request, on_progress)

    def before(self, request: TrialRequest) -> None:
        """The neighbour comes or goes."""
        config = request.config
        is_default = (config.world_size, config.setting.precision) == (2, "fp32")
        disturbed = is_default and request.role == "scaling" and self.left > 0
        self.left -= disturbed
        self.slow = 1.6 if disturbed else 1.0


def planned(**fields: object) -> Plan:
    given = {
        "knobs": {"batch_size": 64, "precision": ["fp32", "bf16"]},
        "search": {"method": "optuna", "trials": 2},
        "measure": {"half_width": 0.02},
    }
    return make_plan(study(**(given | fields)), Resources("cpu", 2, "a CPU"))


def repeats(store: MemoryStore) -> list[TrialRecord]:
    return [record for record in store.records if record.request.kind == "steps" and record.request.again]


def test_a_disturbed_trial_is_measured_again_and_its_figure_replaced():
    plan = planned()
    session, store, _ = run(plan, Disturbed())
    (again,) = [each for each in repeats(store) if each.config.world_size == 2]
    assert again.config.setting.precision == "fp32"
    assert Stage.REPEAT in [stage for stage, _, _ in session.watcher.stages]
    results = analyse(plan.study, store.records)
    assert results.headline is not None
    assert results.headline.trial_id == again.trial_id
    assert all(each.is_settled for each in results.disagreements if each.config.world_size == 2)
    nothing = FakeRunner()
    run(plan, nothing, store)
    assert nothing.requests == []  # a resumed study has nothing left to settle


def test_what_stays_apart_is_measured_so_often_and_no_more():
    _, store, _ = run(planned(), Disturbed(times=10))
    of_default = [each for each in repeats(store) if each.config.world_size == 2]
    assert 1 <= len(of_default) <= MOST_AGAIN


def test_a_grid_too():
    plan = planned(search={"method": "grid"})
    _, store, _ = run(plan, Disturbed())
    results = analyse(plan.study, store.records)
    assert results.headline is not None
    assert results.headline.request.again == 1
    assert results.best is not None
    assert [each.record.config.setting for each in results.confirmations] == [
        results.best.record.config.setting
    ]


class BesideOthers(Disturbed):
    """Others take a core and a half during the first trials of batch 256 on two devices, and slow them."""

    def of_now(self, config: Configuration, setting: Setting) -> StepCosts:
        alone_s = 0.004 + 1e-4 * setting.batch_size
        taken = 1.5 if self.slow > 1 else 0.1
        comes_s = 0.002 if config.world_size > 1 else 0.0
        return StepCosts(self.slow * alone_s, exposed_s=self.slow * comes_s, other_cores=taken, host_cores=2)

    def before(self, request: TrialRequest) -> None:
        config = request.config
        disturbed = (config.world_size, config.batch_size) == (2, 256) and self.left > 0
        self.left -= disturbed
        self.slow = 4.0 if disturbed else 1.0


def test_what_others_disturbed_is_measured_again_and_may_be_the_best():
    """It was measured once: no other figure of it disagrees."""
    grid = planned(search={"method": "grid"}, knobs={"batch_size": [32, 64, 256]})
    session, store, _ = run(grid, BesideOthers())
    (again,) = repeats(store)
    assert (again.config.world_size, again.config.batch_size) == (2, 256)
    assert (Stage.REPEAT, 1, [RepeatReason.UNDER_LOAD]) in session.watcher.stages
    results = analyse(grid.study, store.records)
    assert results.best is not None
    assert results.best.record.trial_id == again.trial_id
    assert [each.record.config.batch_size for each in results.confirmations] == [64, 256]
    assert results.under_load == ()
    assert all(each.name != "measured under load" for each in results.findings)


def test_what_others_disturb_each_time_is_told_and_not_believed():
    grid = planned(search={"method": "grid"}, knobs={"batch_size": [32, 64, 256]})
    _, store, _ = run(grid, BesideOthers(times=10))
    assert len([each for each in repeats(store) if each.config.world_size == 2]) == MOST_AGAIN
    results = analyse(grid.study, store.records)
    (under,) = results.under_load
    assert under.share == pytest.approx(1 - (1 - 0.75) / (1 - 0.05), abs=0.01)
    doubts = [each.words for each in answer_box(results) if each.question == "Not sure"]
    (doubt,) = [each for each in doubts if "faster than told" in each]
    assert doubt in answer_of(results)
    assert doubt.startswith("batch 256 on 2 devices may be faster than told, by up to 75% of its step:")
    assert "took 1.50 of 2 cores meanwhile, 0.10 beside the trial they disturbed least" in doubt
    (finding,) = [each for each in results.diagnosis if each.name == "measured under load"]
    assert "measured 3 times: stop what else runs and begin a new study" in next_step(finding)


def test_a_load_that_all_trials_have_is_no_reason():
    class Loaded(BesideOthers):
        def of_now(self, config: Configuration, setting: Setting) -> StepCosts:
            return replace(super().of_now(config, setting), other_cores=1.5)

    grid = planned(search={"method": "grid"}, knobs={"batch_size": [32, 64, 256]})
    _, store, _ = run(grid, Loaded(times=0))
    assert repeats(store) == []
    assert analyse(grid.study, store.records).under_load == ()


def test_what_agrees_is_measured_once():
    _, store, _ = run(planned(), Disturbed(times=0))
    assert repeats(store) == []


class DisturbedClock(ClockRunner):
    """The same, and trials take 10 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, seconds=10.0)
        self._disturbed = Disturbed()
        self.costs = self._disturbed.of_now

    def run(self, request: TrialRequest, on_progress):  # type: ignore[no-untyped-def]
        self._disturbed.before(request)
        return super().run(request, on_progress)


@pytest.mark.parametrize(("seconds", "is_repeated"), [(70, False), (400, True)])
def test_without_time_it_stays_as_it_is(monkeypatch, seconds, is_repeated):
    clock = DisturbedClock(monkeypatch)
    _, store, _ = run(planned(time_budget_seconds=100), clock, budget=TimeBudget(clock.now + seconds))
    assert bool(repeats(store)) == is_repeated


@pytest.mark.parametrize("seconds", range(55, 105, 5))
def test_a_finished_study_that_is_resumed_settles_what_disagrees_and_measures_nothing_else(
    monkeypatch, seconds
):
    """The suggestion that was not taken apart for want of time is no reason to measure anew."""
    plan, clock = planned(time_budget_seconds=1000), DisturbedClock(monkeypatch)
    first, store, _ = run(plan, clock, budget=TimeBudget(clock.now + seconds))
    apart = [each for each in analyse(plan.study, store.records).disagreements if not each.is_settled]
    runner = FakeRunner()
    run(plan, runner, store)
    if first.not_reached:
        assert runner.requests != []
    else:
        asked_anew = [each for each in runner.requests if each.kind == "steps" and not each.again]
        assert all(each.role == "confirmation" for each in asked_anew)
        assert bool(runner.requests) == bool(apart)


@pytest.mark.parametrize("seconds", range(60, 140, 4))
def test_nothing_is_replaced_by_less(monkeypatch, seconds):
    """However much time is left: a measurement that was cut short does not speak in a longer one's place."""
    clock = DisturbedClock(monkeypatch)
    _, store, _ = run(planned(time_budget_seconds=1000), clock, budget=TimeBudget(clock.now + seconds))
    given_s = {
        (each.config.model_dump_json(), each.request.again): each.request.measure.max_seconds
        for each in store.records
        if each.request.role == "scaling"
    }
    for (config, again), rounds_s in given_s.items():
        assert again == 0 or rounds_s >= given_s[config, again - 1]
