"""Which trials are run, in which order, what is kept, and what is left out when the time is short."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raybench.driver.groups import MAX_LOST_STARTS
from raybench.driver.session import Session
from raybench.driver.time_budget import LEAST_ROUNDS_S, TimeBudget
from raybench.errors import GroupLostError, Interrupted
from raybench.machine.environment import Environment
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import Note, NoteKind, Stage, left_out
from raybench.plan.trials import ALL_VARIANTS, Plan
from raybench.records.messages import GroupInfo, Outcome, Progress
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Configuration, StepsRequest, TrialRequest
from raybench.records.store import ResultsDirectory
from raybench.report.answer import answer_of
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import CostModel, FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, ClockRunner, Failing, MemoryStore, Watched, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25]}
SEARCH = {"method": "optuna", "trials": 6}
STAGES = ["scaling", "search", "scaling"]  # the default's curve, suggestions, visits of default and winner


def planned(devices: int = 2, **fields: object) -> Plan:
    given = {"knobs": KNOBS, "search": SEARCH, "measure": {"half_width": 0.02}} | fields
    return make_plan(study(**given), Resources("cpu", devices, "a CPU"))


def roles(store: MemoryStore) -> list[str]:
    """The roles in their order, each run of the same once."""
    found: list[str] = []
    for record in store.records:
        if found[-1:] != [record.request.role]:
            found.append(record.request.role)
    return found


def asked_of(store: MemoryStore, role: str) -> list[StepsRequest]:
    """The requests of a role, in their order."""
    return [each.request for each in store.records if each.request.role == role]


def faster(share: float, when: Callable[[Setting], bool]) -> CostModel:
    """One batch's work everywhere; ``when`` says which settings have a throughput higher by ``share``."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        parts = StepCosts(plain_s=0.010, contention_s=0.0005, wrapper_s=0.0005, exposed_s=0.004)
        if not when(setting) or config.world_size == 1:
            return parts
        exposed_s = (0.010 + 0.0005 + 0.0005 + 0.004) / (1 + share) - 0.011
        return StepCosts(plain_s=0.010, contention_s=0.0005, wrapper_s=0.0005, exposed_s=exposed_s)

    return costs


# --- the stages


def test_the_default_at_every_size_then_a_search_then_visits_of_default_and_winner():
    plan = planned(4)
    executed, store, runner = run(plan)
    assert roles(store) == STAGES
    default = plan.default().setting
    first = [record.request for record in store.records[:3]]
    assert [(each.config.world_size, each.visit) for each in first] == [(4, 0), (2, 0), (1, 0)]
    assert {each.config.setting.batch_size for each in first} == {default.batch_size}
    searched = asked_of(store, "search")
    assert len(searched) == 5  # and the default
    assert {request.config.world_size for request in searched} == {4}
    assert default not in [request.config.setting for request in searched]
    (winner,) = executed.ledger.winners()
    visits = Counter(
        (each.config.world_size, each.config.setting.batch_size, each.config.setting.bucket_cap_mb)
        for each in asked_of(store, "scaling")
    )
    setting = winner.config.setting
    assert setting != default
    for size, of_winner in ((4, 2), (2, 3)):  # at the target the suggestion is the first
        assert visits[size, default.batch_size, default.bucket_cap_mb] == 3
        assert visits[size, setting.batch_size, setting.bucket_cap_mb] == of_winner
    assert sum(visits.values()) == len({each.trial_id for each in asked_of(store, "scaling")})
    assert executed.not_reached == executed.notes == []
    assert [record.trial_id for record in store.records] == [each.trial_id for each in runner.requests]
    assert runner.num_starts == 1  # one worker group serves them all


@pytest.mark.parametrize("search", [SEARCH, {"method": "grid"}], ids=["optuna", "grid"])
def test_the_default_is_in_the_rounds_of_every_other_setting_at_the_target(search):
    plan = planned(4, search=search)
    _, store, _ = run(plan)
    default = plan.default().setting.at(4)
    for record in store.records:
        request = record.request
        has_anchor = request.config.world_size == 4 and request.config.setting != default
        assert request.anchor == (default if has_anchor else None)
        assert ("anchor" in request.variants) == has_anchor
        assert all((each.block("anchor") is not None) == has_anchor for each in record.steps.rounds)


