"""Which trials are run, in which order, what is kept, and what is left out when the time is short."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from raybench.analysis import analyse
from raybench.analysis.scaling import scaling
from raybench.analysis.stats.efficiency import gain
from raybench.analysis.stats.verdict import Verdict
from raybench.errors import GroupLostError, Interrupted
from raybench.machine.environment import Environment
from raybench.machine.host import Resources
from raybench.plan.notes import Note, NoteKind, Stage, left_out
from raybench.plan.resolve import make_plan
from raybench.plan.trials import Plan
from raybench.records.messages import GroupInfo, Outcome, Progress
from raybench.records.record import State
from raybench.records.requests import Configuration, StepsRequest, TrialRequest
from raybench.records.store import ResultsDirectory
from raybench.report.answer import answer_of
from raybench.run.in_flight import MAX_LOST_STARTS
from raybench.run.session import Session
from raybench.run.stages import take_apart_worst
from raybench.run.time_budget import LEAST_ROUNDS_S, Forecast, TimeBudget
from raybench.spec import Setting
from tests.support.planted import CostModel, FakeRunner, Noise, StepCosts
from tests.unit.runs import QUIET_ENOUGH, ClockRunner, Failing, MemoryStore, Watched, run
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25]}
SEARCH = {"method": "optuna", "trials": 6}
# at last the least efficient suggestion is taken apart
STAGES = ["search", "scaling", "confirmation", "scaling"]


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


def efficiency_in(store: MemoryStore, request: StepsRequest) -> float:
    """How the trial scales."""
    found = scaling(store.latest()[request.trial_id]).efficiency
    assert found is not None
    return found.value


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


def test_a_search_then_the_curves_then_the_confirmation():
    plan = planned(4)
    executed, store, runner = run(plan)
    assert roles(store) == STAGES
    searched = [record.request for record in store.records if record.request.role == "search"]
    assert len(searched) == 6
    assert {request.config.world_size for request in searched} == {4}
    *curve, worst = [record.request for record in store.records if record.request.role == "scaling"]
    default = plan.default().setting
    confirmation = store.records[-2].request
    assert worst == store.records[-1].request
    least = min(searched, key=lambda each: efficiency_in(store, each))
    assert worst.config == least.config
    assert worst.variants == curve[0].variants
    assert [each.config.world_size for each in curve[:3]] == [4, 2, 1]  # the default first, at the target
    assert [each.config.setting for each in curve[:2]] == [default] * 2
    assert [each.config.world_size for each in curve[3:]] in (
        [4, 2],
        [4, 2, 1],
    )  # 1: unless the default's serves
    assert curve[3].config.setting == confirmation.config.setting != default
    assert confirmation.anchor == default
    assert executed.not_reached == executed.notes == []
    assert [record.trial_id for record in store.records] == [each.trial_id for each in runner.requests]
    assert runner.num_starts == 1  # one worker group serves them all


def test_the_user_is_told_each_stage_each_trial_and_the_best():
    executed, store, _ = run(planned())
    watched = executed.watcher
    assert [stage for stage, _, _ in watched.stages] == [
        Stage.SEARCH, Stage.CURVES, Stage.CONFIRMATION, Stage.WORST,
    ]  # fmt: skip
    assert len(watched.trials) == len(watched.done) == len(store.records)
    request, done, total, left_s = watched.trials[3]
    assert (request.config.world_size, request.role) == (2, "search")
    assert (done, total) == (3, 6)
    assert left_s > 0
    assert watched.bests
    assert {record.request.role for record in watched.bests} == {"search"}


def test_a_grid_measures_everything_once_then_confirms_its_best():
    plan = planned(4, search={"method": "grid"})
    _, store, runner = run(plan)
    assert roles(store) == ["scaling", "confirmation"]
    requests = [trial.request.trial_id for trial in plan.trials()]
    assert [record.trial_id for record in store.records[:-1]] == requests
    best = max(
        (r for r in store.records[:-1] if r.config.world_size == 4),
        key=lambda r: r.steps.samples_per_step / r.steps.rounds[0].block("ddp").slowest_s,
    )
    assert store.records[-1].config.setting.batch_size == best.config.setting.batch_size
    assert len(runner.requests) == len(requests) + 1


def test_a_search_smaller_than_asked_ends_when_the_space_does():
    _, store, _ = run(planned(knobs={"batch_size": [8, 16]}))
    assert sum(record.request.role == "search" for record in store.records) == 2


# --- the truth is found


@pytest.mark.parametrize("method", ["optuna", "grid"])
def test_a_setting_that_is_20_percent_faster_wins_and_is_confirmed(method):
    knobs = {"batch_size": 64, "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]}
    best = Setting(batch_size=64, bucket_cap_mb=25, precision="bf16")
    plan = planned(knobs=knobs, search={"method": method, "trials": 6})
    runner = FakeRunner(faster(0.2, lambda setting: setting.differences(best) == {}), QUIET_ENOUGH)
    _, store, _ = run(plan, runner)
    (confirmation,) = (each for each in store.records if each.request.role == "confirmation")
    assert confirmation.config.setting == best
    found = gain(confirmation, 0.02)
    assert found.verdict is Verdict.BETTER
    assert found.gain.low <= 0.2 <= found.gain.high or found.gain.value == pytest.approx(0.2, abs=0.005)
    answer = answer_of(analyse(plan.study, store.records))
    assert re.search(r"best of 6: 25 MiB buckets, bf16, \+(19|20)\S* \[.*\] over the default", answer), answer


@pytest.mark.parametrize("seed", range(4))
def test_where_nothing_is_faster_none_is_called_so(seed):
    knobs = {"batch_size": 64, "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]}
    plan = planned(knobs=knobs)
    _, store, _ = run(plan, FakeRunner(faster(0.2, lambda _: False), Noise(), seed=seed))
    answer = answer_of(analyse(plan.study, store.records))
    assert "no significant gain" in answer or "best of 6: the default" in answer


def test_a_default_that_is_best_needs_no_confirmation():
    plan = planned(knobs={"batch_size": [512, 32, 128]})
    _, store, _ = run(plan)
    assert roles(store) == ["search", "scaling"]
    assert {record.config.setting.batch_size for record in store.records[3:-1]} == {512}
    assert store.records[-1].config.setting.batch_size == 32
    assert "best of 3: the default" in answer_of(analyse(plan.study, store.records))


def test_several_objectives_confirm_each_of_the_front():
    objectives = ["throughput", "peak_memory"]
    plan = planned(
        knobs={"batch_size": [128, 32, 512]}, search={"method": "optuna", "objectives": objectives}
    )
    _, store, _ = run(plan)
    confirmed = [r.config.setting.batch_size for r in store.records if r.request.role == "confirmation"]
    assert sorted(confirmed) == [32, 512]  # every batch is on the front; the default is no news
    curve = {each.config.setting.batch_size for each in store.records if each.request.role == "scaling"}
    assert curve == {32, 128, 512}


def test_process_knobs_have_groups_of_their_own_and_are_not_interleaved():
    plan = planned(
        knobs={"batch_size": 64}, environment={"FAST": ["0", "1"]}, search={"method": "optuna", "trials": 2}
    )

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.010, exposed_s=0.004 if config.environment["FAST"] == "0" else 0.001)

    executed, store, runner = run(plan, FakeRunner(costs, QUIET_ENOUGH))
    assert roles(store) == ["search", "scaling"]
    assert [note.kind for note in executed.notes] == [NoteKind.OTHER_PROCESSES]
    by_variable = {r.config.environment["FAST"] for r in store.records if r.request.role == "scaling"}
    assert by_variable == {"0", "1"}
    assert runner.num_starts == 4  # 0 and 1 of the search, 0 and 1 of the curves


def test_one_device_only():
    plan = planned(1, knobs={"batch_size": [32, 64], "bucket_cap_mb": [1, 25]})
    executed, store, _ = run(plan)
    assert {record.config.world_size for record in store.records} == {1}
    assert executed.notes == [Note(NoteKind.SPACE_EXHAUSTED, Stage.SEARCH, 2, 6)]
    (confirmed,) = [record for record in store.records if record.request.role == "confirmation"]
    assert confirmed.request.anchor == confirmed.config.setting.model_copy(update={"batch_size": 32})
    assert gain(confirmed, 0.02).verdict is Verdict.BETTER
    assert {record.config.setting.strategy for record in store.records} == {"single"}
    batches = [r.config.setting.batch_size for r in store.records if r.request.role == "search"]
    assert sorted(batches) == [32, 64]
    assert "nothing to scale over" in answer_of(analyse(plan.study, store.records))
    again = FakeRunner()
    run(plan, again, store)
    assert again.requests == []


def test_what_was_found_on_one_device_is_measured_on_several():
    knobs = {"batch_size": [32, 64], "bucket_cap_mb": [25, 1]}
    plan = planned(2, knobs=knobs, search=SEARCH, scaling={"target_world_size": 1})
    runner = FakeRunner(lambda config, setting: StepCosts(plain_s=0.010, exposed_s=0.002))
    _, store, _ = run(plan, runner)
    (best,) = [record for record in store.records if record.request.role == "confirmation"]
    assert (best.config.world_size, best.config.setting.strategy, best.config.batch_size) == (1, "single", 64)
    curve = [record.config for record in store.records if record.request.role == "scaling"]
    winner = {
        (c.world_size, c.setting.strategy, c.setting.bucket_cap_mb) for c in curve if c.batch_size == 64
    }
    assert winner == {(1, "single", "default"), (2, "ddp", 25)}


def test_strong_scaling():
    plan = planned(4, scaling={"mode": "strong"}, knobs={"batch_size": [512, 64]})
    _, store, _ = run(plan)
    assert {record.state for record in store.records} == {"complete"}
    curve = {r.config.world_size: r.request for r in store.records[:-1] if r.request.role == "scaling"}
    assert {size: request.config.batch_size for size, request in curve.items()} == {
        4: 128,
        2: 256,
        1: 512,
    }
    assert "at global batch 512" in answer_of(analyse(plan.study, store.records))


# --- what is kept


@pytest.mark.parametrize("error", [Interrupted("SIGINT"), GroupLostError("gone")], ids=repr)
@pytest.mark.parametrize("after", [0, 3, 7])
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
    assert sum(record.request.role == "search" for record in store.records) == 6


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
    assert roles(store) == STAGES[:3]  # of those that are complete the default is the worst
    told = [record.reason for record, _ in executed.watcher.done]
    assert "planted" in told


def test_a_study_whose_every_trial_fails_ends_with_that():
    plan = planned()
    _, store, _ = run(plan, FakeRunner(fail=lambda _: ("timeout", "no luck")))
    assert {record.state for record in store.records} == {"timeout"}
    assert {record.request.role for record in store.records} == {"search", "scaling"}
    assert answer_of(analyse(plan.study, store.records)).startswith("no trial completed")


def test_impossible_settings_are_recorded_without_a_worker():
    plan = planned(knobs={"batch_size": [64, 32], "precision": ["fp32", "tf32"]}, search={"method": "grid"})
    _, store, runner = run(plan)
    assert all(request.config.setting.precision == "fp32" for request in runner.requests)
    invalid = [record for record in store.records if record.state == "invalid"]
    assert len(invalid) == 2 * 2
    assert all("tf32 exists on GPUs only" in record.reason for record in invalid)


def test_an_impossible_default_is_no_yardstick():
    """The winner has nothing to be confirmed against; no worker is asked for what it cannot do."""
    plan = planned(knobs={"batch_size": 64, "precision": ["tf32", "fp32"]})
    _, _, runner = run(plan)
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
    confirmed = [r.config.setting.bucket_cap_mb for r in store.records if r.request.role == "confirmation"]
    assert confirmed[-1] == 25


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
        return super().run(request, on_progress)


@pytest.mark.parametrize("budget", [50, 70, 80, 90, 100, 110])
def test_what_was_not_reached_is_named_and_the_deadline_kept(monkeypatch, budget):
    plan = planned(knobs={**KNOBS, "precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 18})
    runner = OneDeviceIsQuick(monkeypatch)
    end = runner.now + budget
    executed, store, _ = run(plan, runner, budget=TimeBudget(end))
    assert runner.now <= end
    searched = sum(record.request.role == "search" for record in store.records)
    assert executed.not_reached[0] == Note(NoteKind.NOT_REACHED, Stage.SEARCH, 18 - searched, 18)
    assert searched >= 4 + (budget - 50) // 10  # of 10 s each, with curves and confirmation
    # the confirmation was kept for last, and its time with it
    best = analyse(plan.study, store.records).best
    assert best is None or best.is_default or "confirmation" in roles(store)
    assert len(executed.not_reached) == 1  # the curves and the confirmation come with shorter rounds


@pytest.mark.parametrize("budget", [150, 200, 260])
def test_rather_than_leave_suggestions_out_all_are_shorter(monkeypatch, budget):
    plan = planned(knobs={**KNOBS, "precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 18})
    runner = OneDeviceIsQuick(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + budget))
    assert executed.not_reached == []
    assert runner.now <= 1000 + budget
    searched = [r.request.measure.max_seconds for r in store.records if r.request.role == "search"]
    assert len(searched) == 18
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
    """What a setting took in the search tells what its curve will take."""

    class ByPrecision(ClockRunner):
        def run(self, request, on_progress):
            settings = request.settings
            self.seconds = (
                10.0 * sum(0.3 if each.precision == "bf16" else 1.0 for each in settings) / len(settings)
            )
            return super().run(request, on_progress)

    plan = planned(knobs={**KNOBS, "precision": ["fp32", "bf16"]}, measure={"max_seconds": 20})
    runner = ByPrecision(monkeypatch)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 1000))
    fast = next(each for each in store.records if each.config.setting.precision == "bf16")
    others = [each for each in store.records if "local" not in each.request.variants]  # not to predict by
    slow = next(each for each in others if each.config.setting.precision == "fp32")
    for record in (fast, slow):
        expected_s = executed.forecast.cost_s("scaling", 2, record.config.setting)
        assert expected_s == pytest.approx(record.wall_time_s, rel=0.2)


def test_a_slow_first_trial_costs_the_search_nothing(monkeypatch):
    """What only looked long by the first trial is given back to the search once the curve shows its costs."""

    class ColdAtFirst(ClockRunner):
        def run(self, request, on_progress):
            usual_s = 9.0 if request.role == "scaling" else 5.0
            self.seconds = 15.0 if not self.requests else usual_s
            return super().run(request, on_progress)

    plan = planned(search={"method": "optuna", "trials": 5}, measure={"max_seconds": 20})
    runner = ColdAtFirst(monkeypatch)
    end = runner.now + 100
    executed, store, _ = run(plan, runner, budget=TimeBudget(end))
    assert executed.not_reached == []
    assert sum(record.request.role == "search" for record in store.records) == 5
    assert runner.now <= end


def test_a_budget_too_short_for_the_curve_names_its_trials(monkeypatch):
    plan = planned(search={"method": "grid"}, knobs={"batch_size": [512, 32]})
    runner = ClockRunner(monkeypatch, seconds=20)
    executed, store, _ = run(plan, runner, budget=TimeBudget(runner.now + 42))
    note = executed.not_reached[0]
    left = 4 - sum(record.request.role == "scaling" for record in store.records)
    assert 0 < left < 4
    assert [each.config.world_size for each in note.requests] == [1] * left


def test_no_time_at_all_measures_nothing_and_says_so(monkeypatch):
    runner = ClockRunner(monkeypatch)
    executed, store, _ = run(planned(), runner, budget=TimeBudget(runner.now - 1))
    assert store.records == []
    assert executed.not_reached[0] == Note(NoteKind.NOT_REACHED, Stage.SEARCH, 6, 6)
    assert 2 in [each.config.world_size for each in executed.not_reached[1].requests]


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


def test_the_worst_suggestion_leaves_the_verification_its_time(monkeypatch):
    executed, store, _ = run(planned())
    store.records.pop()
    runner = ClockRunner(monkeypatch)
    asked = []
    for verify in (False, True):
        session = Session(
            executed.ledger.plan, runner, store, Watched(), budget=TimeBudget(runner.now + 1e6), verify=verify
        )
        monkeypatch.setattr(session.in_flight, "start_cost_s", lambda request: 7.0)
        monkeypatch.setattr(Forecast, "fit", lambda forecast, rest, **times: asked.append(times))
        take_apart_worst(session)
    assert [times["fixed_s"] for times in asked] == [7.0, 7.0]
    assert asked[0]["steps_s"] == 0.0 < asked[1]["steps_s"]


def test_without_time_for_it_the_worst_suggestion_is_not_taken_apart_and_nothing_is_missing(monkeypatch):
    executed, store, _ = run(planned())
    worst = store.records.pop()
    runner = ClockRunner(monkeypatch)
    for left_s, measured in ((2.0, []), (100.0, [worst.trial_id])):
        budget = TimeBudget(runner.now + left_s)
        session = Session(executed.ledger.plan, runner, store, Watched(), budget=budget)
        take_apart_worst(session)
        assert [request.trial_id for request in runner.requests] == measured
        assert session.not_reached == []
