"""What Optuna is asked and told: seeded, nothing twice, away from what does not fit, from records again."""

import warnings
from collections.abc import Callable

import optuna
import optuna_dashboard
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from raybench.analysis import choice
from raybench.analysis.scaling import alongside, scaling
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.search import Search
from raybench.plan.trials import Plan, Suggestion
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Configuration, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.load import find_study, load_study
from raybench.spec.study import Study
from tests.support.planted import QUIET, FakeHardware, FakeRunner, StepCosts, run_all, to_record
from tests.unit.calls import calls
from tests.unit.studies import study

KNOBS = {"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]}


def objective_values(study: Study, record: TrialRecord, default: TrialRecord | None) -> tuple[float, ...]:
    """As the search takes them: by the trial and the default's alone."""
    values = choice.objective_values(study, record, alongside(record, default))
    assert values is not None
    return tuple(each.value for each in values)


def plan(devices: int = 2, **fields: object) -> Plan:
    given = {"knobs": KNOBS, "search": {"method": "optuna", "trials": 10}} | fields
    return make_plan(study(**given), Resources("cpu", devices, "a CPU"))


def fails(state: State, when: Callable[[TrialRequest], bool]) -> FakeRunner:
    return FakeRunner(fail=lambda request: (state, "planted") if when(request) else None)


def measured(planned: Plan, suggestion: Suggestion, runner: FakeRunner) -> TrialRecord:
    request = planned.search(suggestion)
    return to_record(request, runner.run(request, lambda _: None), planned.study.name)


def searched(
    search: Search, planned: Plan, trials: int, runner: FakeRunner | None = None
) -> list[tuple[Suggestion, TrialRecord]]:
    """At most so many suggestions asked, measured and told."""
    runner, found = runner or FakeRunner(seed=3), []
    while len(found) < trials and (suggestion := search.ask()) is not None:
        record = measured(planned, suggestion, runner)
        search.tell(record)
        found.append((suggestion, record))
    return found


def settings(found: list[tuple[Suggestion, TrialRecord]]) -> list[tuple[object, ...]]:
    return [
        (*(getattr(each.setting, knob) for knob in KNOBS), *sorted(each.environment.items()))
        for each, _ in found
    ]


def opened(journal: object, name: str = "fake") -> optuna.Study:
    """As optuna-dashboard opens it: the storage of a journal's file."""
    storage = JournalStorage(JournalFileBackend(str(journal)))
    assert [each.study_name for each in storage.get_all_studies()] == [name]
    return optuna.load_study(study_name=name, storage=storage)


# --- what is asked


def test_the_same_study_and_seed_ask_the_same_trials():
    planned = plan()
    first, second = (settings(searched(Search(planned), planned, 10)) for _ in range(2))
    assert first == second
    other = plan(seed=1)
    assert settings(searched(Search(other), other, 10)) != first


def test_the_first_ones_are_the_default_and_the_default_at_each_other_batch():
    found = settings(searched(Search(plan()), plan(), 3))
    assert found == [(512, "default", "fp32"), (32, "default", "fp32"), (128, "default", "fp32")]


@pytest.mark.parametrize("sampler", ["main_effects", "tpe", "gp", "random"])
def test_each_sampler_suggests_the_same_after_the_same(sampler):
    planned = plan(search={"method": "optuna", "trials": 8, "sampler": sampler})
    first, second = (settings(searched(Search(planned), planned, 8)) for _ in range(2))
    assert first == second
    assert len(first) == len(set(first)) == 8
    assert first[:3] == [(512, "default", "fp32"), (32, "default", "fp32"), (128, "default", "fp32")]


def test_nothing_is_suggested_twice_and_everything_once_before_the_end():
    planned = plan()
    search = Search(planned)
    found = settings(searched(search, planned, 100))
    assert len(found) == len(set(found)) == 3 * 3 * 2
    assert search.ask() is None


def test_a_study_that_explores_nothing_has_one_suggestion():
    planned = plan(knobs={"batch_size": 8})
    assert len(searched(Search(planned), planned, 5)) == 1


def test_knobs_that_cannot_matter_on_one_device_are_not_explored_there():
    planned = plan(devices=1, knobs={"batch_size": [8, 16], "bucket_cap_mb": [1, 25]})
    found = searched(Search(planned), planned, 10)
    ids = [record.trial_id for _, record in found]
    assert len(ids) == len(set(ids)) == 2
    again = Search(planned)
    again.restore(record for _, record in found)
    assert again.ask() is None


def test_environment_variables_are_parameters():
    planned = plan(knobs={"batch_size": 8}, environment={"OMP_PROC_BIND": ["false", "true"], "FIXED": "1"})
    found = searched(Search(planned), planned, 10)
    assert [each.environment for each, _ in found] == [
        {"OMP_PROC_BIND": "false", "FIXED": "1"},
        {"OMP_PROC_BIND": "true", "FIXED": "1"},
    ]
    assert [record.config.environment for _, record in found] == [each.environment for each, _ in found]


def test_the_sampler_learns_where_it_is_fast():
    """More of the fast ones are suggested than the 3.3 of 40 that chance would find."""

    def costs(_: TrialRequest, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.01, exposed_s=0.005 * abs(setting.num_threads - 2))

    knobs = {"batch_size": 64, "num_threads": list(range(1, 13)), "workers": list(range(12))}
    planned = plan(knobs=knobs, search={"method": "optuna", "trials": 40})
    found = searched(Search(planned), planned, 40, FakeRunner(costs, QUIET))
    assert sum(suggestion.setting.num_threads == 2 for suggestion, _ in found) >= 8


def test_the_default_study_looks_where_it_is_fast():
    """After batch 32 was seen 14 times slower, no suggestion is spent on it: buckets are tried at 2,048."""
    hardware = FakeHardware(
        fixed_s=0.004, sample_s=1.25e-5, gradient_bytes=4 << 20, latency_s=2e-4, wrapper_s=4e-4
    )
    default = make_plan(load_study(find_study("default"), device="cpu"), Resources("cpu", 2, "a CPU"))
    found = searched(Search(default), default, 6, FakeRunner(hardware.costs, seed=3))
    rates = {s.setting: objective_values(default.study, record, found[0][1])[0] for s, record in found}
    at_batch = {s.setting.batch_size: rates[s.setting] for s, _ in found[:3]}
    assert at_batch[2048] == pytest.approx(14 * at_batch[32], rel=0.1)
    others = [suggestion.setting for suggestion, _ in found[3:]]
    assert [each.batch_size for each in others] == [2048] * 3
    first = default.default().setting
    changes = [each.differences(first) for each in others]
    assert len({name for change in changes for name in change}) == 2  # buckets and precision
    assert any(each.bucket_cap_mb != "default" for each in others)


def test_a_value_is_tried_alone_before_it_is_combined():
    planned = plan(search={"method": "optuna", "trials": 9})
    tried: list[dict[str, object]] = []
    for suggestion, _ in searched(Search(planned), planned, 9):
        mine = {knob: getattr(suggestion.setting, knob) for knob in KNOBS}
        new = [knob for knob, value in mine.items() if value not in {each[knob] for each in tried}]
        assert len(new) <= (1 if tried else 3)
        tried.append(mine)


def test_a_value_that_fails_every_time_is_left_alone():
    """It fails in one of two suggestions after the first row where they are drawn at random."""
    runner = fails("crashed", lambda request: request.config.setting.precision == "bf16")
    planned = plan(search={"method": "optuna", "trials": 9})
    found = searched(Search(planned), planned, 9, runner)
    assert sum(record.state == "crashed" for _, record in found) <= 2


def test_the_smallest_is_found_where_less_is_better():
    """Each batch's memory is known after three trials; what else changes it is looked for at the smallest."""

    def costs(_: TrialRequest, setting: Setting) -> StepCosts:
        return StepCosts(plain_s=0.01, memory_bytes=setting.batch_size << (20 if setting.compile else 21))

    knobs = {"batch_size": [512, 32, 128], "compile": [False, True], "num_threads": [0, 1, 2]}
    planned = plan(knobs=knobs, search={"method": "optuna", "objectives": "peak_memory"})
    found = searched(Search(planned), planned, 6, FakeRunner(costs, QUIET))
    assert [suggestion.setting.batch_size for suggestion, _ in found[3:]] == [32] * 3
    assert any(suggestion.setting.compile for suggestion, _ in found[3:])


def test_a_space_of_millions_is_never_listed():
    many = {
        "batch_size": [2**power for power in range(12)],
        "bucket_cap_mb": list(range(1, 25)),
        "num_threads": list(range(24)),
        "workers": list(range(24)),
        "gradient_accumulation": list(range(1, 13)),
    }
    planned = plan(knobs=many)  # two millions: minutes to list
    found: list[str] = []
    number = calls(lambda: found.extend(each.trial_id for _, each in searched(Search(planned), planned, 14)))
    assert len(set(found)) == 14
    assert number < 1_000_000  # less than one for each setting


# --- what is told


def test_values_are_those_of_the_objectives(tmp_path):
    planned = plan(
        search={"method": "optuna", "objectives": ["throughput", "efficiency", "peak_memory"]},
        knobs={"batch_size": [512, 32]},
    )
    found = searched(Search(planned, tmp_path / "optuna.log"), planned, 5)
    told = opened(tmp_path / "optuna.log")
    assert [each.name for each in told.directions] == ["MAXIMIZE", "MAXIMIZE", "MINIMIZE"]
    for (_, record), trial in zip(found, told.trials, strict=True):
        throughput, efficiency, memory = trial.values
        assert tuple(trial.values) == objective_values(planned.study, record, found[0][1])
        assert memory == record.steps.peak_memory_bytes[0]
        assert 0 < efficiency < 1
        assert throughput > record.config.global_batch_size  # a step takes less than a second


def test_the_sampler_learns_from_the_ratio_to_the_default_in_the_same_rounds(tmp_path):
    """A trial in which all is half as slow again says nothing of its setting."""
    slowness = [1.0]

    def costs(_: Configuration, setting: Setting) -> StepCosts:
        step_s = 0.01 if setting.batch_size == 512 else 0.005
        return StepCosts(plain_s=step_s * slowness[0])

    search = {"method": "optuna", "objectives": ["throughput", "efficiency", "cost_per_sample"]}
    planned = plan(search=search, knobs={"batch_size": [512, 128]})
    searching, runner = Search(planned, tmp_path / "optuna.log"), FakeRunner(costs, QUIET)
    curve = planned.curve(planned.default())
    (default,), _ = run_all(runner, curve[:1])
    searching.restore([default])
    slowness[0] = 1.5
    ((suggestion, record),) = searched(searching, planned, 5, runner)
    assert suggestion.setting.batch_size == 128
    of_default, of_other = (trial.values for trial in opened(tmp_path / "optuna.log").trials)
    assert of_default[0] == pytest.approx(2 * 512 / 0.01, rel=0.01)
    assert of_other[0] == pytest.approx(2 * 128 / 0.005, rel=0.01)
    assert of_other[1] == pytest.approx(1.0, rel=0.01)
    assert of_other[2] == pytest.approx(2 / of_other[0], rel=0.01)
    own = scaling(record).throughput_samples_per_s.value
    assert own == pytest.approx(of_other[0] / 1.5, rel=0.01)


def test_several_objectives_leave_the_front(tmp_path):
    planned = plan(
        search={"method": "optuna", "objectives": ["throughput", "peak_memory"]},
        knobs={"batch_size": [128, 32, 512]},
    )
    searched(Search(planned, tmp_path / "optuna.log"), planned, 5)
    # the larger the batch, the faster and the more memory: nothing dominates
    front = opened(tmp_path / "optuna.log").best_trials
    assert sorted(trial.params["batch_size"] for trial in front) == [32, 128, 512]


def test_several_objectives_are_all_looked_after():
    """One setting of each batch is fastest and smallest: all three are found in 11 of 18 suggestions."""

    def costs(_: TrialRequest, setting: Setting) -> StepCosts:
        step_s = (0.001 + 1e-5 * setting.batch_size) * (1 + 0.2 * abs(setting.num_threads - 2))
        memory = setting.batch_size << (20 if setting.activation_checkpointing else 21)
        return StepCosts(plain_s=step_s, memory_bytes=memory)

    knobs = {
        "batch_size": [512, 32, 128],
        "activation_checkpointing": [False, True],
        "num_threads": [1, 2, 3],
    }
    search = {"method": "optuna", "objectives": ["throughput", "peak_memory"], "trials": 11}
    planned = plan(search=search, knobs=knobs)
    found = searched(Search(planned), planned, 11, FakeRunner(costs, QUIET))
    best = [s.setting for s, _ in found if s.setting.activation_checkpointing and s.setting.num_threads == 2]
    assert sorted(each.batch_size for each in best) == [32, 128, 512]


def test_cost_is_minimized_in_the_price_of_the_study():
    costly = plan(search={"objectives": ["cost_per_sample"]}, cost={"price_per_device_hour": 3.6})
    record = measured(costly, costly.default(), FakeRunner())
    rate = objective_values(plan().study, record, None)
    assert objective_values(costly.study, record, None) == (pytest.approx(2 * 0.001 / rate[0]),)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("oom", TrialState.PRUNED),
        ("crashed", TrialState.FAIL),
        ("timeout", TrialState.FAIL),
        ("invalid", TrialState.FAIL),
    ],
)
@pytest.mark.parametrize("objectives", [["throughput"], ["throughput", "peak_memory"]], ids=len)
def test_failures_are_told_as_such(tmp_path, state, told, objectives):
    planned = plan(search={"method": "optuna", "objectives": objectives})
    runner = fails(state, lambda request: request.config.setting.precision == "bf16")
    found = searched(Search(planned, tmp_path / "optuna.log"), planned, 12, runner)
    trials = {trial.user_attrs.get("trial_id"): trial for trial in opened(tmp_path / "optuna.log").trials}
    failed = [record for _, record in found if record.state != "complete"]
    assert failed
    for record in failed:
        trial = trials[record.trial_id]
        assert trial.state is told
        assert trial.values is None
        assert trial.user_attrs["state"] == state
        assert trial.user_attrs["reason"] == "planted"


