"""Small models, and ways between devices that are worse than they could be."""

from __future__ import annotations

import pytest

from raybench.analysis.findings.case import Around
from raybench.analysis.findings.communication import communication_bound, latency_share_of, unattributed_loss
from raybench.analysis.findings.finding import SLOW_WAYS, Finding, FindingName, Reason
from raybench.machine.environment import Environment
from raybench.records.record import TrialRecord
from raybench.report.finding_texts import evidence, next_step
from raybench.spec.knobs import Setting
from tests.support.alone import among, case_of
from tests.support.analysis import analyse
from tests.support.planted import QUIET, Noise, StepCosts
from tests.unit.studies import SHORT, measured, study


def transfers(record: TrialRecord, around: Around, device: str = "cpu") -> Finding:
    """The one finding on the record's transfers."""
    found = analyse(study(resources={"device": device}), [record], around=around).diagnosis
    (finding,) = (each for each in found if each.name is FindingName.COMMUNICATION_BOUND)
    return finding


def environment() -> Environment:
    return Environment(
        hostname="a", os="b", kernel="c", cpu_model="d", cores=8, usable_cores=8, memory_bytes=1, python="3",
    )  # fmt: skip


@pytest.mark.parametrize(("plain_s", "tokens"), [(0.004, None), (0.004, 256), (0.040, None)])
def test_too_little_compute_for_the_gradients_is_said_with_its_number(
    plain_s: float, tokens: int | None
) -> None:
    """8 MFLOP beside 40 kB of gradients: 200 for a byte, which takes half as long to compute as to send."""
    costs = StepCosts(plain_s=plain_s, exposed_s=0.006, replay_s=0.008, gradient_bytes=40_000)
    record = measured(costs, QUIET)
    assert record.steps is not None
    told = {"flops_per_step": 8e6, "tokens_per_step": tokens and tokens * record.steps.samples_per_step}
    finding = transfers(record.model_copy(update={"result": record.steps.model_copy(update=told)}), Around())
    if plain_s > costs.replay_s:
        assert "flops_per_byte" not in finding.values
        return
    assert finding.values["flops_per_byte"] == pytest.approx(200)
    assert finding.values["hiding_flops_per_byte"] == pytest.approx(400, rel=0.02)
    words = evidence(finding)
    assert "Each byte of gradient has 200 FLOP of compute, and 400 would hide it" in words
    assert ("sequences of 256 tokens" in words) is (tokens is not None)


@pytest.mark.parametrize("is_full", [False, True])
def test_where_memory_is_full_half_the_bytes_are_what_can_be_tried(is_full: bool) -> None:
    """25 MiB, which take no longer in 25 messages than in one: a matter of bytes."""
    costs = StepCosts(plain_s=0.010, exposed_s=0.02, replay_s=0.025, gradient_bytes=25 << 20)
    record = measured(costs, QUIET, device="cuda")
    assert record.steps is not None
    in_many = record.steps.model_copy(update={"bucket_bytes": (1 << 20,) * 25})
    other = record.model_copy(update={"trial_id": "other", "result": in_many})
    full = record.steps.model_copy(update={"memory_limit_bytes": record.steps.device_memory_bytes})
    if is_full:
        record = record.model_copy(update={"result": full})
    finding = among(record, other).finding(communication_bound)
    assert finding is not None
    assert finding.reason is Reason.BANDWIDTH
    # else a larger batch comes first
    assert finding.change == ({"gradient_compression": "bf16"} if is_full else None)


@pytest.mark.parametrize(
    ("networks", "devices", "named"),
    [
        (("Socket", "Socket"), ("mlx5_0",), "NCCL uses sockets instead of mlx5_0"),
        (("Socket", "Socket"), (), ""),  # there is nothing else
        (("IB/GDRDMA", "IB, IB/GDRDMA"), ("mlx5_0",), "NCCL sends over IB without GPUDirect"),
        (("IB/GDRDMA", "IB/GDRDMA"), ("mlx5_0",), ""),
        ((None, None), ("mlx5_0",), ""),
        ((), ("mlx5_0",), ""),  # an older record
    ],
)
def test_sockets_where_there_is_better_and_a_missing_gpudirect_are_named(
    networks: tuple[str | None, ...], devices: tuple[str, ...], named: str
) -> None:
    record = measured(StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006), QUIET, device="cuda")
    assert record.steps is not None
    told = record.steps.model_copy(update={"nccl_networks": networks})
    there = record.model_copy(update={"nodes": 2, "hostnames": ("a", "b"), "result": told})
    machine = environment().model_copy(update={"rdma_devices": devices})
    finding = transfers(there, Around(environment=machine), "cuda")
    assert (finding.reason in SLOW_WAYS) is bool(named)
    assert named in evidence(finding)
    assert finding.change is None or not named


def test_what_fsdp_sends_over_sockets_is_in_no_buckets() -> None:
    costs = StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006)
    record = measured(costs, QUIET, device="cuda", setting=Setting(strategy="fsdp"))
    assert record.steps is not None
    told = record.steps.model_copy(update={"nccl_networks": ("Socket", "Socket")})
    there = record.model_copy(update={"nodes": 2, "hostnames": ("a", "b"), "result": told})
    machine = environment().model_copy(update={"rdma_devices": ("mlx5_0",)})
    finding = transfers(there, Around(environment=machine), "cuda")
    assert finding.reason is Reason.SOCKETS
    assert "bucket" not in evidence(finding)