def test_a_suggestion_of_a_search_that_compiles_has_three_times_as_long():
    knobs, measure = {"batch_size": [512, 32], "compile": [False, True]}, {"timeout_seconds": 100}
    _, store, _ = run(planned(knobs=knobs, measure=measure, search={"method": "optuna", "trials": 4}))
    times = {(each.config.setting.compile, each.timeout_s) for each in asked_of(store, "search")}
    assert times == {(False, 100), (True, 300)}


def test_an_anchor_that_cannot_be_had_is_left_out():
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        missing = {"anchor": "out of memory"} if setting.batch_size == 128 else {}
        return StepCosts(plain_s=0.01, missing=missing)

    _, store, _ = run(planned(), FakeRunner(costs, QUIET_ENOUGH))
    without = [each for each in store.records if each.steps.missing]
    assert {each.config.setting.batch_size for each in without} == {128}


def test_a_default_that_has_failed_is_not_tried_in_the_rounds_of_others():
    """It may have ended its processes, and would end those of every other trial."""

    def fail(request: TrialRequest) -> tuple[State, str] | None:
        return ("oom", "killed") if request.config.setting.batch_size == 512 else None

    plan = planned()
    _, store, _ = run(plan, FakeRunner(noise=QUIET_ENOUGH, fail=fail))
    anchored = [each for each in store.records if each.request.anchor == plan.default().setting]
    assert anchored
    others = [each for each in anchored if each.config.setting.batch_size != 512]
    assert {each.request.anchor_failure for each in others} == {"oom: killed"}
    assert all(each.steps.missing == {"anchor": "oom: killed"} for each in others)
    assert {each.trial_id for each in others} <= {each.request.trial_id for each in others}
    _, _, again = run(plan, FakeRunner(), store)
    assert again.requests == []


def test_the_visits_of_a_winner_have_all_variants_and_come_in_shuffled_order():
    plan = planned(4)
    executed, store, _ = run(plan)
    trials = plan.visits(executed.ledger.winners())
    *_, last = (place for place, each in enumerate(store.records) if each.request.role == "search")
    assert [each.request for each in store.records[last + 1 :]] == trials
    assert trials != sorted(trials, key=lambda each: (each.visit, -each.config.world_size))
    other = planned(4, seed=1).visits(executed.ledger.winners())
    assert [trial.visit for trial in other] != [each.visit for each in trials]
    at_target = [each for each in trials if each.config.world_size == 4]
    assert all(set(each.variants) - {"anchor"} == set(ALL_VARIANTS) for each in at_target)


def test_the_user_is_told_each_stage_and_each_trial():
    executed, store, _ = run(planned())
    watched = executed.watcher
    assert [stage for stage, _ in watched.stages] == [Stage.CURVES, Stage.SEARCH, Stage.VISITS]
    assert len(watched.trials) == len(watched.done) == len(store.records)
    request, done, total, left_s = watched.trials[4]
    assert (request.config.world_size, request.role) == (2, "search")
    assert (done, total) == (3, 6)
    assert left_s > 0
    first, found = watched.done[0]
    assert (found.step_time_s.visits, found.step_time_s.n) == (1, len(first.steps.rounds))


@pytest.mark.promise("grid")
def test_a_grid_measures_everything_once_then_visits_default_and_best():
    plan = planned(4, search={"method": "grid"})
    executed, store, runner = run(plan)
    assert roles(store) == ["scaling"]
    first = [trial.trial_id for trial in plan.trials()]
    assert [record.trial_id for record in store.records[: len(first)]] == first
    assert [each.config.world_size for each in asked_of(store, "scaling")[:3]] == [4, 2, 1]
    visits = [trial.trial_id for trial in plan.visits(executed.ledger.winners())]
    assert [each.trial_id for each in runner.requests] == [*first, *visits]
    assert {each.request.visit for each in store.records[len(first) :]} == {1, 2}


