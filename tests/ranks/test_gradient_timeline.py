"""When gradients are ready, and in which buckets DDP sends them: as it does on gloo ranks."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.distributed as dist

from raybench.analysis.whatif.buckets import BucketCap, assign, bucket_limits
from raybench.analysis.whatif.shared_cores import shared_cores, step_alone_s
from raybench.records.measurements import StepsResult
from raybench.records.requests import Configuration, StepsRequest
from raybench.spec import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec, MLPSpec, TextSpec, VisionSpec, WorkloadSpec
from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Communicators
from raybench.worker.steps.contention import LEAST_TURNS
from raybench.workloads import build
from tests.ranks.ranks import run_ranks, until_it_agrees
from tests.ranks.trials import complete, run_trials

FIXED_S, SAMPLE_S, BATCH, KIB = 0.003, 0.0015, 2, (64, 700, 8, 900, 300, 2100)
LAYER_S = FIXED_S + BATCH * SAMPLE_S
WAITS = FactorySpec.model_validate(
    {
        "factory": "raybench.testing.waits:build",
        "kib": list(KIB),
        "layer_s": FIXED_S,
        "sample_s": SAMPLE_S,
    }
)
MLP = MLPSpec(name="mlp", input_dim=256, hidden_dim=512, output_dim=64, num_layers=4)
TEXT = TextSpec(name="text", vocab_size=4000, sequence_length=16)
CAPS: tuple[BucketCap, ...] = ("default", 0.5, 1.0, 2.5, 25.0)
CASES: dict[str, tuple[WorkloadSpec, Setting]] = {
    "waits": (WAITS, Setting(batch_size=BATCH)),
    "waits in pieces": (WAITS, Setting(batch_size=BATCH, bucket_cap_mb=1.0, gradient_accumulation=3)),
    "mlp": (MLP, Setting(batch_size=8)),
    "mlp in small buckets": (MLP, Setting(batch_size=8, bucket_cap_mb=0.5, gradient_as_bucket_view=True)),
    "text": (TEXT, Setting(batch_size=2, bucket_cap_mb=0.25)),
    "text, static": (TEXT, Setting(batch_size=2, bucket_cap_mb=1.0, static_graph=True)),
}


def trials() -> list[StepsResult]:
    communicators, cache = Communicators("gloo"), GroupCache()
    measure = MeasureSpec(steps=1, min_rounds=3, max_seconds=6, warmup_steps=2)
    requests = [
        StepsRequest(
            config=Configuration(world_size=2, workload=workload, optimizer=OptimizerSpec(), setting=setting),
            role="verification",  # without what is measured beside a curve
            variants=("local", "synced", "replay"),
            measure=measure,
        )
        for workload, setting in CASES.values()
    ]
    found = run_trials(requests, communicators, cache)
    return [complete(each) for each in found] if dist.get_rank() == 0 else []


@cache
def results() -> dict[str, StepsResult]:
    """Of each case; measured once."""
    return dict(zip(CASES, run_ranks(trials, 2)[0], strict=True))


@pytest.mark.parametrize("case", CASES)
def test_buckets_are_those_that_ddp_has_rebuilt(case: str) -> None:
    result, setting = results()[case], CASES[case][1]
    timeline = result.gradient_timeline
    assert timeline is not None, result.missing
    sizes = [
        sum(timeline.parameter_bytes[i] for i in each)
        for each in assign(timeline.parameter_bytes, setting.bucket_cap_mb)
    ]
    assert tuple(sizes) == result.bucket_bytes
    assert len(sizes) > 1
    assert timeline.half_batch is not None
    assert timeline.half_batch.batch_size == setting.batch_size // 2


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize(
    "workload",
    [
        MLP,
        TEXT,
        VisionSpec(name="vision", model="resnet18"),
        VisionSpec(name="vision", model="mobilenet_v3_small"),
    ],
    ids=["mlp", "text", "resnet18", "mobilenet"],
)
def test_assignment_is_torch_s(workload: WorkloadSpec, cap: BucketCap) -> None:
    model = build(workload, None).model()
    parameters = [each for each in reversed(list(model.parameters())) if each.requires_grad]
    # as Reducer::rebuild_buckets calls it: in the order of readiness, which indices tell
    limits = list(bucket_limits(cap))
    indices = list(range(len(parameters)))
    theirs, _ = dist._compute_bucket_assignment_by_size(  # type: ignore[attr-defined]
        list[torch.Tensor](parameters), limits, [False] * len(parameters), indices
    )
    assert [list(each) for each in assign([each.nbytes for each in parameters], cap)] == theirs
    assert bucket_limits("default")[0] == torch.distributed._DEFAULT_FIRST_BUCKET_BYTES  # type: ignore[attr-defined]


def test_moments_are_the_planted_ones() -> None:
    def check() -> None:
        timeline = results()["waits"].gradient_timeline
        assert timeline is not None
        assert timeline.parameter_bytes == tuple(1024 * each for each in reversed(KIB))
        # a layer's backward pass waits twice as long as its forward one
        for place, ready_s in enumerate(timeline.ready_s, start=1):
            assert ready_s == pytest.approx(2 * LAYER_S * place, rel=0.25, abs=0.002)
        assert timeline.before_s == pytest.approx(LAYER_S * len(KIB), rel=0.25)
        assert timeline.backward_s >= timeline.ready_s[-1]
        assert timeline.micro_batch_s is None
        assert timeline.communication_cores is not None
        assert 0 < timeline.communication_cores < 4

    until_it_agrees(check, results.cache_clear)


def test_computing_and_transfers_side_by_side() -> None:
    def check() -> None:
        timeline = results()["mlp"].gradient_timeline
        assert timeline is not None
        measured = timeline.contention
        assert measured is not None
        assert len(measured.turns) >= LEAST_TURNS - 1
        assert shared_cores(measured) is not None
        # the same steps as those of the rounds, however busy the machine is
        step_s = timeline.before_s + timeline.backward_s + timeline.after_s
        assert 0.1 < step_alone_s(measured) / step_s < 10

    until_it_agrees(check, results.cache_clear)


def test_half_a_batch_takes_what_half_a_batch_takes() -> None:
    def check() -> None:
        timeline = results()["waits"].gradient_timeline
        assert timeline is not None
        assert timeline.half_batch is not None
        layer_s = FIXED_S + BATCH / 2 * SAMPLE_S
        assert timeline.half_batch.batch_size == BATCH // 2
        assert timeline.half_batch.before_s == pytest.approx(layer_s * len(KIB), rel=0.2)
        assert timeline.half_batch.ready_s == pytest.approx(2 * layer_s * len(KIB), rel=0.2)

    until_it_agrees(check, results.cache_clear)


def test_of_micro_batches_the_last_one_counts() -> None:
    def check() -> None:
        timeline = results()["waits in pieces"].gradient_timeline
        assert timeline is not None
        assert timeline.micro_batch_s == pytest.approx(3 * LAYER_S * len(KIB), rel=0.25)
        assert timeline.before_s == pytest.approx((2 * 3 + 1) * LAYER_S * len(KIB), rel=0.25)
        assert timeline.ready_s[-1] == pytest.approx(2 * LAYER_S * len(KIB), rel=0.25)

    until_it_agrees(check, results.cache_clear)