@pytest.mark.parametrize(("measured_mb", "asked"), [((), "1 and 25"), ((1,), "25"), ((1, 25), "")])
def test_no_bucket_size_is_to_be_measured_that_was(measured_mb: tuple[float, ...], asked: str) -> None:
    """40 MiB of gradients, of which the other sizes were measured in a search: without transfers alone."""
    costs = StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006, gradient_bytes=40 << 20)
    record = measured(costs, QUIET, setting=Setting(bucket_cap_mb=5))
    others = [
        measured(costs, QUIET, setting=Setting(bucket_cap_mb=each), variants=SHORT, role="search")
        for each in measured_mb
    ]
    assert record.steps is not None
    case = among(record, *others)
    finding = case.finding(communication_bound)
    assert finding is not None
    assert finding.reason is (Reason.ONE_BUCKET_SIZE if asked else Reason.UNSEPARATED)
    assert finding.named["sizes"] == asked
    assert next_step(finding)


def test_a_latency_is_never_below_0() -> None:
    """Two buckets take no longer than one, within the noise."""
    costs = StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006, gradient_bytes=2 << 20)
    one = measured(costs, Noise(block=0.05, step=0.0))
    assert one.steps is not None
    two = one.model_copy(
        update={
            "trial_id": "other",
            "result": one.steps.model_copy(update={"bucket_bytes": (1 << 20, 1 << 20)}),
        }
    )
    case = among(one, two)
    found = latency_share_of(case)
    assert found is not None
    assert found.low == 0.0
    assert found.value >= 0.0


def test_the_transfers_bound_a_loss_that_is_not_divided() -> None:
    record = measured(
        StepCosts(plain_s=0.010, exposed_s=0.005, replay_s=0.006),
        QUIET,
        variants=("plain", "ddp", "replay"),
    )
    assert record.steps is not None
    finding = case_of(record).finding(unattributed_loss)
    assert finding is not None
    assert finding.values["most_communication_s"] == pytest.approx(0.0055, rel=0.05)
    assert ", of which communication is " in evidence(finding)


@pytest.mark.parametrize(
    ("reshard", "reason", "change"),
    [(True, Reason.GATHERS_TWICE, {"fsdp_reshard": False}), (False, Reason.GATHERS, {"batch_size": 64})],
)
def test_what_fsdp_waits_for_is_its_gathers_which_it_need_not_repeat(
    reshard: bool, reason: Reason, change: dict[str, int]
) -> None:
    """A step of 10 ms, FSDP's own work of 2 and transfers of 6, of which a third gathers weights again."""
    costs = StepCosts(plain_s=0.010, wrapper_s=0.002, exposed_s=0.006, replay_s=0.006)
    record = measured(costs, QUIET, setting=Setting(strategy="fsdp", fsdp_reshard=reshard))
    assert record.steps is not None
    sharded = {"bucket_bytes": (), "gradient_bytes": None, "collective_bytes": (10 << 20,) * 3}
    record = record.model_copy(update={"result": record.steps.model_copy(update=sharded)})
    finding = transfers(record, Around())
    assert (finding.reason, finding.change) == (reason, change)
    assert "30.0 MiB of FSDP's gathers" in evidence(finding)
    if reshard:
        assert finding.predicted is not None
        assert 18 / 16 <= finding.predicted.high < 18 / 16 + 0.03  # the interval is in it
    found = analyse(study(), [record])
    assert found.waterfall is not None
    parts = found.waterfall.parts.present()
    assert parts["wrapper"].value == pytest.approx(0.002, rel=0.02)
    # two ranks: half of what is gathered comes over the link
    assert found.waterfall.bus_bandwidth_bytes_per_s is not None
    assert found.waterfall.bus_bandwidth_bytes_per_s.value == pytest.approx((15 << 20) / 0.006, rel=0.02)
    wrapper = next(each for each in found.diagnosis if each.name is FindingName.COSTLY_WRAPPER)
    assert wrapper.reason is Reason.SHARDS


@pytest.mark.parametrize(("collectives", "reason"), [(0, None), (4, Reason.PASSES)])
def test_passes_that_communicate_are_not_called_interference(collectives: int, reason: Reason | None) -> None:
    """4 ms are exposed, and DDP's own transfers take 1 ms alone."""
    record = measured(StepCosts(plain_s=0.010, exposed_s=0.004, replay_s=0.001), QUIET)
    assert record.steps is not None
    told = record.steps.model_copy(update={"pass_collectives": collectives})
    results = analyse(study(), [record.model_copy(update={"result": told})])
    found = {each.name: each for each in results.diagnosis}
    assert (FindingName.INTERFERENCE in found) is (collectives == 0)
    if reason:
        assert found[FindingName.COMMUNICATION_BOUND].reason is reason
        assert "4 collectives within its passes" in evidence(found[FindingName.COMMUNICATION_BOUND])