def test_visits_are_spread_over_the_starts_of_the_workers():
    _, store, runner = run(planned(measure={"visits": 4, "starts": 2}))
    by_start = {each.visit: each.start for each in asked_of(store, "scaling")}
    assert by_start == {0: 0, 1: 0, 2: 1, 3: 1}
    assert runner.num_starts == 2
    more = planned(measure={"visits": 2, "starts": 3})
    assert {each.visit for each in more.visits(())} == {1, 2}  # one in each start at least


def test_a_search_smaller_than_asked_ends_when_the_space_does():
    _, store, _ = run(planned(knobs={"batch_size": [8, 16]}))
    assert [each.config.batch_size for each in asked_of(store, "search")] == [16]


# --- the truth is found


@pytest.mark.parametrize("method", ["optuna", "grid"])
def test_a_setting_that_is_20_percent_faster_wins_and_is_visited(method):
    knobs = {"batch_size": 64, "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]}
    best = Setting(batch_size=64, bucket_cap_mb=25, precision="bf16")
    plan = planned(knobs=knobs, search={"method": method, "trials": 6})
    runner = FakeRunner(faster(0.2, lambda setting: setting.differences(best) == {}), QUIET_ENOUGH)
    executed, store, _ = run(plan, runner)
    (winner,) = executed.ledger.winners()
    assert winner.config.setting == best
    last = [each for each in asked_of(store, "scaling") if each.visit == 2 and each.config.world_size == 2]
    assert {each.config.setting for each in last} == {best, plan.default().setting}


def test_of_a_default_that_is_best_all_visits_are():
    plan = planned(knobs={"batch_size": [512, 32, 128]})
    _, store, _ = run(plan)
    assert {each.config.setting.batch_size for each in asked_of(store, "scaling")} == {512}
    assert len(asked_of(store, "scaling")) == 2 * 3


def test_several_objectives_visit_each_of_the_front():
    objectives = ["throughput", "peak_memory"]
    plan = planned(
        knobs={"batch_size": [128, 32, 512]}, search={"method": "optuna", "objectives": objectives}
    )
    _, store, _ = run(plan)
    curve = {each.config.setting.batch_size for each in asked_of(store, "scaling")}
    assert curve == {32, 128, 512}


def test_process_knobs_have_groups_of_their_own_with_the_anchor_of_their_variables():
    plan = planned(
        knobs={"batch_size": [64, 32]}, environment={"FAST": ["0", "1"]}, search={"method": "grid"}
    )

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.010, exposed_s=0.004 if config.environment["FAST"] == "0" else 0.001)

    executed, store, runner = run(plan, FakeRunner(costs, QUIET_ENOUGH))
    assert executed.notes == []
    (winner,) = executed.ledger.winners()
    assert winner.config.environment == {"FAST": "1"}
    anchored = [each for each in asked_of(store, "scaling") if each.anchor is not None]
    assert {each.config.environment["FAST"] for each in anchored} == {"0", "1"}
    assert {each.config.batch_size for each in anchored} == {32}  # the default's setting is its own anchor
    assert runner.num_starts <= 4  # 0 and 1 of the grid, 0 and 1 of the visits


def test_one_device_only():
    plan = planned(1, knobs={"batch_size": [32, 64], "bucket_cap_mb": [1, 25]})
    executed, store, _ = run(plan)
    assert {record.config.world_size for record in store.records} == {1}
    assert executed.notes == [Note(NoteKind.SPACE_EXHAUSTED, Stage.SEARCH, 2, 6)]
    assert all(record.request.anchor is None for record in store.records)
    assert {record.config.setting.strategy for record in store.records} == {"single"}
    assert [each.config.batch_size for each in asked_of(store, "search")] == [64]
    again = FakeRunner()
    run(plan, again, store)
    assert again.requests == []


