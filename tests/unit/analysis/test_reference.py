"""Which trials are of one setting, by its knobs and by its buckets, and which is its reference."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
import torch.distributed as distributed

from raybench.analysis.reference import KnownBuckets, bucket_sizes, without_batch
from raybench.analysis.resolve import resolve
from raybench.analysis.simulate.timeline import BucketCap, assign, bucket_limits
from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.make_plan import grid_of_search, make_plan
from raybench.plan.notes import Note, NoteKind, Stage, left_out
from raybench.plan.trials import Plan
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.spec.workloads import MLPSpec, TextSpec, VisionSpec, WorkloadSpec
from raybench.workloads import build
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner, StepCosts
from tests.unit.runs import QUIET_ENOUGH, MemoryStore, run
from tests.unit.studies import MIB, config, grid, measured, study

TWO = {"setting": Setting(batch_size=32, bucket_cap_mb=1)}
ONE = {"setting": Setting(batch_size=32).at(1), "world_size": 1}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (TWO, TWO, True),
        (TWO, TWO | {"world_size": 4, "placement": "spread", "seed": 7, "oversubscribed": True}, True),
        (TWO, {"setting": Setting(batch_size=64, bucket_cap_mb=1)}, False),
        (TWO, {"setting": Setting(batch_size=32)}, False),
        (TWO, ONE, True),  # the buckets do not matter on one device
        (TWO, ONE | {"setting": Setting(batch_size=64).at(1)}, False),
        (TWO, TWO | {"environment": {"OMP_PROC_BIND": "true"}}, False),
        (TWO, TWO | {"scaling": "strong"}, False),
        (TWO, TWO | {"device": "cuda"}, False),
        (TWO, TWO | {"data": "elsewhere"}, False),
    ],
)
def test_the_same_question_differs_in_world_size_and_placement_alone(
    one: dict[str, object], other: dict[str, object], is_same: bool
) -> None:
    assert config(**one).same_question(config(**other)) is is_same
    assert config(**other).same_question(config(**one)) is is_same


def test_the_same_setting_may_be_of_another_workload() -> None:
    one, other = config(**TWO), config(**TWO, workload={"name": "vision"}, placement="spread", seed=3)
    assert one.same_setting(other)
    assert not one.same_question(other)
    for field in ({"environment": {"A": "1"}}, {"scaling": "strong"}, {"setting": Setting(batch_size=64)}):
        assert not one.same_setting(config(**TWO | field))


def test_a_setting_counts_as_far_as_it_can_matter_on_its_world_size() -> None:
    buckets = [Configuration.model_validate(dict(config(**TWO)) | {"world_size": 1})]
    buckets.append(buckets[0].model_copy(update={"setting": Setting(batch_size=32, bucket_cap_mb=25)}))
    assert buckets[0].same_setting(buckets[1])


def test_two_points_of_a_batch_curve_differ_in_the_batch_alone() -> None:
    one, other = (config(setting=Setting(batch_size=batch)) for batch in (8, 64))
    assert one != other
    assert without_batch(one) == without_batch(other)
    assert without_batch(one) != without_batch(config(setting=Setting(batch_size=8, precision="bf16")))


KIB = 2**10
SMALL = (256 * KIB, 128 * KIB, 64 * KIB)  # one bucket whatever the cap
# the first bucket of the default is full at 1 MiB; 25 and 100 MiB hold all of it
LARGE = (700 * KIB, 700 * KIB, 2 * MIB, 2 * MIB)
CAPS = ("default", 1, 25)


def of_model(parameter_bytes: tuple[int, ...], gain_of_cap: dict[object, float] | None = None) -> FakeRunner:
    """A model of these gradients; a cap's exposed communication is less by ``gain_of_cap`` s."""

    def costs(config: Configuration, setting: Setting) -> StepCosts:
        gain_s = (gain_of_cap or {}).get(setting.bucket_cap_mb, 0.0)
        exposed_s = 0.004 - gain_s if config.world_size > 1 else 0.0
        step_s = 0.005 + 5e-5 * setting.batch_size
        return StepCosts(plain_s=step_s, exposed_s=exposed_s, parameter_bytes=parameter_bytes)

    return FakeRunner(costs, QUIET_ENOUGH)


def planned(**fields: object) -> Plan:
    given = {"knobs": {"batch_size": [64, 32], "bucket_cap_mb": list(CAPS)}, "measure": {"half_width": 0.02}}
    return make_plan(study(**(given | fields)), Resources("cpu", 2, "a CPU"))


