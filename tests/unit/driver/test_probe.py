"""The stage that finds the largest batch: before everything else, whatever fails on the way, and told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest

from raybench.analysis.choice import is_default
from raybench.analysis.largest_batch import largest_fits_of
from raybench.commands.console import make_console
from raybench.commands.process import NOTHING_COMPLETED
from raybench.commands.report import write_and_print
from raybench.driver.forecast import Forecast
from raybench.errors import Interrupted, RequestError
from raybench.machine.environment import Environment
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.plan.notes import NoteKind, Stage
from raybench.plan.trials import Plan
from raybench.records.messages import Outcome, Progress
from raybench.records.record import State, TrialRecord
from raybench.records.requests import TrialRequest
from raybench.records.store import ResultsDirectory
from raybench.report.answer import answer_of
from raybench.report.document import write_report
from raybench.report.sections.settings import largest_table
from raybench.report.terminal import print_summary
from tests.support.analysis import analyse
from tests.support.planted import FakeHardware, FakeRunner, Noise
from tests.unit.calls import calls
from tests.unit.runs import MemoryStore
from tests.unit.runs import run as run_plan
from tests.unit.studies import study

GIB = 2**30


def step(batch: int) -> int:
    """The stated rule, said another way."""
    if batch <= 64:
        return 1
    return max(8, 2 ** math.floor(math.log2(batch / 64)))


HARDWARE = FakeHardware(memory_fixed_bytes=GIB, memory_sample_bytes=1 << 24)
MEMORY = 8 * GIB


def fits(request: TrialRequest, sample_bytes: int = 1 << 24) -> bool:
    """The hardware's law at the 90%, with the 256 MiB of the fake's communicators."""
    return GIB + request.config.batch_size * sample_bytes + (256 << 20) <= 0.9 * MEMORY


def expected(sample_bytes: int = 1 << 24) -> int:
    most = int((0.9 * MEMORY - GIB - (256 << 20)) / sample_bytes)
    return most // step(most) * step(most)


def planned(devices: int = 2, device: str = "cuda", **fields: object) -> Plan:
    given = {"knobs": {"batch_size": "max"}, "measure": {"half_width": 0.05}} | fields
    return make_plan(study(**given), Resources(device, devices, f"a {device}"))


def fake(**fields: object) -> FakeRunner:
    given = {"noise": Noise(block=0.005, step=0.002), "memory_limit_bytes": MEMORY} | fields
    return FakeRunner(HARDWARE.costs, **given)


def run(plan: Plan, runner: FakeRunner | None = None, store: MemoryStore | None = None) -> MemoryStore:
    return run_plan(plan, runner or fake(), store)[1]


def probes(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.request.kind == "probe"]


def rest(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.request.kind != "probe"]


@pytest.mark.parametrize("search", [{"method": "grid"}, {"method": "optuna", "trials": 6}], ids=str)
def test_a_study_finds_it_first_and_uses_it_like_a_number(search):
    plan = planned(4, knobs={"batch_size": [32, "max"], "bucket_cap_mb": ["default", 1]}, search=search)
    store = run(plan)
    assert [record.request.kind == "probe" for record in store.records] == sorted(
        (record.request.kind == "probe" for record in store.records), reverse=True
    )
    assert {record.state for record in probes(store.records)} == {"complete", "oom"}
    assert {record.config.world_size for record in probes(store.records)} == {4}
    assert {r.config.setting.batch_size for r in rest(store.records)} == {32, expected()}
    assert {record.state for record in rest(store.records)} == {"complete"}
    results = analyse(plan.study, store.records)
    assert results.study.knobs.batch_size == (32, expected())
    assert not any(record.request.kind == "probe" for record in results.records)
    assert len(results.rivals) == 4
    assert results.best.config.setting.batch_size == expected()
    assert f"batch {expected():,}" in answer_of(results).lower()


@pytest.mark.parametrize("search", [{"method": "grid"}, {"method": "optuna", "trials": 3}], ids=str)
def test_each_precision_has_its_own(search):
    class Halving(FakeHardware):
        def costs(self, request, setting):
            size = self.memory_sample_bytes // (2 if setting.precision == "bf16" else 1)
            return FakeHardware(memory_fixed_bytes=GIB, memory_sample_bytes=size).costs(request, setting)

    plan = planned(knobs={"batch_size": "max", "precision": ["fp32", "bf16"]}, search=search)
    runner = FakeRunner(
        Halving(memory_sample_bytes=1 << 24).costs, Noise(block=0.005), memory_limit_bytes=MEMORY
    )
    store = run(plan, runner)
    found = largest_fits_of(plan.study, store.records, plan.world_sizes)
    assert [each.batch_size for each in found] == [expected(), expected(1 << 23)]
    results = analyse(plan.study, store.records)
    labels = {results.label(each.main.record) for each in results.settings}
    assert labels == {f"batch {expected():,}, fp32", f"batch {expected(1 << 23):,}, bf16"}
    assert is_default(results.study, results.settings[0].main.config)
    assert {record.state for record in rest(store.records)} == {"complete"}
    if search["method"] == "optuna":
        assert len(results.rivals) == 2
    table = largest_table(results)
    assert [row[:2] for row in table.rows] == [
        ("ddp, fp32", f"{expected():,}"),
        ("ddp, bf16", f"{expected(1 << 23):,}"),
    ]
    assert all("of the memory" in row[2] for row in table.rows)


@pytest.mark.parametrize("search", [{"method": "grid"}, {"method": "optuna", "trials": 4}], ids=str)
def test_the_default_is_known_beside_a_strategy_that_cannot_be(search):
    """DataParallel exists on GPUs only: ddp is the default, and is not confirmed against itself."""
    plan = planned(device="cpu", knobs={"batch_size": "max", "strategy": ["dp", "ddp"]}, search=search)
    store = run(plan)
    roles = [record.request.role for record in rest(store.records) if record.steps]
    assert set(roles) == {"scaling"}
    results = analyse(plan.study, store.records)
    assert results.best is None or results.best is results.default
    assert is_default(results.study, results.settings[0].main.config)
    assert results.headline.config.batch_size == expected()


def test_strong_scaling_takes_a_global_batch_that_divides_everywhere():
    plan = planned(
        6,
        scaling={"mode": "strong", "world_sizes": [2, 3, 6]},
        knobs={"batch_size": "max", "gradient_accumulation": 2},
    )
    store = run(plan, fake(num_devices=6))
    (batch,) = {record.config.setting.batch_size for record in rest(store.records)}
    assert batch == 12 * expected()
    assert {record.config.batch_size * record.config.world_size * 2 for record in rest(store.records)} == {
        batch
    }


@pytest.mark.parametrize(
    ("device", "search", "batches"),
    [
        ("cuda", {"method": "grid"}, "max"),
        ("cpu", {"method": "grid"}, "max"),
        ("cuda", {"method": "optuna", "trials": 4}, [32, "max"]),
        ("cuda", {"method": "optuna", "trials": 4}, "max"),
    ],
)
@pytest.mark.parametrize("after", [0, 1, 5, 9, 11, 14])
def test_interrupted_anywhere_it_goes_on_and_measures_nothing_twice(after, device, search, batches):
    class Stopping(FakeRunner):
        def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
            if len(self.requests) >= after:
                raise Interrupted("SIGINT")
            return super().run(request, on_progress)

    knobs = {"batch_size": batches, "precision": ["fp32", "bf16"]}
    plan = planned(device=device, knobs=knobs, search=search)
    whole = [record.trial_id for record in run(plan).records]
    store, again = MemoryStore(), fake()
    with pytest.raises(Interrupted):
        run(plan, Stopping(HARDWARE.costs, Noise(block=0.005), memory_limit_bytes=MEMORY), store)
    run(plan, again, store)
    ids = [record.trial_id for record in store.records]
    assert ids[:after] == whole[:after]
    assert len(ids) == len(set(ids)) == len(again.requests) + after
    found = [
        largest_fits_of(plan.study, each, plan.world_sizes) for each in (store.records, run(plan).records)
    ]
    assert found[0] == found[1]
    if search["method"] == "grid":  # Optuna may suggest something else when it is asked again
        assert ids == whole
    idle = fake()
    run(plan, idle, store)
    assert idle.requests == []


def test_on_cpus_no_probe_goes_over_the_memory():
    store = run(planned(device="cpu"))
    assert {record.state for record in store.records} == {"complete"}
    assert all(fits(record.request) for record in probes(store.records))
    assert rest(store.records)[0].config.setting.batch_size == expected()


@pytest.mark.parametrize("state", ["oom", "crashed", "timeout", "invalid"])
def test_what_does_not_run_at_one_precision_leaves_the_others(state):
    def fail(request: TrialRequest) -> tuple[State, str] | None:
        return (state, "planted") if request.config.setting.precision == "bf16" else None

    plan = planned(knobs={"batch_size": "max", "precision": ["bf16", "fp32"]})
    store = run(plan, fake(fail=fail))
    done = [record for record in rest(store.records) if record.state == "complete"]
    assert {record.config.setting.precision for record in done} == {"fp32"}
    assert {record.config.setting.batch_size for record in done} == {expected()}
    failed = [record for record in rest(store.records) if record.state != "complete"]
    assert bool(failed) == (state == "invalid")  # its trials say so themselves
    answer = answer_of(analyse(plan.study, store.records))
    assert f"at batch {expected():,}" in answer


@pytest.mark.parametrize("method", ["grid", "optuna"])
def test_a_model_that_does_not_fit_at_all_is_told_in_a_line_and_numbers_go_on(method):
    def fail(request: TrialRequest) -> tuple[State, str] | None:
        return "oom", "rank 0: MemoryError: the model alone needs 30 GiB"

    plan = planned(search={"method": method, "trials": 3})
    executed, store, _ = run_plan(plan, fake(fail=fail))
    assert [record.state for record in store.records] == ["oom"]
    assert executed.notes[0].kind is NoteKind.NO_BATCH_FITS
    results = analyse(plan.study, store.records)
    assert results.complete == ()
    assert "the model alone needs 30 GiB" in answer_of(results)
    assert answer_of(results).startswith("No trial completed: no batch fits in memory")
    assert "\n" not in answer_of(results)

    # 6 million combinations of knobs that change neither memory nor what can be
    many = {name: list(range(1, 51)) for name in ("num_threads", "workers")}
    buckets = {"bucket_cap_mb": list(range(1, 1001)), "broadcast_buffers": [True, False]}

    def work() -> None:
        knobs = {"batch_size": "max", **many, **buckets}
        wide = planned(knobs=knobs, search={"method": "optuna", "trials": 3})
        executed, store, _ = run_plan(wide, fake(fail=fail))
        assert executed.notes[0].kind is NoteKind.NO_BATCH_FITS
        assert analyse(wide.study, store.records).complete == ()

    assert calls(work) < 1_000_000  # less than one for each combination

    mixed = planned(knobs={"batch_size": ["max", 8]}, search={"method": method, "trials": 3})
    small = run(mixed, fake(fail=lambda request: fail(request) if request.kind == "probe" else None))
    assert {record.config.setting.batch_size for record in rest(small.records)} == {8}
    assert "at batch 8" in answer_of(analyse(mixed.study, small.records))


def test_the_limit_is_told():
    plan = planned(search={"max_batch_size": 100})
    store = run(plan)
    assert {record.config.setting.batch_size for record in rest(store.records)} == {96}
    (row,) = largest_table(analyse(plan.study, store.records)).rows
    assert row[2] == "larger ones are not tried (100)"
    with pytest.raises(RequestError, match=r"search.max_batch_size.*= 12 \(received 8\)"):
        planned(6, scaling={"mode": "strong", "world_sizes": [4, 6]}, search={"max_batch_size": 8})


def test_a_found_batch_that_is_listed_too_is_one_suggestion():
    search = {"method": "optuna", "trials": 9}
    store = run(planned(knobs={"batch_size": [expected(), "max", 16]}, search=search))
    searched = [r.config.setting.batch_size for r in rest(store.records) if r.request.role == "search"]
    assert searched == [16]  # the default is the one that was found


def test_a_data_set_that_is_too_small_bounds_it_and_is_told():
    def fail(request: TrialRequest) -> tuple[State, str] | None:
        batch = request.config.batch_size
        return ("invalid", f"each of 2 ranks has 100 samples, not {batch}") if batch > 100 else None

    plan = planned()
    store = run(plan, fake(fail=fail))
    assert {record.config.setting.batch_size for record in rest(store.records)} == {96}
    (row,) = largest_table(analyse(plan.study, store.records)).rows
    assert row[2].startswith("batch 104: each of 2 ranks has 100 samples")


def test_retried_probes_are_measured_again_once():
    def late(request: TrialRequest) -> tuple[State, str] | None:
        return ("timeout", "not done after 300 s") if request.config.setting.batch_size >= 100 else None

    plan = planned()
    store = run(plan, fake(fail=late))
    timeouts = [record.config.setting.batch_size for record in store.records if record.state == "timeout"]
    assert timeouts == [128, 112, 104]
    assert rest(store.records)[0].config.setting.batch_size == 96
    again = fake()
    run_plan(plan, again, store, retry=frozenset({"timeout"}))
    tried = [request.config.setting.batch_size for request in again.requests]
    assert tried[0] > 96
    assert len({request.trial_id for request in again.requests}) == len(tried)
    assert tried[-1] == expected()  # the trials that were asked for, at the larger batch
    idle = fake()
    run(plan, idle, store)
    assert idle.requests == []


def test_a_time_budget_that_ends_within_it_takes_what_fits_so_far(monkeypatch):
    from raybench.driver import time_budget as budget

    plan, runner = planned(), fake()
    monkeypatch.setattr(budget, "monotonic", lambda: 2.0 * len(runner.requests))
    monkeypatch.setattr(Forecast, "curve_reserve_s", lambda expected: 88.0)
    executed, store, _ = run_plan(plan, runner, budget=budget.TimeBudget(100.0))
    assert executed.not_reached[0].stage is Stage.LARGEST_BATCH
    (found,) = largest_fits_of(plan.study, store.records, plan.world_sizes)
    assert found.next_batch is not None
    assert {r.config.setting.batch_size for r in rest(store.records)} == {found.batch_size}


def test_a_single_device():
    plan = planned(1, knobs={"batch_size": "max", "bucket_cap_mb": [1, 25]})
    store = run(plan)
    assert {record.config.world_size for record in probes(store.records)} == {1}
    assert {record.config.setting.batch_size for record in rest(store.records)} == {expected()}


def test_the_report_and_the_records_on_disk(tmp_path, capsys):
    plan, path = planned(), tmp_path / "results"
    here = Environment(
        hostname="here", os="Linux", kernel="6", cpu_model="a CPU", cores=2, usable_cores=2,
        memory_bytes=8 * GIB, python="3.12",
    )  # fmt: skip
    with ResultsDirectory.create(path, plan.study, here) as store:
        run_plan(plan, fake(), store)
        assert write_and_print(store, make_console()) == 0
    said = capsys.readouterr().out
    assert "The largest batch that fits" in said
    assert f" {expected():,} " in said
    with ResultsDirectory.open_readonly(path) as store:
        assert store.study().knobs.batch_size == ("max",)
        records = store.records()
    assert all(record.probe.memory_limit_bytes == (MEMORY,) * 2 for record in probes(records) if record.probe)
    write_report(path, analyse(plan.study, records))
    text = (path / "report" / "report.md").read_text()
    assert "The largest batch that fits" in text
    rows = (path / "report" / "summary.csv").read_text().splitlines()
    assert len(rows) > 1
    with ResultsDirectory.create(tmp_path / "none", plan.study, here) as store:
        run_plan(plan, fake(fail=lambda request: ("oom", "planted")), store)
        assert write_and_print(store, make_console(), quiet=True) == NOTHING_COMPLETED
    assert "No trial completed: no batch fits in memory" in capsys.readouterr().out


def test_the_terminal_names_every_memory_knob_that_the_study_explores(capsys):
    """Two lines never look alike: of checkpointing as of strategy and precision."""
    plan = planned(knobs={"batch_size": "max", "activation_checkpointing": [False, True]})
    print_summary(analyse(plan.study, run(plan).records), make_console())
    said = " ".join(capsys.readouterr().out.split())
    assert "no activation_checkpointing" in said
    assert said.count("ddp, fp32, ") == 2


def test_a_probe_is_another_trial_than_the_steps_of_its_batch():
    plan = planned(knobs={"batch_size": 8})
    (steps, *_) = plan.trials()
    probe = plan.probe(steps.config.setting, 8)
    assert probe.config == steps.config
    assert probe.trial_id != steps.trial_id