def test_strong_scaling():
    plan = planned(4, scaling={"mode": "strong"}, knobs={"batch_size": [512, 64]})
    _, store, _ = run(plan)
    assert {record.state for record in store.records} == {"complete"}
    curve = {each.config.world_size: each for each in asked_of(store, "scaling")}
    assert {size: request.config.batch_size for size, request in curve.items()} == {
        4: 128,
        2: 256,
        1: 512,
    }
    assert "at global batch 512" in answer_of(analyse(plan.study, store.records))


# --- what is kept


@pytest.mark.parametrize("error", [Interrupted("SIGINT"), GroupLostError("gone")], ids=repr)
@pytest.mark.parametrize("after", [0, 4, 9])  # in the curve, in the search, in mid-visit
def test_what_was_measured_before_the_end_is_kept(error, after):
    store, runner = MemoryStore(), Failing(after, error)
    with pytest.raises(type(error)):
        run(planned(), runner, store)
    assert [record.trial_id for record in store.records] == [each.trial_id for each in runner.requests]
    assert len(store.records) == after
    # and the next run goes on from there
    again = FakeRunner(noise=QUIET_ENOUGH)
    run(planned(), again, store)
    assert not {each.trial_id for each in again.requests} & {each.trial_id for each in runner.requests}
    assert roles(store) == STAGES
    assert len(asked_of(store, "search")) == 5
    assert all(each.steps for each in store.records)
    ids = [record.trial_id for record in store.records]
    assert len(ids) == len(set(ids))  # nothing was measured twice


@pytest.mark.parametrize("search", [SEARCH, {"method": "grid"}], ids=["optuna", "grid"])
@pytest.mark.parametrize("objectives", [["throughput"], ["throughput", "peak_memory"]], ids=len)
def test_a_finished_study_asks_for_nothing(search, objectives):
    plan = planned(search={**search, "objectives": objectives})
    _, store, _ = run(plan, FakeRunner(fail=some_fail))
    num_records = len(store.records)
    executed, _, again = run(plan, FakeRunner(), store)
    assert again.requests == []
    assert again.num_starts == 0
    assert len(store.records) == num_records
    assert executed.not_reached == []


def some_fail(request: TrialRequest) -> tuple[State, str] | None:
    if request.config.setting.batch_size == 32:
        return "crashed", "planted"
    return ("oom", "planted") if request.config.setting.bucket_cap_mb == 1 else None


def test_on_disk_at_once_and_resumed_from_there(tmp_path):
    plan, path = planned(), tmp_path / "results"
    with ResultsDirectory.create(path, plan.study, environment()) as store:
        with pytest.raises(Interrupted):
            run(plan, Failing(8, Interrupted("SIGTERM")), store)
        assert len((path / "trials.jsonl").read_bytes().splitlines()) == 8
    with ResultsDirectory.resume(path) as store:
        again = make_plan(store.study(), Resources("cpu", 2, "a CPU"))
        _, _, runner = run(again, FakeRunner(noise=QUIET_ENOUGH), store)
        assert runner.requests
        ids = [record.trial_id for record in store.records()]
        assert len(ids) == len(set(ids))
        samples = {file.stem for file in (path / "samples").glob("*.parquet")}
        assert samples == set(ids)
        _, _, idle = run(again, FakeRunner(), store)
        assert idle.requests == []


def environment() -> Environment:
    return Environment(
        hostname="here", os="Linux", kernel="6", cpu_model="a CPU", cores=2, usable_cores=2,
        memory_bytes=8 * 2**30, python="3.12",
    )  # fmt: skip


# --- what fails


@pytest.mark.parametrize("state", ["oom", "crashed", "timeout", "invalid"])
def test_a_trial_that_fails_does_not_end_the_study(state):
    def fail(request: TrialRequest) -> tuple[State, str] | None:
        return (state, "planted") if request.config.setting.precision == "bf16" else None

    costs = faster(0.2, lambda setting: setting.bucket_cap_mb == 1)
    plan = planned(knobs={"batch_size": 64, "bucket_cap_mb": ["default", 1], "precision": ["fp32", "bf16"]})
    executed, store, _ = run(plan, FakeRunner(costs, QUIET_ENOUGH, fail=fail))
    failed = [record for record in store.records if record.state == state]
    assert failed
    assert all(record.reason == "planted" and record.steps is None for record in failed)
    assert roles(store) == STAGES
    told = [record.reason for record, _ in executed.watcher.done]
    assert "planted" in told