def test_what_does_not_fit_is_not_tried_larger():
    """After one out-of-memory at a batch, nothing alike in memory at that batch or a larger one."""
    knobs = {
        "batch_size": [64, 128, 256, 512, 1024],
        "precision": ["fp32", "bf16"],
        "bucket_cap_mb": ["default", 1, 25],
    }
    planned = plan(knobs=knobs)
    runner = fails("oom", lambda request: request.config.setting.batch_size >= 256)
    found = searched(Search(planned), planned, 1000, runner)
    smallest: dict[str, int] = {}
    for suggestion, record in found:
        batch, precision = suggestion.setting.batch_size, suggestion.setting.precision
        assert batch < smallest.get(precision, 10_000)
        if record.state == "oom":
            smallest[precision] = batch
    fitting = [record for _, record in found if record.state == "complete"]
    assert len(fitting) == 2 * 2 * 3  # and all that does fit is found
    assert len(found) - len(fitting) <= 2 * 3


def test_what_does_not_fit_on_one_device_is_not_tried_larger():
    """There a trial runs without a strategy: the default's name does not hide what is alike."""
    planned = plan(devices=1, scaling={"world_sizes": [1]}, knobs={"batch_size": [64, 128, 256, 512]})
    found = searched(Search(planned), planned, 10, fails("oom", lambda _: True))
    assert [suggestion.setting.batch_size for suggestion, _ in found] == [64]


