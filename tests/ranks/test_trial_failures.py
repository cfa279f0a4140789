"""Trials that fail, and settings and teams of every kind, on real gloo ranks.

Trials are served as a worker group serves them, through ``raybench.worker.serve``, with a mailbox of this
process's own in the place of Ray's.
"""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
from torch.nn.parallel import DistributedDataParallel

from raybench.analysis.stats.rounds import mean_rank_s
from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.batches import make_batches
from raybench.worker.communicators import Communicators, Team
from raybench.worker.group_cache import GroupCache, RankContext
from raybench.worker.steps.steps_trial import StepsTrial
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper
from raybench.workloads import build
from tests.ranks import planted
from tests.ranks.ranks import Ranks
from tests.ranks.trials import ALL, BOTH, CPU, SHORT, complete, serve_trial
from tests.unit import studies

TIMEOUT_S = 60.0


def _request(workload: dict[str, Any] | None = None, **fields: Any) -> StepsRequest:
    given: dict[str, Any] = {
        "role": "search",
        "workload": FactorySpec.model_validate({"factory": "tests.ranks.planted:faulty"} | (workload or {})),
        "optimizer": OptimizerSpec(),
        "setting": Setting(batch_size=8),
        "world_size": 2,
        "variants": ALL,
        "measure": MeasureSpec(
            half_width=0.001, steps=3, min_rounds=4, warmup_steps=1, max_seconds=5, timeout_seconds=TIMEOUT_S
        ),
    }
    return studies.request(**(given | fields))


@dataclass(frozen=True)
class Served:
    """What came of the trials, by name."""

    outcomes: dict[str, Outcome]
    threads: dict[str, list[int]]  # that the models saw on rank 0
    threads_of_last: dict[str, list[int]]  # and on the last rank
    insides: list[dict[str, dict[str, Any]]]  # of each rank


def _serve(
    asked: list[tuple[StepsRequest, tuple[int, ...]]], looked_into: dict[str, StepsRequest]
) -> tuple[list[Outcome], list[list[int]], dict[str, dict[str, Any]]]:
    """On each rank: serve the trials one after the other; rank 0 brings their outcomes."""
    outcomes = list[Outcome]()
    torch.set_num_threads(1)
    importlib.reload(differentiable)  # as in a worker: its group is there before
    communicators, cache, threads = Communicators("gloo"), GroupCache(), []
    refuse = DistributedDataParallel._passing_sync_batchnorm_handle  # on CPUs
    DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None  # type: ignore
    for request, ranks in asked:
        outcomes += serve_trial(request, ranks, communicators, cache)
        threads.append(sorted(planted.SEEN_THREADS))
    DistributedDataParallel._passing_sync_batchnorm_handle = refuse  # type: ignore[method-assign]
    insides = {name: _look_inside(request, communicators) for name, request in looked_into.items()}
    insides["teams"] = {"seen": sorted(planted.SEEN_TEAMS)}
    communicators.drop_team()
    return outcomes, threads, insides


def _served(
    ranks: Ranks,
    requests: dict[str, tuple[StepsRequest, tuple[int, ...]]],
    looked_into: dict[str, StepsRequest] | None = None,
) -> Served:
    by_rank = ranks.call(_serve, list(requests.values()), looked_into or {})
    outcomes = dict(zip(requests, by_rank[0][0], strict=True))
    for name, outcome in outcomes.items():
        print(name, outcome.state, outcome.reason, f"{outcome.wall_time_s:.2f} s")
    threads, last = (dict(zip(requests, by_rank[rank][1], strict=True)) for rank in (0, -1))
    return Served(outcomes, threads, last, [answer[2] for answer in by_rank])


