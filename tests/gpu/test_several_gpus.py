"""Trials on several GPUs: DDP over NCCL with every variant, DataParallel, FSDP, a failure between them."""

from __future__ import annotations

import pytest

from raybench.analysis.collectives import messages
from raybench.analysis.strategies import loss_parity
from raybench.records.messages import Outcome
from raybench.records.requests import CollectivesRequest, Place, TrialRequest
from raybench.spec.sweep import COLLECTIVES, SweepMeasureSpec
from tests.gpu import needs_gpus
from tests.gpu.trials import SHORT, run_all, steps
from tests.ranks.ranks import run_ranks
from tests.ranks.trials import complete
from tests.support.planted import to_record

pytestmark = needs_gpus(2)
MIB = 2**20

REQUESTS: dict[str, TrialRequest] = {
    "ddp": steps(2),
    "oom": steps(2, {"mib": 1024.0}, batch_size=4096, variants=SHORT),
    "ddp after oom": steps(2),
    "ddp images": steps(2, channels_last=True, variants=SHORT),
    "dp": steps(2, strategy="dp", variants=SHORT),
    "dp wide": steps(2, {"channels": 2048}, SHORT, "search", strategy="dp", batch_size=2),
    "ddp wide": steps(2, {"channels": 2048}, SHORT, "search", batch_size=2),
    "fsdp": steps(2, strategy="fsdp", variants=SHORT),
    "fsdp images": steps(2, strategy="fsdp", channels_last=True, variants=SHORT),
    "one": steps(1),
    "ddp again": steps(2, role="search", variants=SHORT),
}


@pytest.fixture(scope="module")
def two() -> list[dict[str, Outcome]]:
    answers = [found for found, _ in run_ranks(run_all, 2, REQUESTS, timeout_s=400)]
    for name, result in answers[0].items():
        print(name, result.state, result.reason)
    return answers


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "oom"])
def test_a_strategy_is_measured_and_trains_what_one_device_trains(name, two):
    request, found = REQUESTS[name], complete(two[0][name])
    assert request.kind == "steps"
    for each in found.rounds:
        assert {block.variant for block in each.blocks} == set(request.variants)
    if request.role == "scaling" and request.config.world_size == 2:
        outcome = Outcome("complete", 1.0, result=found)
        parity = loss_parity(to_record(request, outcome))
        assert parity is not None, found.missing
        assert parity.agrees, parity


def test_memory_that_ran_out_on_both_is_agreed(two):
    assert [answer["oom"].state for answer in two] == ["oom", "oom"]
    assert not any(answer["oom"].broken for answer in two)
    before, after = (complete(two[0][name]).device_memory_bytes for name in ("ddp", "ddp after oom"))
    assert before is not None
    assert after is not None
    assert after == pytest.approx(before, abs=256 * MIB)


def test_dataparallel_takes_no_second_state_on_its_first_device(two):
    """Of 37.8 Mi weights in 4 bytes. DDP: weights, gradients, buckets, Adam's two moments; dp: no buckets,
    but gradients of a copy on each device.
    """
    ddp, dp = (complete(two[0][name]).peak_memory_bytes for name in ("ddp wide", "dp wide"))
    assert ddp is not None
    assert dp is not None
    assert dp[0] < ddp[0] + 64 * MIB


def test_energy_of_two_devices_is_more_than_that_of_one(two):
    found = complete(two[0]["ddp"])
    if found.energy_joules is None:
        pytest.skip("NVML tells no energy here")
    assert found.plain_energy_joules is not None
    assert found.energy_joules > found.plain_energy_joules


def test_messages_over_nccl_are_right_and_timed():
    """Torch's NCCL has all four collectives: none is missing, and every link carries something."""
    request = CollectivesRequest(
        config=Place(world_size=2, device="cuda"),
        collectives=COLLECTIVES,
        message_bytes=(1024, 64 * MIB),
        measure=SweepMeasureSpec(min_rounds=4),
        left_s=20.0,
    )
    (found, _) = run_ranks(run_all, 2, {"messages": request}, timeout_s=200)[0]
    outcome = Outcome(found["messages"].state, 1.0, found["messages"].reason, found["messages"].result)
    record = to_record(request, outcome)
    assert record.collectives is not None, record.reason
    assert record.collectives.backend == "nccl"
    assert record.collectives.missing == ()
    large = [each for each in messages([record]) if each.message_bytes == 64 * MIB]
    assert len(large) == len(COLLECTIVES)
    assert all(each.bus_bandwidth_bytes_per_s.value > 1e7 for each in large)