def test_what_could_need_less_memory_is_still_tried():
    planned = plan(knobs={"batch_size": 512, "gradient_accumulation": [1, 2], "precision": ["fp32", "bf16"]})
    found = searched(Search(planned), planned, 10, fails("oom", lambda _: True))
    assert len(found) == 4


def test_crashes_do_not_keep_larger_batches_away():
    planned = plan(knobs={"batch_size": [32, 64, 128]})
    assert len(searched(Search(planned), planned, 10, fails("crashed", lambda _: True))) == 3


# --- going on


def mixed_runner() -> FakeRunner:
    def fail(request: TrialRequest) -> tuple[State, str] | None:
        if request.config.setting.batch_size >= 512 and request.config.setting.precision == "bf16":
            return "oom", "too large"
        return ("crashed", "bad bucket") if request.config.setting.bucket_cap_mb == 1 else None

    return FakeRunner(fail=fail, seed=3)


def test_a_restored_search_goes_on_without_repeating():
    planned = plan()
    before = searched(Search(planned), planned, 7, mixed_runner())
    search = Search(planned)
    search.restore(record for _, record in before)
    after = searched(search, planned, 100, mixed_runner())
    both = settings(before) + settings(after)
    assert len(both) == len(set(both))
    known_oom = any(record.state == "oom" for _, record in before)
    assert len(both) >= 3 * 3 * 2 - (3 if known_oom else 2)  # all but what an out-of-memory rules out


