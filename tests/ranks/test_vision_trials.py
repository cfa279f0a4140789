"""Real images through the real loader on two ranks: every way to read them, and every variant.

All of it runs in the same two processes: starting them costs more than most of what they are asked.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed as dist

from raybench.records.messages import Outcome
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import VisionSpec
from raybench.worker.batches import make_batches
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from raybench.workloads import build
from tests.ranks.ranks import Ranks
from tests.ranks.trials import ALL, CPU, SHORT, run_trials
from tests.unit import studies


def request_for(
    data: Path | None,
    variants: tuple[Variant, ...] = SHORT,
    setting: dict[str, Any] | None = None,
    **workload: Any,
) -> StepsRequest:
    """A small model on few images; three rounds of two steps."""
    fields = {"model": "shufflenet_v2_x0_5", "input": "real", "samples": 200} | workload
    return studies.request(
        role="scaling" if variants == ALL else "search",
        workload=VisionSpec(name="vision", **fields),
        optimizer=OptimizerSpec(),
        setting=Setting(**({"batch_size": 8} | (setting or {}))),
        world_size=2,
        variants=variants,
        measure=MeasureSpec(steps=2, warmup_steps=2, min_rounds=3, timeout_seconds=60),
        data=str(data) if data else None,
    )


def loaders() -> list[psutil.Process]:
    """The loader's processes: what the server of forks has forked."""
    servers = psutil.Process().children()
    return [child for server in servers for child in server.children()]


def rank_measures(*requests: StepsRequest) -> tuple[list[Outcome], int]:
    """Trials in a row in the same process; how many loader processes were left 5 s after."""
    communicators = Communicators("gloo")
    results = [
        result for request in requests for result in run_trials([request], communicators, GroupCache())
    ]
    deadline = time.monotonic() + 5
    while loaders() and time.monotonic() < deadline:
        time.sleep(0.05)
    communicators.drop_team()
    return results, len(loaders())


ONE_LOADER = {"workers": 1, "channels_last": True}
READ = (("cifar10", {}), ("cifar10", ONE_LOADER), ("fashion_mnist", ONE_LOADER))


@pytest.fixture(scope="module")
def two(pair: Ranks, data_dir: Path) -> dict[str, list[Any]]:
    """What each rank returned, by what it was asked."""
    workers = [{"workers": number} for number in (0, 1)]
    asked: dict[str, tuple[Any, list[StepsRequest]]] = {
        "read": (rank_measures, [request_for(data_dir, setting=s, data_set=name) for name, s in READ]),
        "normalised": (
            rank_measures,
            [request_for(data_dir, ALL, {"broadcast_buffers": switch}) for switch in (True, False)],
        ),
        "epochs": (rank_reads_an_epoch, [request_for(data_dir, samples=64, augment=False)]),
        "few": (
            rank_measures,
            [request_for(data_dir, setting={"batch_size": 64, **each}, samples=100) for each in workers],
        ),
    }
    by_rank = pair.call(rank_answers, list(asked.values()))
    return {name: [answers[place] for answers in by_rank] for place, name in enumerate(asked)}


def rank_answers(calls: list[tuple[Any, list[StepsRequest]]]) -> list[Any]:
    return [function(*requests) for function, requests in calls]


def test_real_images_are_measured_and_loaders_end(two):
    for results, left in two["read"]:
        assert [(result.state, result.reason) for result in results] == [("complete", None)] * 3
        assert left == 0
    for result in two["read"][0][0]:
        assert isinstance(result.result, StepsResult)
        assert len(result.result.rounds) == 3
        assert result.result.samples_per_step == 16
        assert result.result.epoch_samples == 200


def test_a_model_with_batch_normalisation_has_all_five_variants(two):
    results, _ = two["normalised"][0]
    for leader in results:
        assert (leader.state, leader.reason) == ("complete", None)
        assert isinstance(leader.result, StepsResult)
        assert leader.result.missing == {}
        for round_ in leader.result.rounds:
            assert {block.variant for block in round_.blocks} == set(ALL)
        means = [block.seconds for block in leader.result.phases]
        assert all(
            mean[phase] > 0 for mean in means for phase in ("data", "forward", "backward", "optimizer")
        )


def rank_reads_an_epoch(request: StepsRequest) -> list[list[float]]:
    """For each of two epochs, a number for each image that this rank has seen."""
    batches = make_batches(
        build(request.config.workload, request.config.data), request.config, 8, dist.get_rank(), CPU
    )
    share = request.config.workload.samples // 2  # type: ignore[union-attr]
    epochs = []
    for _ in range(2):
        read = [batches.next() for _ in range(share // 8)]
        assert all(images.shape == (8, 3, 32, 32) for images, _ in read)
        epochs.append([float(image.double().abs().sum()) for images, _ in read for image in images])
    return epochs


def test_no_image_is_in_two_shares_and_every_epoch_has_a_new_order(two):
    first, second = two["epochs"]
    for one, other in zip(first, second, strict=True):
        assert len(set(one)) == len(set(other)) == 32
        assert not set(one) & set(other)
    assert first[0] != first[1]


def test_fewer_images_than_a_batch_make_the_trial_invalid(two):
    for results, _ in two["few"]:
        for result in results:
            assert result.state == "invalid"
            assert result.reason == "batch 64: each of 2 ranks has 50 samples of the 100"