def test_a_study_whose_every_trial_fails_ends_with_that():
    plan = planned()
    _, store, _ = run(plan, FakeRunner(fail=lambda _: ("timeout", "no luck")))
    assert {record.state for record in store.records} == {"timeout"}
    assert {record.request.role for record in store.records} == {"search", "scaling"}
    assert answer_of(analyse(plan.study, store.records)).startswith("No trial completed")


def test_impossible_settings_are_recorded_without_a_worker():
    plan = planned(knobs={"batch_size": [64, 32], "precision": ["fp32", "tf32"]}, search={"method": "grid"})
    _, store, runner = run(plan)
    assert all(request.config.setting.precision == "fp32" for request in runner.requests)
    invalid = [record for record in store.records if record.state == "invalid"]
    assert len(invalid) == 2 * 2
    assert all("tf32 exists on GPUs only" in record.reason for record in invalid)


def test_an_impossible_default_is_no_yardstick():
    """No worker is asked for what it cannot do, and the others have numbers."""
    plan = planned(knobs={"batch_size": 64, "precision": ["tf32", "fp32"]})
    _, store, runner = run(plan)
    assert {each.config.setting.precision for each in store.records if each.steps} == {"fp32"}
    for request in runner.requests:
        assert "tf32" not in (
            request.config.setting.precision,
            request.anchor and request.anchor.precision,
        )


class Starts(FakeRunner):
    """Groups that do not start, as often as ``lost`` says, one number for each trial."""

    def __init__(self, lost: list[int]) -> None:
        super().__init__(noise=QUIET_ENOUGH)
        self.lost, self.tries = lost, 0

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        if len(self.requests) < len(self.lost) and self.tries < self.lost[len(self.requests)]:
            self.tries += 1
            raise GroupLostError("no worker answered")
        self.tries = 0
        return super().start(world_size, environment, anew=anew)


def test_a_group_that_does_not_start_is_tried_again():
    lost = [MAX_LOST_STARTS - 1] * 3  # in a row before each of three trials: never three in a row
    _, store, _ = run(planned(), Starts(lost))
    assert roles(store) == STAGES
    assert {record.state for record in store.records} == {"complete"}


class LosesTheFirst(FakeRunner):
    """A group that dies before its first trial begins."""

    def run(self, request, on_progress):
        if not self.requests:
            self.requests.append(request)
            raise GroupLostError("rank 1: its process died")
        return super().run(request, on_progress)


def test_a_trial_that_never_began_is_asked_again():
    runner = LosesTheFirst(noise=QUIET_ENOUGH)
    _, store, _ = run(planned(), runner)
    assert runner.requests[0] == runner.requests[1]
    assert roles(store) == STAGES
    assert {record.state for record in store.records} == {"complete"}


def test_a_group_that_never_starts_ends_the_study():
    store = MemoryStore()
    with pytest.raises(GroupLostError, match="no worker answered"):
        run(planned(), Starts([0, 0, MAX_LOST_STARTS]), store)
    assert len(store.records) == 2


# --- --retry


@pytest.mark.parametrize("search", [SEARCH, {"method": "grid"}], ids=["optuna", "grid"])
def test_retry_measures_the_named_states_again_once(search):
    plan = planned(search=search)
    _, store, _ = run(plan, FakeRunner(noise=QUIET_ENOUGH, fail=some_fail))
    crashed = {each.trial_id for each in store.records if each.state == "crashed"}
    others = {each.trial_id for each in store.records} - crashed
    assert {each.request.role for each in store.records if each.state == "crashed"}
    runner = FakeRunner(noise=QUIET_ENOUGH, fail=some_fail)  # and they crash again
    _, _, runner = run(plan, runner, store, retry=frozenset({"crashed"}))
    assert sorted(each.trial_id for each in runner.requests) == sorted(crashed)
    _, _, runner = run(plan, FakeRunner(noise=QUIET_ENOUGH), store, retry=frozenset({"crashed"}))
    asked = [each.trial_id for each in runner.requests]
    assert crashed <= set(asked)
    assert len(asked) == len(set(asked))
    assert not others & set(asked)
    assert {store.latest()[trial_id].state for trial_id in crashed} == {"complete"}