# two ranks step 1 (bare) + 4 (warm-up) times before the rounds, then 4 times in a block
FAULTS: dict[str, StepsRequest] = {
    "error_of_all": _request({"fault": "error", "ranks": [0, 1]}),  # the first trial of these processes
    "error_first": _request({"fault": "error", "ranks": [1]}),
    "memory_one": _request({"fault": "memory", "ranks": [1]}),
    "memory_all": _request({"fault": "memory", "ranks": [0, 1]}),
    "error_ddp": _request({"fault": "error", "ranks": [1], "after": 12, "wrapper": "ddp"}, variants=SHORT),
    "memory_ddp": _request({"fault": "memory", "ranks": [0], "after": 12, "wrapper": "ddp"}, variants=SHORT),
    "error_concurrent": _request(
        {"fault": "error", "ranks": [1], "after": 14, "wrapper": "bare"}, variants=("concurrent", "ddp")
    ),
    "error_local": _request(
        {"fault": "error", "ranks": [1], "after": 4 + 4 + 1, "wrapper": "ddp"}, variants=("local", "ddp")
    ),
    "nan": _request({"fault": "nan", "ranks": [1], "after": 20}),
    "keeps": _request({"kind": "keeps"}),
    "makes": _request({"kind": "makes"}),
}
KEPT_GROUP = (
    "the forward pass communicates in a group that was found where the model was made, on one device alone: "
    "let it ask torch.distributed in each pass"
)
MADE_GROUP = (
    "the model makes a process group of its own, where it is made and first runs on one device alone: let it "
    "ask torch.distributed for the default one in each pass"
)
GATHER = ("communicates", "gathers by nn", "gathers of several")
UNLIKE = {"parity": "the forward pass communicates, on one device with nobody"}
# the rounds are done: what fails then is missing, and costs nothing else
LATE: dict[str, StepsRequest] = {
    name: _request({"fault": fault, "ranks": [rank], "wrapper": wrapper, "within": within}, role="scaling")
    for name, fault, rank, wrapper, within in (
        ("phases_of_the_leader_alone", "memory", 0, "bare", "_time_phases"),
        ("phases_of_one_rank", "memory", 1, "ddp", "_time_phases"),
        ("losses_of_one_device", "memory", 0, "bare", "run_on_one_device"),
        ("losses_of_one_rank", "error", 1, "ddp", "run_under_strategy"),
        ("twin_of_one_rank", "memory", 1, "ddp", "_twin"),
    )
}
# what tests/ranks/test_strategies.py and INSIDES have is not repeated
SETTINGS: dict[str, StepsRequest] = {
    "unused": _request({"kind": "unused"}, setting=Setting(batch_size=8, find_unused_parameters=True)),
    "unused_unsent": _request(
        {"kind": "unused"},
        setting=Setting(batch_size=8, find_unused_parameters=True, skip_all_reduce_unused_params=True),
    ),
    "batched": _request(
        role="scaling", setting=Setting(batch_size=8, batched_grad_copy=True, optimizer_kernels="fused")
    ),
    "accumulation_static": _request(
        setting=Setting(batch_size=8, gradient_accumulation=2, static_graph=True, bucket_cap_mb=1)
    ),
    "buckets_tiny": _request(setting=Setting(batch_size=8, bucket_cap_mb=0.0001)),
    "buckets_1": _request(setting=Setting(batch_size=8, bucket_cap_mb=1)),
    "fp16": _request(setting=Setting(batch_size=8, precision="fp16")),
    "bf16": _request(setting=Setting(batch_size=8, precision="bf16")),
    "threads": _request(setting=Setting(batch_size=8, num_threads=2)),
    "communicates": _request({"gathers": "torch.distributed"}, role="scaling"),
    "gathers by nn": _request({"gathers": "nn"}, role="scaling"),
    "gathers of several": _request({"gathers": "several"}, role="scaling"),
    "encoded": _request({"factory": "tests.ranks.planted:encoded"}, role="scaling"),
    "meets": _request({"factory": "tests.ranks.planted:meeting"}, role="scaling"),
    "meets over data": _request({"factory": "tests.ranks.planted:meeting", "input": "real"}, role="scaling"),
    "synchronized": _request(
        {"kind": "synchronized"}, setting=Setting(batch_size=8, gradient_accumulation=2)
    ),
    "needs_ddp": _request({"factory": "tests.ranks.planted:needs_ddp"}),
    "compressed": _request({"factory": "tests.ranks.planted:compressed"}, role="scaling"),
    "base_too_large": _request(
        {"largest_batch": 16}, scaling="strong", setting=Setting(batch_size=32), variants=("base", *ALL)
    ),
}