@pytest.mark.parametrize("before", [1, 2, 5, 8])
def test_a_restored_search_asks_what_the_one_that_went_on_asks(before):
    """Whatever was interrupted: what is suggested depends on the study, its seed and the records alone."""
    planned, runner = plan(), FakeRunner(noise=QUIET)
    whole = searched(Search(planned), planned, 12, runner)
    search = Search(planned)
    search.restore(record for _, record in whole[:before])
    rest = searched(search, planned, 12 - before, runner)
    assert settings(rest) == settings(whole[before:])


def test_a_rebuilt_journal_knows_the_same(tmp_path):
    planned = plan()
    found = searched(Search(planned, tmp_path / "first.log"), planned, 9, mixed_runner())
    Search(planned, tmp_path / "second.log").restore(record for _, record in found)

    def knowledge(name: str) -> dict[str, tuple[object, ...]]:
        return {
            trial.user_attrs["trial_id"]: (
                trial.state,
                trial.values,
                trial.params,
                trial.distributions,
                trial.user_attrs["state"],
                trial.user_attrs.get("reason") or "",
            )
            for trial in opened(tmp_path / name).trials
            if trial.state.is_finished() and "trial_id" in trial.user_attrs
        }

    first, second = knowledge("first.log"), knowledge("second.log")
    assert first == second
    assert len(first) == 9
    assert {state for state, *_ in first.values()} == {
        TrialState.COMPLETE,
        TrialState.FAIL,
        TrialState.PRUNED,
    }