def test_a_retry_takes_the_time_outs_that_are_asked_for_now():
    fail = {"fail": lambda each: ("timeout", "not done after 60 s")}
    _, store, _ = run(planned(measure={"timeout_seconds": 60}), FakeRunner(noise=QUIET_ENOUGH, **fail))
    assert {record.state for record in store.records} == {"timeout"}
    longer = planned(measure={"timeout_seconds": 600})
    _, _, runner = run(longer, FakeRunner(noise=QUIET_ENOUGH), store, retry=frozenset({"timeout"}))
    assert runner.requests
    assert {request.timeout_s for request in runner.requests} == {600}


def test_what_a_retry_finds_can_win():
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return faster(0.2, lambda each: each.bucket_cap_mb == 25)(config, setting)

    plan = planned(knobs={"batch_size": 64, "bucket_cap_mb": ["default", 1, 25]})
    crash = FakeRunner(
        costs,
        QUIET_ENOUGH,
        fail=lambda each: ("crashed", "x") if each.config.setting.bucket_cap_mb == 25 else None,
    )
    _, store, _ = run(plan, crash)
    run(plan, FakeRunner(costs, QUIET_ENOUGH), store, retry=frozenset({"crashed"}))
    assert asked_of(store, "scaling")[-1].anchor is None or asked_of(store, "scaling")[-1].visit
    assert any(each.visit and each.config.setting.bucket_cap_mb == 25 for each in asked_of(store, "scaling"))


def test_suggestions_that_there_is_no_time_to_try_again_are_counted_once(monkeypatch):
    plan = planned()
    _, store, _ = run(plan, FakeRunner(noise=QUIET_ENOUGH, fail=some_fail))
    crashed = [each for each in store.records if each.state == "crashed" and each.request.role == "search"]
    assert len(crashed) > 1
    for seconds, measured in ((0.0, 0), (15.0, 1)):
        runner = ClockRunner(monkeypatch)
        budget = TimeBudget(runner.now + seconds)
        again, _, _ = run(plan, runner, copy.deepcopy(store), retry=frozenset({"crashed"}), budget=budget)
        (late,) = [note for note in again.not_reached if note.stage is Stage.SEARCH]
        assert len(runner.requests) == measured
        assert (late.number, late.total) == (len(crashed) - measured, SEARCH["trials"])
        for _, done, total, left_s in again.watcher.trials:
            assert (done, total) == (SEARCH["trials"] - len(crashed), SEARCH["trials"])
            assert left_s is None or left_s <= seconds


def test_a_session_reads_its_records_once_beside_the_ledger():
    class Counting(MemoryStore):
        reads = 0

        def latest(self) -> dict[str, TrialRecord]:
            self.reads += 1
            return super().latest()

    store = Counting()
    Session(planned(), FakeRunner(), store, Watched())
    assert store.reads == 2


# --- the time budget


def test_enough_time_reaches_everything(monkeypatch):
    runner = ClockRunner(monkeypatch)
    executed, store, _ = run(planned(), runner, budget=TimeBudget(runner.now + 1000))
    assert executed.not_reached == []
    assert roles(store) == STAGES


class OneDeviceIsQuick(ClockRunner):
    """As on real devices: one alone has one variant, of five."""

    def run(self, request, on_progress):
        self.seconds = 5.0 if request.config.world_size == 1 else 10.0
        outcome = super().run(request, on_progress)
        if request.measure.max_seconds >= 0.7 * self.seconds:
            return outcome
        # more was wanted, else later ones would be expected to want no more than that
        cut = outcome.result.model_copy(update={"stopped_by": "max_seconds"})
        return replace(outcome, result=cut)