# a model that communicates, PowerSGD from its second iteration on, batches that are no dicts: each leaves a
# group that measures a known length
KEEP_THE_GROUP = ("communicates", "compressed", "encoded")
TRUTH = planted.Plant(forward_s=0.02, backward_s=(0.01, 0.01))
LATE_S = 0.005  # that a wait may end late, on busy cores

# settings that are looked into as well, with the number of tensors in the optimizer's state
INSIDES: dict[str, tuple[StepsRequest, int]] = {
    "sgd": (_request(), 0),
    "momentum": (_request(optimizer=OptimizerSpec(momentum=0.9)), 4),
    # two moments and a count for each
    "adamw": (
        _request(optimizer=OptimizerSpec(name="adamw", learning_rate=0.001, weight_decay=0.01)),
        12,
    ),
    "views": (_request(setting=Setting(batch_size=8, gradient_as_bucket_view=True)), 0),
    "uncopyable": (_request({"kind": "uncopyable"}), 0),
    "static": (_request(setting=Setting(batch_size=8, static_graph=True)), 0),
    "accumulation": (
        _request(setting=Setting(batch_size=8, gradient_accumulation=3, static_graph=True)),
        0,
    ),
}


@pytest.fixture(scope="module")
def faults(pair: Ranks) -> Served:
    """Every fault, with a sound trial after each, all in the same two processes."""
    asked: dict[str, tuple[StepsRequest, tuple[int, ...]]] = {}
    for name, request in FAULTS.items():
        asked[name] = (request, BOTH)
        asked[f"after {name}"] = (_request(), BOTH)
    for name, request in LATE.items():
        asked[name] = (request, BOTH)
        asked[f"after {name}"] = (_request(role="scaling"), BOTH)
    return _served(pair, asked)