def asked_caps(store: MemoryStore) -> set[object]:
    return {r.config.setting.bucket_cap_mb for r in store.records if r.config.world_size > 1}


@pytest.mark.parametrize(
    ("order", "cap", "sizes"),
    [
        (SMALL, "default", (sum(SMALL),)),
        (SMALL, 1, (sum(SMALL),)),
        (LARGE, "default", (1400 * KIB, 4 * MIB)),
        (LARGE, 25, (sum(LARGE),)),
        (LARGE, 1, (1400 * KIB, 2 * MIB, 2 * MIB)),
    ],
)
def test_the_sizes_are_those_of_ddps_own_rule(order, cap, sizes):
    assert bucket_sizes(order, cap) == sizes


@pytest.mark.parametrize("cap", [0.25, 1, 5, 25])
@pytest.mark.parametrize("order", [SMALL, LARGE, tuple(KIB * (1 + 37 * k % 900) for k in range(60))])
def test_the_rule_is_the_one_that_torch_has(order, cap):
    """As ``rebuild_buckets`` calls it: of a given cap the first bucket has it too."""
    tensors = [torch.empty(size // 4) for size in order]
    buckets, _ = distributed._compute_bucket_assignment_by_size(tensors, [int(cap * MIB)])
    assert bucket_sizes(order, cap) == tuple(sum(order[index] for index in each) for each in buckets)


@pytest.mark.parametrize("cap", ["default", 0.5, 1.0, 2.5, 25.0])
@pytest.mark.parametrize(
    "workload",
    [
        MLPSpec(name="mlp", input_dim=256, hidden_dim=512, output_dim=64, num_layers=4),
        TextSpec(name="text", vocab_size=4000, sequence_length=16),
        VisionSpec(name="vision", model="resnet18"),
        VisionSpec(name="vision", model="mobilenet_v3_small"),
    ],
    ids=["mlp", "text", "resnet18", "mobilenet"],
)
def test_the_assignment_of_a_models_gradients_is_torchs(workload: WorkloadSpec, cap: BucketCap) -> None:
    sizes = gradient_bytes(workload)
    # as Reducer::rebuild_buckets calls it: in the order of readiness, which indices tell
    theirs, _ = distributed._compute_bucket_assignment_by_size(
        [torch.empty(size // 4) for size in sizes],
        list(bucket_limits(cap)),
        [False] * len(sizes),
        list(range(len(sizes))),
    )
    assert [list(each) for each in assign(sizes, cap)] == theirs
    assert bucket_limits("default")[0] == distributed._DEFAULT_FIRST_BUCKET_BYTES


@cache
def gradient_bytes(workload: WorkloadSpec) -> list[int]:
    parameters = reversed(list(build(workload, None).model().parameters()))
    return [each.nbytes for each in parameters if each.requires_grad]


def test_one_trial_tells_which_sizes_are_the_same():
    known = KnownBuckets(CAPS)
    small = Setting(bucket_cap_mb=25, precision="bf16")
    assert known.standing(small, 2) == small  # nothing is known yet
    costs = StepCosts(plain_s=0.01, exposed_s=0.002, parameter_bytes=SMALL)
    assert known.learn(measured(costs, setting=Setting()))
    assert not known.learn(measured(costs, setting=Setting()))
    assert known.standing(small, 2) == Setting(bucket_cap_mb="default", precision="bf16")
    assert known.standing(small, 1) == small  # one device has no buckets
    compiled = small.model_copy(update={"compile": True})
    assert known.standing(compiled, 2) == compiled  # its gradients may come in another order


def test_a_grid_measures_what_is_the_same_once():
    plan = planned()
    _, store, _ = run(plan, of_model(SMALL))
    assert asked_caps(store) == {"default"}
    several = [r for r in store.records if r.config.world_size == 2]
    assert sorted({r.config.setting.batch_size for r in several}) == [32, 64]
    assert len([r for r in several if r.request.visit == 0]) == 2
    assert left_out(plan.study, store.records) == []
    again = of_model(SMALL)
    run(plan, again, store)
    assert again.requests == []


def test_what_would_be_measured_as_another_is_not_left_out_beside_it():
    plan = planned()
    _, store, _ = run(plan, of_model(SMALL))
    whole = store.records
    store.records = [r for r in whole if r.config.setting.batch_size == 64 and r.config.world_size == 2]
    (note, *_) = left_out(plan.study, store.records)
    assert (note.stage, len(note.requests), note.total) == (Stage.CURVES, 3, 8)
    (default,) = store.records[:1]
    store.records = [default, *(r.model_copy(update={"state": "crashed"}) for r in whole if r != default)]
    known = KnownBuckets(CAPS, store.records)
    asked = [each for each in plan.trials() if each.config.world_size == 2]
    stand_ins = [known.stand_in(each) for each in asked]
    own = [each.config.setting.batch_size for each, other in zip(asked, stand_ins, strict=True) if not other]
    assert own == [64, 32, 32, 32]  # the crashed one stands for no other
    assert {each.trial_id for each in stand_ins if each} == {default.trial_id}


def test_a_grid_of_a_larger_model_measures_every_size_that_differs():
    plan = planned(knobs={"bucket_cap_mb": ["default", 1, 25, 100]})
    _, store, _ = run(plan, of_model(LARGE))
    assert asked_caps(store) == {"default", 1, 25}


def test_a_search_suggests_no_second_of_the_same():
    plan = planned(search={"method": "optuna", "trials": 5})
    session, store, _ = run(plan, of_model(SMALL))
    searched = [r for r in store.records if r.request.role == "search"]
    assert [r.config.setting.batch_size for r in searched] == [32]  # 64 is the default
    assert asked_caps(store) == {"default"}
    assert Note(NoteKind.SPACE_EXHAUSTED, Stage.SEARCH, 2, 5) in session.notes
    assert left_out(plan.study, store.records) == []


def test_what_was_measured_anyway_is_one_setting_in_every_choice():
    """Of three that are the same the luckiest would be "best", and be confirmed against itself."""
    spec = study(knobs={"bucket_cap_mb": list(CAPS), "precision": ["fp32", "bf16"]})
    runner = of_model(SMALL, gain_of_cap={1: 0.0005, 25: 0.001})  # as chance has it
    records, _ = grid(spec, (1, 2), runner)
    assert len([r for r in records if r.config.world_size == 2]) == 6
    results = resolve(spec, records)
    assert {r.config.setting.bucket_cap_mb for r in results.references} == {"default"}
    assert [each.config.setting.precision for each in results.rivals] == ["fp32", "bf16"]
    found = analyse(spec, records)
    labels = [found.label(each) for each in found.compared]
    assert sorted(labels) == ["default buckets, bf16", "default buckets, fp32"]


def test_the_row_of_the_summary_is_of_the_trial_that_the_report_names():
    """Whichever of equal buckets was measured first."""
    spec = study(knobs={"bucket_cap_mb": list(CAPS)})
    records, _ = grid(spec, (2,), of_model(SMALL))
    for order in (records, records[::-1]):
        found = analyse(spec, order)
        (reference,) = found.references
        assert reference.config.setting.bucket_cap_mb == "default"
        assert [row.trial_id for row in found.summaries] == [reference.trial_id]


def test_older_records_that_tell_no_parameters_are_left_as_they_are():
    spec = study(knobs={"bucket_cap_mb": list(CAPS)})
    records, _ = grid(spec, (2,), of_model(SMALL))
    bare = [
        record.model_copy(
            update={
                "result": record.steps.model_copy(update={"gradient_timeline": None, "num_parameters": None})
            }
        )
        for record in records
        if record.steps
    ]
    assert len(resolve(spec, bare).rivals) == 3


@pytest.mark.parametrize(("trials", "method"), [(5, "optuna"), (6, "optuna"), (7, "grid"), (1000, "grid")])
def test_more_suggestions_than_combinations_become_a_grid(trials, method):
    plan = planned(search={"method": "optuna", "trials": trials})
    found = grid_of_search(plan)
    assert (found is None) == (method == "optuna")
    pairs = itertools.product((64, 32), CAPS)
    if found is not None:
        made, number = found
        assert (made.study.search.method, number) == ("grid", 6)
        settings = {(each.setting.batch_size, each.setting.bucket_cap_mb) for each in made.suggestions()}
        assert settings == set(pairs)


def test_a_grid_that_is_too_large_stays_a_search():
    batches = list(range(1, 2_602))  # twice as many trials, at two world sizes
    plan = planned(knobs={"batch_size": batches}, search={"method": "optuna", "trials": 5_000})
    assert grid_of_search(plan) is None


def test_a_search_of_more_than_5000_trials_is_refused():
    with pytest.raises(RequestError, match=r"search\.trials: at most 5,000"):
        planned(search={"method": "optuna", "trials": 5_001})