def test_a_journal_of_before_is_replaced(tmp_path):
    """The records are the truth: what a killed process left half told is not in the way."""
    planned, journal = plan(), tmp_path / "optuna.log"
    Search(planned, journal).ask()
    (tmp_path / "optuna.log.lock").write_text("")  # of a process killed while it wrote
    found = searched(Search(planned, journal), planned, 4)
    complete = [trial for trial in opened(journal).trials if trial.state is TrialState.COMPLETE]
    assert [trial.user_attrs["trial_id"] for trial in complete] == [record.trial_id for _, record in found]


@pytest.mark.promise("optuna-dashboard")
def test_optuna_dashboard_reads_the_journal(tmp_path):
    planned = plan(name="a-name")
    searched(Search(planned, tmp_path / "optuna.log"), planned, 4, mixed_runner())
    assert opened(tmp_path / "optuna.log", "a-name").best_value > 0
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "optuna.log")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of its own dependencies
        app = optuna_dashboard.wsgi(storage)
    status: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/api/studies",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "CONTENT_TYPE": "application/json",
    }
    body = b"".join(app(environ, lambda code, *_: status.append(code)))
    assert status == ["200 OK"]
    assert b"a-name" in body


STRATEGIES = {"strategy": ["single", "dp", "ddp", "fsdp"], "bucket_cap_mb": [1, 25], "batch_size": 64}


def test_a_search_never_suggests_single_and_starts_with_what_is_possible():
    planned = plan(knobs=STRATEGIES)
    found = searched(Search(planned), planned, 10)
    asked = [(s.setting.strategy, s.setting.bucket_cap_mb) for s, _ in found]
    assert asked[0] == ("ddp", 1)
    # buckets are nothing to dp and fsdp: one trial for each
    assert sorted(record.config.setting.strategy for _, record in found) == [
        "ddp",
        "ddp",
        "dp",
        "fsdp",
    ]
    assert len({record.trial_id for _, record in found}) == 4


def test_a_search_over_strategies_goes_on_from_its_records():
    planned = plan(knobs=STRATEGIES)
    first = searched(Search(planned), planned, 2)
    again = Search(planned)
    again.restore(record for _, record in first)
    rest = searched(again, planned, 10)
    assert len({record.trial_id for _, record in (*first, *rest)}) == len(first) + len(rest) == 4


def test_single_beside_one_other_strategy_is_nothing_to_search():
    planned = plan(knobs={"strategy": ["single", "ddp"], "batch_size": [8, 16]})
    found = searched(Search(planned), planned, 10)
    assert sorted((s.setting.strategy, s.setting.batch_size) for s, _ in found) == [("ddp", 8), ("ddp", 16)]


@pytest.mark.parametrize(("strategy", "is_whole"), [("ddp", True), ("fsdp", True), ("dp", False)])
def test_the_curve_has_the_steps_without_transfers_where_they_can_be_left_out(
    strategy: str, is_whole: bool
) -> None:
    spec = study(knobs={"strategy": strategy, "batch_size": 64}, scaling={"world_sizes": [1, 2]})
    plan = make_plan(spec, Resources("cuda", 2, "a GPU"))
    (several,) = (each for each in plan.curve(plan.default()) if each.config.world_size == 2)
    assert ({"concurrent", "local", "replay"} <= set(several.variants)) is is_whole
