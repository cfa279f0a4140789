"""Two ranks: on one GPU over gloo, which carries its tensors, and on two over NCCL where there are two."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from raybench.analysis.collectives import messages
from raybench.analysis.parity import parity_verdict
from raybench.records.messages import Outcome
from raybench.records.requests import CollectivesRequest, Place, TrialRequest
from raybench.records.results import TrainingResult
from raybench.spec.study import MeasureSpec
from raybench.spec.sweep import COLLECTIVES, SweepMeasureSpec
from tests.gpu import needs_gpus
from tests.gpu.trials import SHORT, TIMEOUT_S, fill, run_all, steps, train_and_resume
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import complete
from tests.support.planted import to_record

pytestmark = needs_gpus(1)
MIB = 2**20
HELD_MIB = 192  # for each sample of both

REQUESTS: dict[str, TrialRequest] = {
    "ddp": steps(2),
    "oom": steps(2, {"mib": 1024.0}, batch_size=4096, variants=SHORT),
    "ddp after oom": steps(2),
    "ddp images": steps(2, channels_last=True, gradient_as_bucket_view=True),
    "ddp fp16": steps(2, precision="fp16"),
    "ddp compressed": steps(2, gradient_compression="bf16"),
    "ddp accumulation": steps(2, gradient_accumulation=2),
    "ddp static graph": steps(2, static_graph=True),
    "ddp unused": steps(2, find_unused_parameters=True),
    "ddp compiled": steps(2, compile=True, role="search"),
    "ddp real": steps(2, {"input": "real"}, workers=2, pin_memory=True),
    "ddp waits": steps(2, {"waits": True}, SHORT),
    "ddp synchronized": steps(2, {"synchronized": True}),
}
OVER_NCCL: dict[str, TrialRequest] = {
    "dp": steps(2, strategy="dp", variants=SHORT),
    "fsdp": steps(2, strategy="fsdp"),
    "fsdp images": steps(2, strategy="fsdp", channels_last=True),
}
PROFILED: dict[str, TrialRequest] = {  # CUPTI stays in a process that has had it
    "ddp profiled": steps(2, role="search", variants=SHORT, measure=MeasureSpec(min_rounds=3, profile=True)),
}
# gradients that cannot be left out; losses that differ by design
MAY_MISS = {"ddp synchronized": {"parity"}}
Answers = list[dict[str, Outcome]]


@pytest.fixture(scope="module", params=["one GPU", "two GPUs"])
def two(request: pytest.FixtureRequest) -> tuple[bool, Answers]:
    """Whether the ranks share a GPU, and how each trial ended on each of them."""
    shared = request.param == "one GPU"
    if not shared and torch.cuda.device_count() < 2:
        pytest.skip("needs a GPU for each of 2 ranks")
    requests = REQUESTS | ({} if shared else OVER_NCCL) | PROFILED
    answers = [found for found, _ in run_ranks(run_all, 2, requests, shared, timeout_s=280)]
    for name, result in answers[0].items():
        print(name, result.state, result.reason)
    return shared, answers


@pytest.mark.parametrize("name", [name for name in {**REQUESTS, **OVER_NCCL} if name != "oom"])
def test_a_strategy_is_measured_and_trains_what_one_device_trains(name, two):
    shared, answers = two
    if shared and name in OVER_NCCL:
        pytest.skip("over NCCL only")
    request, found = (REQUESTS | OVER_NCCL)[name], complete(answers[0][name])
    assert request.kind == "steps"
    for each in found.rounds:
        assert {block.variant for block in each.blocks} == set(request.variants) - set(found.missing)
    assert set(found.missing) <= MAY_MISS.get(name, set()), found.missing
    if request.role == "scaling" and name not in ("dp", "ddp synchronized"):
        parity = parity_verdict(to_record(request, Outcome("complete", 1.0, result=found)))
        assert parity is not None
        assert parity.agrees, parity


def test_synchronized_layers_send_where_they_wait_and_torchs_own_lines_are_nobodys(two):
    found = complete(two[1][0]["ddp synchronized"])
    assert found.pass_collectives == 2
    assert not [line for line in found.host_waits or () if line.startswith("_functions.py")]


def test_clocks_temperatures_and_lines_that_wait_are_those_of_the_gpu(two):
    plain, waits = (complete(two[1][0][name]) for name in ("ddp", "ddp waits"))
    files = [[line.split(":")[0] for line in found.host_waits or ()] for found in (plain, waits)]
    assert ["workloads.py" in each for each in files] == [False, True], files
    blocks = [block for each in plain.rounds for block in each.blocks]
    clocks = [block.clock_mhz for block in blocks if block.variant in ("plain", "concurrent")]
    if None in clocks[0]:
        pytest.skip("NVML tells no clock here")
    assert all(100 < clock < 5000 for of_block in clocks for clock in of_block)
    temperatures = [each for round_ in plain.rounds for each in round_.temperature_c]
    assert all(each is not None and 10 < each < 110 for each in temperatures)


def test_memory_that_ran_out_on_both_is_agreed(two):
    shared, answers = two
    assert [answer["oom"].state for answer in answers] == ["oom", "oom"]
    assert not any(answer["oom"].broken for answer in answers)
    before, after = (complete(answers[0][name]).device_memory_bytes for name in ("ddp", "ddp after oom"))
    assert before is not None
    assert after is not None
    # of a shared GPU each rank sees what the other has at the moment
    assert after == pytest.approx(before, abs=(1024 if shared else 256) * MIB)


def test_a_trace_has_kernels_and_transfers(two):
    outcome = two[1][0]["ddp profiled"]
    assert complete(outcome).missing == {}
    assert len(outcome.files) == 2
    for file in outcome.files:
        events = json.loads(gzip.decompress(file.content))["traceEvents"]
        kernels = [each["name"] for each in events if each.get("cat") == "kernel"]
        assert kernels
        assert two[0] or any(name.startswith("nccl") for name in kernels)  # gloo's are no kernels


@pytest.mark.parametrize("shared", [True, False], ids=["one GPU", "two GPUs"])
def test_the_largest_batch_leaves_every_variant_its_memory(shared: bool) -> None:
    """At 90% of the memory: twin, replay and anchor are had or missing, and no round runs out of it."""
    if not shared and torch.cuda.device_count() < 2:
        pytest.skip("needs a GPU for each of 2 ranks")
    (batch, full, after), _ = run_ranks(fill, 2, float(HELD_MIB), shared, timeout_s=280)
    print(batch, full.state, full.reason)
    assert batch is not None
    assert {"plain", "ddp"} <= {block.variant for block in complete(full).rounds[0].blocks}
    assert set(complete(full).missing) <= {"local", "replay", "anchor"}
    assert complete(after).missing == {}


def test_a_training_goes_on_from_its_checkpoint_as_if_it_had_not_ended(tmp_path: Path) -> None:
    (whole, broken, resumed), _ = run_ranks(train_and_resume, 2, tmp_path, timeout_s=200)
    assert broken.state == "crashed"
    results: list[Any] = [whole.result, resumed.result]
    assert all(isinstance(each, TrainingResult) for each in results), (whole.reason, resumed.reason)
    assert results[1].resumed_after == 2
    first, second = ([(each.train_loss, each.test_loss) for each in one.epochs] for one in results)
    assert first == [pytest.approx(each, rel=1e-9) for each in second]


def test_messages_over_nccl_are_right_and_timed():
    """Torch's NCCL has all four collectives: none is missing, and every link carries something."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs a GPU for each of 2 ranks")
    request = CollectivesRequest(
        config=Place(world_size=2, device="cuda"),
        collectives=COLLECTIVES,
        message_bytes=(1024, 64 * MIB),
        measure=SweepMeasureSpec(min_rounds=4, max_seconds=20.0, timeout_seconds=TIMEOUT_S),
    )
    (found, _) = run_ranks(run_all, 2, {"messages": request}, False, timeout_s=200)[0]
    outcome = Outcome(found["messages"].state, 1.0, found["messages"].reason, found["messages"].result)
    record = to_record(request, outcome)
    assert record.collectives is not None, record.reason
    assert record.collectives.backend == "nccl"
    large = [each for each in messages([record]) if each.message_bytes == 64 * MIB]
    assert len(large) == len(COLLECTIVES)
    assert all(each.bus_bandwidth_bytes_per_s.value > 1e7 for each in large)
