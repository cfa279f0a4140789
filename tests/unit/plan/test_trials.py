"""From a study to trials: sizes, settings, placements, ids, order, and what is refused."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import ValidationError

from raybench.analysis.largest_batch import LargestFit
from raybench.errors import RequestError
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan, powers_of_two
from raybench.plan.trials import Plan, Suggestion
from raybench.records.requests import StepsRequest, TrialRequest
from raybench.spec.knobs import Setting
from raybench.spec.load import load_study
from raybench.spec.user_input import to_toml
from tests.unit.studies import study


def plan(devices: int = 4, device: str = "cpu", **fields: object) -> Plan:
    return make_plan(study(**fields), Resources(device, devices, f"a {device}"))


def refused(devices: int = 4, device: str = "cpu", **fields: object) -> str:
    with pytest.raises(RequestError) as caught:
        plan(devices, device, **fields)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"search": {"method": "optuna", "trials": 5001}}, "search.trials: at most 5,000 (received 5,001)"),
        (
            {"search": {"method": "grid"}, "knobs": {"batch_size": list(range(1, 2502))}},
            "search.method: grid of at most 5,000 trials (received 2,501 settings, each in 2 trials",
        ),
    ],
)
def test_more_trials_than_a_report_reads_are_refused(fields, line):
    assert refused(2, **fields).startswith(line)


def requested(plan: Plan) -> list[StepsRequest]:
    return plan.trials()


def sizes(requests: Sequence[TrialRequest]) -> list[int]:
    return [request.config.world_size for request in requests]


# --- world sizes


@pytest.mark.parametrize(
    ("devices", "expected"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))],
)
def test_all_is_the_powers_of_two_and_every_device(devices, expected):
    assert powers_of_two(devices) == expected
    assert plan(devices).world_sizes == expected
    assert plan(devices).target == devices


def test_listed_sizes_are_ascending_and_the_target_is_the_largest():
    assert plan(scaling={"world_sizes": [4, 1, 2]}).world_sizes == (1, 2, 4)
    assert plan(scaling={"world_sizes": [4, 1, 2]}).target == 4


def test_more_workers_than_devices_are_refused_with_what_there_is():
    line = refused(2, scaling={"world_sizes": [1, 4]})
    assert line.startswith("scaling.world_sizes: at most 2")
    assert "--oversubscribe" in line
    assert "received 4" in line


def test_oversubscribing_is_allowed_on_cpus_and_marked():
    oversubscribed = plan(2, scaling={"world_sizes": [1, 4]}, resources={"oversubscribe": True})
    assert oversubscribed.oversubscribed
    assert all(request.config.oversubscribed for request in oversubscribed.curve(oversubscribed.default()))
    assert not plan(2, resources={"oversubscribe": True}).oversubscribed  # allowed, but not needed


def test_oversubscribing_has_an_end():
    plan(2, scaling={"world_sizes": [32]}, resources={"oversubscribe": True})
    line = refused(2, scaling={"world_sizes": [1, 100_000]}, resources={"oversubscribe": True})
    assert line.startswith("scaling.world_sizes: with --oversubscribe at most 16 times")
    assert line.endswith("32 (received 100,000)")


def test_oversubscribing_is_never_allowed_on_gpus():
    line = refused(2, "cuda", scaling={"world_sizes": [4]}, resources={"oversubscribe": True})
    assert line.startswith("scaling.world_sizes: at most 2 workers of 1 core and a GPU")
    assert "received 4" in line


def test_all_gpus_without_cores_for_all_is_refused_with_what_fits():
    few_cores = Resources("cuda", 4, "a GPU", num_gpus=8)
    with pytest.raises(RequestError, match=r"scaling.world_sizes: at most 4 .*1 core and a GPU.*received 8"):
        make_plan(study(), few_cores)
    assert make_plan(study(scaling={"world_sizes": [1, 4]}), few_cores).target == 4


def test_no_device_at_all_is_refused_by_its_cause():
    assert "resources.device: cuda needs a node with 1 core and a GPU" in refused(0, "cuda")
    assert "16 cores and a GPU" in refused(0, "cuda", resources={"cpus_per_worker": 16})
    # a machine of 2 cores has no room for a worker of 16
    line = refused(0, resources={"cpus_per_worker": 16})
    assert line.startswith("resources.cpus_per_worker")
    assert "received 16" in line


# --- the grid

GRID = {
    "batch_size": [8, 16],
    "bucket_cap_mb": [1, 25],
    "precision": ["fp32", "bf16"],
    "static_graph": [False, True],
}


def test_a_grid_has_every_combination_at_every_size_and_nothing_twice():
    requests = requested(plan(4, knobs=GRID))
    assert len({request.trial_id for request in requests}) == len(requests)
    for size in (2, 4):
        found = {
            tuple(getattr(request.config.setting, knob) for knob in GRID)
            for request in requests
            if request.config.world_size == size
        }
        assert found == set(itertools.product(*GRID.values()))
    alone = [request for request in requests if request.config.world_size == 1]
    assert {(r.config.setting.batch_size, r.config.setting.precision) for r in alone} == {
        (8, "fp32"),
        (8, "bf16"),
        (16, "fp32"),
        (16, "bf16"),
    }
    assert len(alone) == 4  # buckets and the static graph cannot matter on one device
    assert len(requests) == 2 * 16 + 4


def test_the_order_starts_each_group_once_and_makes_each_size_once():
    requests = requested(
        plan(4, knobs={"batch_size": [8, 16]}, environment={"OMP_PROC_BIND": ["false", "true"]})
    )
    environments = [request.config.environment["OMP_PROC_BIND"] for request in requests]
    assert [key for key, _ in itertools.groupby(environments)] == ["false", "true"]
    *default, last = sizes(requests)[:3]
    assert [*default, last] == [4, 2, 1]  # the default's curve first
    for name, together in itertools.groupby(
        requests[3:], key=lambda request: request.config.environment["OMP_PROC_BIND"]
    ):
        found = sizes(list(together))
        assert found == sorted(found, reverse=True), name
        assert set(found) == {1, 2, 4}


def test_the_first_suggestion_is_the_default():
    planned = plan(
        2, knobs={"batch_size": [64, 8], "precision": ["bf16", "fp32"]}, environment={"A": ["2", "1"]}
    )
    assert planned.default() == Suggestion(Setting(batch_size=64, precision="bf16"), {"A": "2"})
    assert next(planned.suggestions()) == planned.default()
    assert len(list(planned.suggestions())) == 8


# --- an ablation: one at a time, and all together

ABLATED = {
    "batch_size": [8, 32],
    "gradient_accumulation": [1, 4],
    "gradient_compression": ["none", "bf16", "fp16"],
}


def changed(planned: Plan) -> list[tuple[int, int, str]]:
    settings = [suggestion.setting for suggestion in planned.suggestions()]
    return [(s.batch_size, s.gradient_accumulation, s.gradient_compression) for s in settings]


@pytest.mark.promise("ablation")
def test_an_ablation_changes_one_knob_at_a_time_and_then_all():
    planned = plan(4, knobs=ABLATED, search={"method": "ablation"})
    assert next(planned.suggestions()) == planned.default()
    assert changed(planned) == [
        (8, 1, "none"),
        (32, 1, "none"),
        (8, 4, "none"),
        (8, 1, "bf16"),
        (8, 1, "fp16"),
        (32, 4, "fp16"),
    ]


def test_under_strong_scaling_accumulation_leaves_the_passes_as_they_are():
    planned = plan(4, knobs=ABLATED, search={"method": "ablation"}, scaling={"mode": "strong"})
    assert changed(planned)[2] == (32, 4, "none")  # 4 passes of 8 samples
    assert changed(planned)[-1] == (128, 4, "fp16")
    passes = {request.config.batch_size for request in requested(planned) if request.config.world_size == 4}
    assert passes == {2, 8}  # samples of one device and pass


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_beside_another_knob_the_default_keeps_its_largest_batch(mode):
    """Under strong scaling that of a step, which accumulation raises."""
    knobs = {"batch_size": ["max", 16], "precision": ["fp32", "bf16"], "gradient_accumulation": [1, 4]}
    planned = plan(4, knobs=knobs, search={"method": "ablation"}, scaling={"mode": mode})
    sizes = {"fp32": 64, "bf16": 128}
    fits = [
        LargestFit(each, planned.target, sizes[each.precision], None, is_invalid=False, reason="")
        for each in planned.combinations()
    ]
    found = [each.setting for each in replace(planned, fits=tuple(fits)).suggestions()]
    batch, last = (256, 64) if mode == "strong" else (64, 16)
    assert found == [
        Setting(batch_size=64),
        Setting(batch_size=16),
        Setting(batch_size=64, precision="bf16"),
        Setting(batch_size=batch, gradient_accumulation=4),
        Setting(batch_size=last, precision="bf16", gradient_accumulation=4),
    ]


def test_one_change_of_a_grid_is_one_difference_whatever_the_scaling():
    planned = plan(
        4,
        knobs=ABLATED,
        search={"method": "grid"},
        scaling={"mode": "strong"},
    )
    default, *others = [r for r in requested(planned) if r.config.world_size == 2]
    changes = {
        (r.config.setting.batch_size, r.config.setting.gradient_accumulation): r.config.differences(
            default.config
        )
        for r in others
        if r.config.setting.gradient_compression == "none"
    }
    assert changes == {
        (8, 4): {"gradient_accumulation": 4},  # the same step, smaller passes
        (32, 1): {"batch_size": 32},
        (32, 4): {"gradient_accumulation": 4},  # the same passes, more of them
    }


def test_process_knobs_are_ablated_too():
    planned = plan(
        2,
        knobs={"batch_size": [8, 32]},
        environment={"A": ["1", "2"], "B": ["x", "y"]},
        search={"method": "ablation"},
    )
    found = [(s.setting.batch_size, s.environment["A"], s.environment["B"]) for s in planned.suggestions()]
    assert found == [(8, "1", "x"), (32, "1", "x"), (8, "2", "x"), (8, "1", "y"), (32, "2", "y")]


def test_nothing_to_ablate_is_the_default_alone():
    planned = plan(2, knobs={"batch_size": 8}, search={"method": "ablation"})
    assert list(planned.suggestions()) == [planned.default()]


# --- placements


@pytest.mark.parametrize(
    ("placement", "nodes", "workers"), [(["pack"], 4, 2), (["spread"], 1, 2), (["pack", "spread"], 4, 8)]
)
def test_workers_stand_everywhere_before_few_of_them_are_spread(placement, nodes, workers):
    spec = study(scaling={"world_sizes": [1, 2], "placement": placement})
    assert make_plan(spec, Resources("cpu", 8, "a CPU", nodes)).group_size == workers


def test_pack_and_spread_are_measured_at_every_size_but_one():
    planned = plan(4, scaling={"placement": ["spread", "pack"]})
    asked = [
        (request.config.world_size, request.config.placement) for request in planned.curve(planned.default())
    ]
    assert asked == [(4, "spread"), (4, "pack"), (2, "spread"), (2, "pack"), (1, "pack")]
    assert planned.search(planned.default()).config.placement == "spread"  # the first that is listed


def test_a_list_of_ranks_stands_for_its_own_length():
    placement = ["pack", [0, 3], [1, 2], [2]]
    planned = plan(4, scaling={"placement": placement, "world_sizes": [1, 2, 3]})
    asked = [
        (request.config.world_size, request.config.placement) for request in planned.curve(planned.default())
    ]
    assert asked == [(3, "pack"), (2, "pack"), (2, (0, 3)), (2, (1, 2)), (1, (2,))]
    assert planned.group_size == 4  # rank 3 must be there, though no world size is 4


def test_a_size_that_no_placement_fits_is_packed():
    planned = plan(4, scaling={"placement": [[1, 0]]})
    assert [request.config.placement for request in planned.curve(planned.default())] == [
        "pack",
        (0, 1),  # torch orders them
        "pack",
    ]


def test_ranks_beyond_the_devices_are_refused():
    line = refused(4, scaling={"placement": [[0, 5]]})
    assert "at most 4" in line
    assert "received 6" in line


def test_ranks_of_a_length_that_is_no_world_size_here_are_refused():
    """Otherwise what was asked for would silently not be measured."""
    line = refused(8, scaling={"placement": ["pack", [0, 1, 2]]})
    assert line.startswith("scaling.placement")
    assert "[1, 2, 4, 8]" in line
    assert "received [0, 1, 2]" in line


# --- variants


def variants(mode: str) -> dict[str, tuple[str, ...]]:
    planned = plan(4, scaling={"mode": mode}, knobs={"batch_size": [64, 128]})
    default, other = itertools.islice(planned.suggestions(), 2)
    curve = {request.config.world_size: request for request in planned.curve(default)}
    found = {
        "search": planned.search(default),
        "scaling": curve[4],
        "alone": curve[1],
        "other in a search": planned.search(other),
        "any in a search": planned.search(),
        "other": planned.curve(other)[0],
    }
    return {name: request.variants for name, request in found.items()}


def test_variants_of_each_role_in_weak_scaling():
    assert variants("weak") == {
        "search": ("plain", "ddp"),  # its own base, in the same rounds
        "scaling": ("plain", "concurrent", "local", "ddp", "replay"),
        "alone": ("plain",),
        "other in a search": ("plain", "ddp", "anchor"),
        "any in a search": ("plain", "ddp", "anchor"),
        "other": ("plain", "concurrent", "local", "ddp", "replay", "anchor"),
    }


def test_strong_scaling_has_the_base_at_the_global_batch_too():
    assert variants("strong") == {
        "search": ("base", "plain", "ddp"),
        "scaling": ("base", "plain", "concurrent", "local", "ddp", "replay"),
        "alone": ("plain",),
        "other in a search": ("base", "plain", "ddp", "anchor"),
        "any in a search": ("base", "plain", "ddp", "anchor"),
        "other": ("base", "plain", "concurrent", "local", "ddp", "replay", "anchor"),
    }


def test_the_default_is_the_anchor_of_other_settings_at_the_target():
    planned = plan(4, knobs={"batch_size": [64, 128]})
    default, other = planned.suggestions()
    assert [each.config.world_size for each in planned.curve(other)] == [4, 2, 1]
    assert [each.anchor for each in planned.curve(other)] == [default.setting, None, None]
    assert [each.anchor for each in planned.curve(default)] == [None] * 3


@pytest.mark.parametrize(
    ("fields", "has_anchor"),
    [
        ({"knobs": {"batch_size": [64, 128]}}, True),
        ({"environment": {"A": ["0", "1"]}}, False),  # the default in other processes
        ({"workload": {"script": "train.py"}, "knobs": {"bucket_cap_mb": ["default", 5]}}, False),
    ],
)
def test_any_suggestion_has_the_anchor_that_a_suggestion_has(fields: dict[str, object], has_anchor: bool):
    planned = plan(2, search={"method": "optuna"}, **fields)
    changed = planned.all_changes()
    for suggestion in (None, changed):
        assert ("anchor" in planned.search(suggestion).variants) is has_anchor
    assert planned.search().anchor == (planned.default().setting if has_anchor else None)


def test_process_knobs_have_the_anchor_of_their_own_variables():
    planned = plan(2, knobs={"batch_size": [64, 128]}, environment={"A": ["0", "1"]})
    found = {
        (r.config.environment["A"], r.config.batch_size): r.anchor and r.anchor.batch_size
        for r in requested(planned)
        if r.config.world_size == 2
    }
    assert found == {("0", 64): None, ("0", 128): 64, ("1", 64): None, ("1", 128): 64}


@pytest.mark.parametrize(
    ("measure", "half_width", "min_rounds"),
    [
        ({}, 0.0866, 4),  # 0.05 on CPUs
        ({"half_width": 0.02, "visits": 4}, 0.04, 3),
        ({"half_width": 0.02, "visits": 1}, 0.02, 10),
        ({"half_width": 0.9, "visits": 100}, 0.99, 3),
    ],
    ids=str,
)
def test_a_visit_is_measured_to_its_share(measure, half_width, min_rounds):
    planned = plan(2, knobs={"batch_size": [64, 128]}, measure=measure)
    for request in (planned.search(planned.default()), *planned.curve(planned.default())):
        assert (request.measure.half_width, request.measure.min_rounds) == (half_width, min_rounds)
    verified = planned.verification(
        planned.search(planned.default()).config, planned.default().setting
    ).measure
    assert (verified.half_width, verified.min_rounds) == (planned.study.measure.half_width, 10)


# --- ids


def request(**fields: object) -> TrialRequest:
    planned = plan(4, **({"environment": {"A": "1", "B": "2"}} | fields))
    return planned.curve(planned.default())[0]


def test_ids_survive_the_study_file_of_a_results_directory(tmp_path):
    """``--resume`` reads the study back: were an id another one, everything would be measured again."""
    fields = {
        "knobs": {"batch_size": [8, 16], "bucket_cap_mb": ["default", 1, 2.5]},
        "scaling": {"world_sizes": [1, 2, 3], "placement": ["pack", [0, 2]]},
        "measure": {"max_seconds": 6, "half_width": 0.1},
        "environment": {"OMP_PROC_BIND": ["false", "true"], "A": "0"},
    }
    before = plan(4, **fields)
    (tmp_path / "study.toml").write_text(to_toml(before.study))
    again = make_plan(load_study(tmp_path / "study.toml"), Resources("cpu", 4, "a cpu"))
    assert [r.trial_id for r in requested(again)] == [r.trial_id for r in requested(before)]


@pytest.mark.parametrize(
    "fields",
    [
        {"knobs": {"batch_size": 64}},
        {"knobs": {"bucket_cap_mb": 25}},
        {"seed": 1},
        {"scaling": {"placement": "spread"}},
        {"scaling": {"mode": "strong"}},
        {"environment": {"A": "1", "B": "3"}},
        {"environment": {"A": "1"}},
        {"workload": {"name": "mlp", "hidden_dim": 64}},
        {"optimizer": {"name": "adamw"}},
        {"measure": {"half_width": 0.01}},
        {"resources": {"cpus_per_worker": 2}},
    ],
    ids=str,
)
def test_ids_differ_where_something_else_is_asked(fields):
    assert request(**fields).trial_id != request().trial_id


def test_ids_differ_by_role_and_size():
    planned = plan(4, knobs={"batch_size": [8, 16]})
    default, other = planned.suggestions()
    requests = [planned.search(default), *planned.curve(default), *planned.curve(default, 1)]
    requests += [planned.search(other), planned.curve(other)[0]]
    assert len({each.trial_id for each in requests}) == len(requests) == 9


def test_a_trial_that_compiles_has_three_times_as_long():
    """Its anchor may be what compiles; a probe too."""
    for compiled in ([False, True], [True, False]):
        planned = plan(2, knobs={"batch_size": 8, "compile": compiled}, measure={"timeout_seconds": 100})
        default, other = planned.suggestions()
        assert planned.search(other).timeout_s == 300
        assert planned.curve(default)[0].timeout_s == (300 if compiled[0] else 100)
        assert planned.probe(default.setting, 8).timeout_s == (300 if compiled[0] else 100)


def test_ids_do_not_depend_on_how_long_a_trial_may_take():
    longer = request(measure={"timeout_seconds": 900}, time_budget_seconds=60)
    assert longer.trial_id == request().trial_id


# --- what cannot be


def test_strong_scaling_needs_batches_that_divide():
    line = refused(4, scaling={"mode": "strong"}, knobs={"batch_size": [64, 65]})  # no two devices
    assert line.startswith("knobs.batch_size")
    assert "2 x 1" in line
    assert "received 65" in line


@pytest.mark.parametrize(
    ("devices", "batches", "found", "left_out"),
    [
        (12, [8, 64], (1, 2, 4, 8), (12,)),
        (4, [64, 66], (1, 2), (4,)),
        (4, [64, 128], (1, 2, 4), ()),
    ],
)
def test_all_world_sizes_of_strong_scaling_are_those_that_divide_the_batch(devices, batches, found, left_out):
    planned = plan(devices, scaling={"mode": "strong"}, knobs={"batch_size": batches})
    assert (planned.world_sizes, planned.left_out) == (found, left_out)
    weak = plan(devices, knobs={"batch_size": batches})
    assert (max(weak.world_sizes), weak.left_out) == (devices, ())


def test_accumulation_divides_the_global_batch_too():
    knobs = {"batch_size": 8, "gradient_accumulation": [1, 4]}
    assert plan(4, scaling={"mode": "strong"}, knobs=knobs).world_sizes == (1, 2)
    with pytest.raises(ValidationError, match=r"4 x 4 \(received 8\)"):
        plan(4, scaling={"mode": "strong", "world_sizes": [1, 4]}, knobs=knobs)
    fine = plan(4, scaling={"mode": "strong"}, knobs={"batch_size": 16, "gradient_accumulation": 4})
    assert [each.config.batch_size for each in fine.curve(fine.default())] == [1, 2, 4]
    assert {each.config.global_batch_size for each in fine.curve(fine.default())} == {16}


def test_weak_scaling_takes_any_batch():
    assert (
        plan(4, knobs={"batch_size": 7}).search(plan(4, knobs={"batch_size": 7}).default()).config.batch_size
        == 7
    )


def test_a_study_whose_every_setting_is_impossible_is_refused():
    line = refused(2, knobs={"precision": "tf32"})
    assert line == "knobs: precision tf32 exists on GPUs only"
    plan(2, "cuda", knobs={"precision": "tf32"})


def test_some_impossible_settings_are_left_to_end_invalid():
    planned = plan(2, knobs={"precision": ["fp32", "tf32"]})
    assert {each.config.setting.precision for each in requested(planned)} == {"fp32", "tf32"}


# --- strategies

STRATEGIES = ["single", "dp", "ddp", "fsdp"]


def asked_for(requests: Sequence[TrialRequest]) -> list[tuple[int, str]]:
    return [(request.config.world_size, request.config.setting.strategy) for request in requests]


def test_single_is_the_one_device_of_every_strategy():
    planned = plan(4, "cuda", knobs={"strategy": STRATEGIES}, scaling={"mode": "strong"})
    others = ["dp", "ddp", "fsdp"]
    assert (
        asked_for(requested(planned))
        == [
            *((4, "dp"), (2, "dp"), (1, "single")),  # the default's curve
            *((4, each) for each in others[1:]),
            *((2, each) for each in others[1:]),
        ]
    )
    assert planned.default().setting.strategy == "dp"
    assert asked_for(planned.curve(planned.default())) == [(4, "dp"), (2, "dp"), (1, "single")]


def test_dp_on_cpus_is_left_to_end_invalid_and_is_no_default():
    planned = plan(2, knobs={"strategy": STRATEGIES})
    assert (2, "dp") in asked_for(requested(planned))
    assert planned.default().setting.strategy == "ddp"
    assert refused(2, knobs={"strategy": "dp"}).startswith("knobs: strategy dp exists on GPUs only")


def test_single_alone_has_one_device():
    assert plan(4, knobs={"strategy": "single"}).world_sizes == (1,)
    line = refused(4, knobs={"strategy": "single"}, scaling={"world_sizes": [1, 2]})
    assert line == 'scaling.world_sizes: 1 where knobs.strategy is "single" alone (received 1, 2)'


def test_ddp_and_fsdp_have_the_variants_of_a_wrapper():
    planned = plan(2, knobs={"strategy": ["ddp", "fsdp"]}, scaling={"mode": "strong"})
    found = {r.config.setting.strategy: r.variants for r in requested(planned) if r.config.world_size == 2}
    assert found == {
        "ddp": ("base", "plain", "concurrent", "local", "ddp", "replay"),
        "fsdp": ("base", "plain", "concurrent", "local", "ddp", "replay", "anchor"),
    }


def test_buckets_are_measured_once_under_fsdp_and_resharding_once_under_ddp():
    knobs = {"strategy": ["ddp", "fsdp"], "bucket_cap_mb": [1, 25], "fsdp_reshard": [False, True]}
    found = [
        request.config.setting
        for request in requested(plan(2, knobs=knobs))
        if request.config.world_size == 2
    ]
    assert {(s.strategy, s.bucket_cap_mb, s.fsdp_reshard) for s in found} == {
        ("ddp", 1, True),
        ("ddp", 25, True),
        ("fsdp", "default", False),
        ("fsdp", "default", True),
    }
    assert len(found) == 4


# --- more nodes


def last_visits(nodes: int, **fields: object) -> list[StepsRequest]:
    """The visits that are measured as if on more devices."""
    several = make_plan(study(**fields), Resources("cpu", 4, "a CPU", num_nodes=nodes))
    return [trial for trial in several.visits(()) if trial.as_if]


def test_on_several_nodes_the_default_is_visited_once_more_as_if_on_twice_and_four_times_as_many():
    (last,) = last_visits(2)
    assert [each.world_size for each in last.as_if] == [8, 16]
    assert {each.network for each in last.as_if} == {None}  # as these are joined
    assert last.config.world_size == 4
    assert last.variants[-2:] == ("as_if_1", "as_if_2")
    assert last.visit == study().measure.visits  # the highest: where time is short it is left out first


def test_one_node_says_nothing_of_the_network_between_nodes():
    assert last_visits(1) == []


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"scaling": {"as_if": []}}, []),
        ({"scaling": {"world_sizes": [1, 2]}}, []),  # they may be of one node
        ({"knobs": {"strategy": ["fsdp"]}}, []),
        ({"scaling": {"mode": "strong"}, "knobs": {"batch_size": [8]}}, [[8]]),
    ],
)
def test_it_is_not_where_it_cannot_be_or_was_asked_otherwise(fields, sizes):
    found = last_visits(2, **fields)
    assert [[each.world_size for each in last.as_if] for last in found] == sizes


def test_one_device_in_the_list_of_strategies_is_not_its_default():
    asked = last_visits(2, scaling={"as_if": [64]}, knobs={"strategy": ["single", "ddp"]})
    assert {each.config.setting.strategy for each in asked} == {"ddp"}


def test_what_as_if_asks_for_is_in_every_visit_and_there_is_no_further_one():
    asked = last_visits(2, scaling={"as_if": [64]})
    assert {each.as_if[0].world_size for each in asked} == {64}
    assert max(each.visit for each in asked) == study().measure.visits - 1


@pytest.mark.parametrize("scaling", [{"world_sizes": [1]}, {"as_if": [2]}, {"world_sizes": [1, 8]}])
def test_as_if_goes_with_several_workers_on_devices_of_their_own_and_as_many_or_more(scaling):
    """8 workers share the cores of 4: what they wait for is a core."""
    with pytest.raises(RequestError, match=r"scaling\.as_if: at least .* \(received \d+\)"):
        plan(4, scaling={"as_if": [64]} | scaling, resources={"oversubscribe": True})