@pytest.mark.parametrize("budget", [50, 70, 90, 110, 130])
def test_what_was_not_reached_is_named_and_the_deadline_kept(monkeypatch, budget):
    """First the later visits are left out, then suggestions; the curves of default and best are kept."""
    plan = planned(knobs={**KNOBS, "precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 18})
    runner = OneDeviceIsQuick(monkeypatch)
    end = runner.now + budget
    executed, store, _ = run(plan, runner, budget=TimeBudget(end))
    assert runner.now <= end
    suggested, late = len(asked_of(store, "search")), {each.stage: each for each in executed.not_reached}
    visits = [each for each in store.records if each.request.visit]
    assert not visits or suggested == 17
    assert (Stage.SEARCH in late) == (suggested < 17)
    if Stage.SEARCH in late:
        assert late[Stage.SEARCH] == Note(NoteKind.NOT_REACHED, Stage.SEARCH, 17 - suggested, 18)
        assert suggested >= (budget - 30) // 10
    assert {each.visit for each in late[Stage.VISITS].requests} <= {1, 2}  # the winner's curve is there
    assert Stage.CURVES not in late
    assert executed.not_reached == left_out(plan.study, store.records, 1, executed.ledger.winners())


def test_the_highest_visits_are_what_is_left_out(monkeypatch):
    plan = planned(search={"method": "grid"}, knobs={"batch_size": 512}, measure={"visits": 5})
    runner = ClockRunner(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 45))
    (note,) = executed.not_reached
    assert note.stage is Stage.VISITS
    measured = [each.request.visit for each in store.records]
    assert max(measured) < 4
    assert min(each.visit for each in note.requests) >= max(measured)


@pytest.mark.parametrize("budget", [170, 200])
def test_rather_than_leave_suggestions_out_all_are_shorter(monkeypatch, budget):
    plan = planned(knobs={**KNOBS, "precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 18})
    runner = OneDeviceIsQuick(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + budget))
    assert executed.not_reached == []
    assert runner.now <= 1000 + budget
    searched = [each.measure.max_seconds for each in asked_of(store, "search")]
    assert len(searched) == 17
    assert min(searched) < 6


@pytest.mark.parametrize("seconds", [60, 90, 120])
def test_a_grid_of_18_has_shorter_trials_rather_than_few(monkeypatch, seconds):
    """Trials of 20 s, or of 9 s on one device: three to six of them would fit."""
    plan = planned(search={"method": "grid"}, knobs={**KNOBS, "precision": ["fp32", "bf16"]})
    runner = ClockRunner(monkeypatch, seconds=20)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + seconds))
    assert runner.now <= 1000 + seconds
    measured = [each.request for each in store.records if each.request.role == "scaling"]
    assert len(measured) >= seconds // 20 * 2
    assert all(LEAST_ROUNDS_S <= each.measure.max_seconds <= 20 for each in measured)
    total = len(plan.trials())
    assert [(note.stage, len(note.requests)) for note in executed.not_reached[:1]] == [
        (Stage.CURVES, total - len(measured))
    ]
    assert executed.not_reached == left_out(plan.study, store.records, 1, executed.ledger.winners())


def test_time_that_is_nearly_enough_is_divided_among_all_trials(monkeypatch):
    """Every trial has shorter rounds, none is left out, and a resumed study takes them for what they are."""
    plan = planned(search={"method": "grid"}, knobs={"batch_size": [512, 32]}, measure={"max_seconds": 20})
    store, whole = MemoryStore(), ClockRunner(monkeypatch, seconds=20)
    run(plan, whole, budget=TimeBudget(whole.now + 1000))
    needed_s = whole.now - 1000
    runner = ClockRunner(monkeypatch, seconds=20)
    end = runner.now + 0.8 * needed_s
    executed, _, _ = run(plan, runner, store, budget=TimeBudget(end))
    assert executed.not_reached == []
    assert 0.6 * needed_s < runner.now - 1000 <= 0.8 * needed_s
    assert len(store.records) == len(whole.requests)
    assert min(each.request.measure.max_seconds for each in store.records) < 14
    again = ClockRunner(monkeypatch)
    run(plan, again, store)
    assert again.requests == []


