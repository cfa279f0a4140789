"""When gradients are ready, and in which buckets DDP sends them: as it does on gloo ranks."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

from raybench.analysis.simulate.timeline import assign
from raybench.machine.host import allowed_cores
from raybench.records.requests import Configuration, StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec, MLPSpec, TextSpec, WorkloadSpec
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.agreement import Lazily, measured_undisturbed
from tests.ranks.ranks import Ranks
from tests.ranks.trials import complete, run_trials

pytestmark = pytest.mark.alone

FIXED_S, SAMPLE_S, BATCH, KIB = 0.002, 0.001, 2, (64, 700, 8, 900, 300, 2100)
LAYER_S = FIXED_S + BATCH * SAMPLE_S


WAITS = FactorySpec.model_validate(
    {"factory": "tests.support.waits:build", "kib": KIB, "layer_s": FIXED_S, "sample_s": SAMPLE_S}
)
LATE_S = 0.004  # a wait may end later than planted, which does not delay the next: 2.4 ms were seen
MLP = MLPSpec(name="mlp", input_dim=256, hidden_dim=512, output_dim=64, num_layers=4)
TEXT = TextSpec(name="text", vocab_size=4000, sequence_length=16)
CASES: dict[str, tuple[WorkloadSpec, Setting]] = {
    "waits": (WAITS, Setting(batch_size=BATCH)),
    "waits in pieces": (WAITS, Setting(batch_size=BATCH, bucket_cap_mb=1.0, gradient_accumulation=3)),
    "mlp": (MLP, Setting(batch_size=8)),
    "mlp in small buckets": (MLP, Setting(batch_size=8, bucket_cap_mb=0.5, gradient_as_bucket_view=True)),
    "text": (TEXT, Setting(batch_size=2, bucket_cap_mb=0.25)),
    "text, listed": (TEXT, Setting(batch_size=2, bucket_cap_mb="0.05/0.5/0.25")),
    "text, static": (TEXT, Setting(batch_size=2, bucket_cap_mb=1.0, static_graph=True)),
}
PLANTED = [name for name in CASES if name.startswith("waits")]


def trials(names: list[str]) -> dict[str, StepsResult]:
    """On each rank; the leader brings them."""
    torch.set_num_threads(1)
    communicators, cache = Communicators("gloo"), GroupCache()
    measure = MeasureSpec(steps=1, min_rounds=3, max_seconds=6, warmup_steps=2)
    requests = [
        StepsRequest(
            config=Configuration(world_size=2, workload=workload, optimizer=OptimizerSpec(), setting=setting),
            role="verification",  # without what is measured beside a curve
            variants=("local", "ddp", "replay"),
            measure=measure,
        )
        for workload, setting in (CASES[name] for name in names)
    ]
    found = run_trials(requests, communicators, cache)
    communicators.drop_team()
    if dist.get_rank():
        return {}
    return {name: complete(each) for name, each in zip(names, found, strict=True)}


@pytest.fixture(scope="module")
def results(pair: Ranks) -> dict[str, StepsResult]:
    """Of each case; those with planted waits are exact."""
    found: dict[str, StepsResult] = pair.call(trials, [name for name in CASES if name not in PLANTED])[0]

    def measure(name: str) -> StepsResult:
        return pair.call(trials, [name])[0][name]  # type: ignore[no-any-return]

    return Lazily(lambda name: measured_undisturbed(partial(measure, name), lambda each: each), found)


Results = dict[str, StepsResult]


@pytest.mark.parametrize("case", CASES)
def test_buckets_are_those_that_ddp_has_rebuilt(case: str, results: Results) -> None:
    result, setting = results[case], CASES[case][1]
    timeline = result.gradient_timeline
    assert timeline is not None, result.missing
    sizes = [
        sum(timeline.parameter_bytes[i] for i in each)
        for each in assign(timeline.parameter_bytes, setting.bucket_cap_mb)
    ]
    assert tuple(sizes) == result.bucket_bytes
    assert len(sizes) > 1


def test_moments_are_the_planted_ones(results: Results) -> None:
    """A layer's backward pass waits twice as long as its forward one."""
    timeline = results["waits"].gradient_timeline
    assert timeline is not None
    assert timeline.parameter_bytes == tuple(1024 * each for each in reversed(KIB))
    for place, ready_s in enumerate(timeline.ready_s, start=1):
        assert 0 <= ready_s - 2 * LAYER_S * place < LATE_S
    assert 0 <= timeline.before_s - LAYER_S * len(KIB) < LATE_S
    assert timeline.backward_s >= timeline.ready_s[-1]
    assert timeline.micro_batch_s is None
    assert timeline.communication_cores is not None
    assert 0 < timeline.communication_cores < 1.05 * len(allowed_cores())  # its threads have no more


def test_of_micro_batches_the_last_one_counts(results: Results) -> None:
    timeline, pass_s = results["waits in pieces"].gradient_timeline, LAYER_S * len(KIB)
    assert timeline is not None
    assert timeline.micro_batch_s is not None
    assert 0 <= timeline.micro_batch_s - 3 * pass_s < 2 * LATE_S
    assert 0 <= timeline.before_s - 7 * pass_s < 5 * LATE_S  # two micro-batches, and the last one's forward
    assert 0 <= timeline.ready_s[-1] - 2 * pass_s < LATE_S