@pytest.fixture(scope="module")
def two(pair: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Every setting, and the insides of some, in the same two processes."""
    asked: dict[str, tuple[StepsRequest, tuple[int, ...]]] = {}
    stamps = tmp_path_factory.mktemp("stamps") / "stamps"
    stamps.write_bytes(bytes(8 * planted.MAX_RANKS))
    for name, request in SETTINGS.items():
        asked[name] = (request, BOTH)
        if name in KEEP_THE_GROUP:
            asked[f"after {name}"] = (_request(TRUTH.spec(str(stamps)).model_dump()), BOTH)
    return _served(pair, asked, {name: request for name, (request, _) in INSIDES.items()})


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("error_of_all", "crashed", "rank 0: ValueError: planted on rank 0"),
        ("error_first", "crashed", "rank 1: ValueError: planted on rank 1"),
        ("memory_one", "oom", "rank 1: MemoryError: planted: no memory"),
        ("memory_all", "oom", "rank 0: MemoryError: planted: no memory"),
        ("error_ddp", "crashed", "rank 1: ValueError: planted on rank 1"),
        ("memory_ddp", "oom", "rank 0: MemoryError: planted: no memory"),
        ("error_concurrent", "crashed", "rank 1: ValueError: planted on rank 1"),
        ("error_local", "crashed", "rank 1: ValueError: planted on rank 1"),
        ("nan", "invalid", "the loss is not finite"),
        ("keeps", "invalid", KEPT_GROUP),
        ("makes", "invalid", MADE_GROUP),
    ],
)
def test_a_failure_costs_its_own_trial_only(name: str, state: str, reason: str, faults: Served) -> None:
    failed, after = faults.outcomes[name], faults.outcomes[f"after {name}"]
    assert (failed.state, failed.reason, failed.result) == (state, reason, None)
    assert failed.wall_time_s < TIMEOUT_S  # whoever waited was freed, not timed out
    found = complete(after)
    assert len(found.rounds) == 4
    assert not found.missing


def test_the_leader_runs_the_first_step_of_a_workload_before_anyone_else(faults: Served) -> None:
    assert faults.threads["error_of_all"] == [1]
    assert faults.threads_of_last["error_of_all"] == []  # its loss was never called
    assert faults.outcomes["error_of_all"].wall_time_s < TIMEOUT_S
    assert faults.threads_of_last["after error_of_all"] == [1]


@pytest.mark.parametrize("name", ["error_of_all", "error_first", "error_ddp"])
def test_a_crash_says_where_in_the_users_code(name: str, faults: Served) -> None:
    frame = faults.outcomes[name].frame
    assert frame.startswith("tests/ranks/planted.py:")
    assert ", in loss: raise ValueError(" in frame


def test_what_did_not_crash_has_no_frame(faults: Served) -> None:
    others = [each for each in faults.outcomes.values() if each.state != "crashed"]
    assert others
    assert not any(each.frame for each in others)


PLANTED = "MemoryError: planted: no memory"


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("phases_of_the_leader_alone", {"phases": "rank 0: MemoryError: planted: no memory"}),
        ("phases_of_one_rank", {"phases": "rank 1: MemoryError: planted: no memory"}),
        (
            "losses_of_one_device",
            {"parity": f"one device could not take the samples of all: rank 0: {PLANTED}"},
        ),
        (
            "losses_of_one_rank",
            {"parity": "crashed afterwards: rank 1: ValueError: planted on rank 1"},
        ),
        (
            "twin_of_one_rank",
            {"local": f"no memory for steps without transfers: rank 1: {PLANTED}"},
        ),
    ],
)
def test_what_fails_beside_the_rounds_costs_nothing_but_itself(
    name: str, missing: dict[str, str], faults: Served
) -> None:
    found, after = complete(faults.outcomes[name]), complete(faults.outcomes[f"after {name}"])
    assert found.missing == missing
    assert bool(found.phases) == ("phases" not in missing)
    assert (found.parity is None) == ("parity" in missing)
    assert found.matrix_peak_flops_per_s
    for result in (found, after):
        assert len(result.rounds) == 4
        assert {block.variant for block in result.rounds[0].blocks} == set(ALL) - set(result.missing)
    assert faults.outcomes[name].step_times
    assert not after.missing
    assert after.phases
    assert after.parity


@pytest.mark.parametrize("name", list(SETTINGS))
def test_a_setting_is_measured(name: str, two: Served) -> None:
    request, found = SETTINGS[name], complete(two.outcomes[name])
    for each in found.rounds:
        blocks = {block.variant: block for block in each.blocks}
        assert set(blocks) == set(request.variants) - set(found.missing)
        assert all(block.num_steps == 3 for block in blocks.values())
        assert blocks["ddp"].ranks == BOTH
    assert found.samples_per_step == found.global_batch_size == request.config.global_batch_size
    reasons = {
        **dict.fromkeys((*GATHER, "meets", "meets over data"), UNLIKE),
        "base_too_large": {
            "base": "batch 32 does not fit on one device: rank 0: MemoryError: no memory for 32 samples"
        },
        "needs_ddp": {
            "replay": "the workload's hook does not run without DDP: rank 0: TypeError: "
            "planted: no bucket of DDP's"
        },
    }
    assert found.missing == reasons.get(name, {})


@pytest.mark.parametrize("name", KEEP_THE_GROUP)
def test_a_trial_of_a_known_length_finds_it_after_what_once_ended_the_group(name: str, two: Served) -> None:
    assert two.outcomes[name].wall_time_s < TIMEOUT_S
    found = complete(two.outcomes[f"after {name}"])
    assert not found.missing
    plain = [mean_rank_s(block) for each in found.rounds if (block := each.block("plain"))]
    # what else is wrong with every step is in the quickest block too
    assert -0.001 < min(plain) - TRUTH.alone(8) < LATE_S


def test_gradients_that_are_copied_at_once_are_those_of_one_device(two: Served) -> None:
    parity = complete(two.outcomes["batched"]).parity
    assert parity is not None
    assert parity.gradient_difference is not None
    assert parity.gradient_difference < 1e-6


def test_a_loss_gathers_with_its_team_and_with_nobody_where_one_device_runs_alone(two: Served) -> None:
    """As SyncBatchNorm and contrastive losses do; it waited for ranks that sleep, until the trial's limit."""
    found = complete(two.outcomes["communicates"])
    assert found.parity is None
    assert found.missing == UNLIKE
    assert found.phases
    assert found.pass_collectives == 1
    # and in its backward pass, over gloo, one of each rank
    assert complete(two.outcomes["gathers by nn"]).pass_collectives == 3
    assert complete(two.outcomes["gathers of several"]).pass_collectives == 1
    for inside in two.insides:  # under DDP both with the other rank, and in `local`, which sends nothing
        assert inside["teams"]["seen"] == [("bare", 1), ("ddp", 1), ("ddp", 2)]


def test_what_synchronized_layers_send_is_counted_though_alone_they_send_nothing(two: Served) -> None:
    """Forward and backward, of two micro-batches."""
    assert complete(two.outcomes["synchronized"]).pass_collectives == 2 * 2


def test_gradients_that_travel_are_counted(two: Served) -> None:
    outcomes, whole = two.outcomes, 4 * (16 * 32 + 32 + 32 * 4 + 4)
    assert sum(complete(outcomes["buckets_1"]).bucket_bytes) == whole
    assert complete(outcomes["buckets_1"]).gradient_bytes == whole
    assert len(complete(outcomes["buckets_1"]).bucket_bytes) == 1
    assert len(complete(outcomes["buckets_tiny"]).bucket_bytes) == 3  # a bias of 16 bytes goes with the next


def test_the_number_of_threads_is_the_settings(two: Served) -> None:
    threads = two.threads
    assert threads["threads"] == [2]
    assert threads["bf16"] == [1]  # back to what the worker has


TEAMS = {
    "0 1": ((0, 1), ALL),
    "1 3": ((1, 3), ALL),
    "1 3 again": ((1, 3), ALL),
    "0 1 2": ((0, 1, 2), ALL),
    "0 1 2 3": ((0, 1, 2, 3), ALL),
    "2": ((2,), ("plain",)),
    "2 beside another": ((2,), ("ddp", "anchor")),
    "1 2 3": ((1, 2, 3), ALL),
}


def test_teams_of_four_workers_one_after_the_other(four: Ranks) -> None:
    requests = {
        name: (_request(world_size=len(ranks), variants=variants, oversubscribed=True), ranks)
        for name, (ranks, variants) in TEAMS.items()
    }
    beside, ranks = requests["2 beside another"]
    anchor = {"role": "verification", "anchor": Setting(batch_size=16, num_threads=1)}
    requests["2 beside another"] = (beside.model_copy(update=anchor), ranks)
    failing = _request({"fault": "error", "ranks": [3], "after": 9, "wrapper": "ddp"}, variants=SHORT)
    asked = dict(list(requests.items())[:2]) | {"1 3 fails": (failing, (1, 3))}
    asked |= requests
    # a loss that gathers does so with nobody where one device runs alone, else with the team, not with all
    talks = _request({"gathers": "nn"}, world_size=2, variants=ALL, role="scaling", oversubscribed=True)
    asked["1 3 communicate"] = (talks, (1, 3))
    outcomes = _served(four, asked).outcomes
    failed = outcomes.pop("1 3 fails")  # rank 0, which answers, was no member
    assert (failed.state, failed.reason) == ("crashed", "rank 3: ValueError: planted on rank 3")
    assert complete(outcomes["1 3 communicate"]).missing == UNLIKE
    for name, (ranks, variants) in TEAMS.items():
        found = complete(outcomes[name])
        assert found.samples_per_step == 8 * len(ranks)
        for number, each in enumerate(found.rounds):
            assert {block.variant for block in each.blocks} == set(variants)
            for block in each.blocks:
                turn = (ranks[number % len(ranks)],)  # plain is on another rank in each round
                assert block.ranks == (turn if block.variant == "plain" else ranks)
                assert len(block.step_time_s) == len(block.ranks)
                assert block.slowest_s >= max(block.step_time_s) - 1e-9


# Float32, sums of up to 16 samples in another order: a few units in the last of 24 bits.
RELATIVE, ABSOLUTE = 1e-5, 1e-7


def _look_inside(request: StepsRequest, communicators: Communicators) -> dict[str, Any]:
    """On each rank: measure, then look at weights, storage, optimizer state and gradients."""
    team = communicators.team(BOTH, TIMEOUT_S)
    assert team is not None
    trial = StepsTrial(request, RankContext(team, CPU, GroupCache()))
    held = ExitStack()
    trial.run(lambda _: None, held, [])
    models = trial._models.measured
    assert models.wrapped is not None
    seen = _storage(models) | _equal_weights(models.wrapped, team) | _gradients(request, models, team)
    del models
    held.close()
    return seen


def _storage(models: StrategyModels) -> dict[str, Any]:
    steppers = [models.bare, models.wrapped, models.twin]
    pointers = [
        [tensor.data_ptr() for tensor in stepper.module.parameters()] for stepper in steppers if stepper
    ]
    buffers = [[tensor.data_ptr() for tensor in stepper.module.buffers()] for stepper in steppers if stepper]
    states = [
        [
            value.data_ptr()
            for values in stepper.optimizer.state.values()
            for value in values.values()
            if isinstance(value, torch.Tensor)
        ]
        for stepper in steppers
        if stepper
    ]
    objects = [
        {id(parameter) for parameter in stepper.module.parameters()} for stepper in steppers if stepper
    ]
    return {
        "parameters shared": pointers[0] == pointers[1] == pointers[2],
        "buffers shared": buffers[0] == buffers[1] == buffers[2],
        "state shared": states[0] == states[1] == states[2],
        "num_states": len(states[0]),
        "gradients apart": not (
            objects[0] & objects[1] or objects[1] & objects[2] or objects[0] & objects[2]
        ),
    }


def _equal_weights(wrapped: Stepper, team: Team) -> dict[str, Any]:
    """Made the same once, as before a block of ``ddp``, they stay so bit by bit."""
    team.broadcast(wrapped.tensors())
    before = torch.cat([tensor.detach().flatten().clone() for tensor in wrapped.module.parameters()])
    for _ in range(5):
        wrapped.step()
    after = torch.cat([tensor.detach().flatten() for tensor in wrapped.module.parameters()])
    every = [torch.empty_like(after) for _ in range(team.size)]
    dist.all_gather(every, after, group=team.data)
    return {
        "learnt": not torch.equal(before, after),
        "weights equal": all(torch.equal(each, after) for each in every),
    }


def _gradients(request: StepsRequest, models: StrategyModels, team: Team) -> dict[str, Any]:
    """Of DDP over the ranks' batches, and of one bare model over all of them at once."""
    assert models.wrapped is not None
    workload = build(request.config.workload, None)
    mine = models.wrapped.batches.next()
    every = [
        make_batches(workload, request.config, request.config.batch_size, rank, CPU).next()
        for rank in range(2)
    ]
    assert torch.equal(every[team.rank][0], mine[0])
    assert not torch.equal(every[0][0], every[1][0])
    alone = models.copies.sharing_storage()  # the same weights, no gradients yet
    whole = tuple(torch.cat([batch[part] for batch in every]) for part in range(2))
    workload.loss(alone, whole).backward()  # type: ignore[no-untyped-call]
    workload.loss(models.wrapped.module, mine).backward()  # type: ignore[no-untyped-call]
    pairs = zip(alone.parameters(), models.wrapped.module.parameters(), strict=True)
    gradients = [(one.grad, two.grad) for one, two in pairs]
    close = [
        one is not None and two is not None and torch.allclose(one, two, RELATIVE, ABSOLUTE)
        for one, two in gradients
    ]
    models.wrapped.optimizer.zero_grad()
    return {"gradients": close}


@pytest.mark.parametrize("name", list(INSIDES))
def test_all_steppers_train_one_model_and_train_it_rightly(name: str, two: Served) -> None:
    for inside in two.insides:
        found = dict(inside[name])
        assert found.pop("num_states") == INSIDES[name][1]
        assert all(found.pop("gradients"))
        assert all(found.values()), found