def test_a_fast_winner_is_expected_to_be_fast(monkeypatch):
    """What a setting took in the search shows what its visits will take."""

    class ByPrecision(ClockRunner):
        def run(self, request, on_progress):
            self.seconds = 3.0 if request.config.setting.precision == "bf16" else 10.0
            return super().run(request, on_progress)

    plan = planned(knobs={**KNOBS, "precision": ["fp32", "bf16"]}, measure={"max_seconds": 20})
    runner = ByPrecision(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 1000))
    for record in store.records:
        assert executed.forecast.cost_of(record.request) == pytest.approx(record.wall_time_s, rel=0.2)


def test_a_slow_first_trial_costs_the_search_nothing(monkeypatch):
    """What only looked long by the first trial is given back once others have shown their costs."""

    class ColdAtFirst(ClockRunner):
        def run(self, request, on_progress):
            usual_s = 9.0 if request.role == "scaling" else 5.0
            self.seconds = 15.0 if not self.requests else usual_s
            return super().run(request, on_progress)

    plan = planned(search={"method": "optuna", "trials": 5}, measure={"max_seconds": 20})
    runner = ColdAtFirst(monkeypatch)
    end = runner.now + 120
    executed, store, _ = run(plan, runner, budget=TimeBudget(end))
    assert executed.not_reached == []
    assert len(asked_of(store, "search")) == 4
    assert runner.now <= end


def test_a_budget_too_short_for_the_curve_names_its_trials(monkeypatch):
    plan = planned(search={"method": "grid"}, knobs={"batch_size": [512, 32]})
    runner = ClockRunner(monkeypatch, seconds=20)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 20))
    note = executed.not_reached[0]
    left = 4 - len(asked_of(store, "scaling"))
    assert note.stage is Stage.CURVES
    assert 0 < left < 4
    assert len(note.requests) == left


def test_no_time_at_all_measures_nothing_and_says_so(monkeypatch):
    runner = ClockRunner(monkeypatch)
    executed, store, _ = run(planned(), runner, budget=TimeBudget(runner.now - 1))
    assert store.records == []
    assert [note.stage for note in executed.not_reached] == [Stage.CURVES, Stage.SEARCH, Stage.VISITS]


@pytest.mark.parametrize("search", [SEARCH, {"method": "grid"}], ids=["optuna", "grid"])
def test_what_is_known_takes_no_time(monkeypatch, search):
    """A finished study resumed with no time left has everything, and says nothing else."""
    plan = planned(search=search)
    _, store, _ = run(plan)
    runner = ClockRunner(monkeypatch)
    executed, _, _ = run(plan, runner, store, budget=TimeBudget(runner.now - 1))
    assert executed.not_reached == []
    assert runner.requests == []


def test_the_time_left_is_never_more_than_the_budget(monkeypatch):
    runner = ClockRunner(monkeypatch)
    executed, _, _ = run(planned(), runner, budget=TimeBudget(runner.now + 120))
    left = [left_s for *_, left_s in executed.watcher.trials if left_s is not None]
    assert left
    assert all(0 <= each <= 120 for each in left)


def test_the_store_may_be_read_while_it_is_written(tmp_path: Path):
    """A second console may print the report meanwhile."""
    plan, path = planned(), tmp_path / "results"

    class Reading(FakeRunner):
        def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
            with ResultsDirectory.open_readonly(path) as reader:
                assert [each.trial_id for each in reader.records()] == [r.trial_id for r in self.requests]
            return super().run(request, on_progress)

    with ResultsDirectory.create(path, plan.study, environment()) as store:
        run(plan, Reading(noise=QUIET_ENOUGH), store)
