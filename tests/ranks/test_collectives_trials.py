"""Sweeps of collectives on real gloo ranks: consistent records, planted truths, what cannot be measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from raybench.analysis.collectives import bus_factor, links, messages
from raybench.machine import host
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import CollectivesRequest, Place
from raybench.records.results import CollectivesResult
from raybench.spec.sweep import COLLECTIVES, SweepMeasureSpec
from raybench.worker import collectives_trial
from raybench.worker.communicators import Communicators
from raybench.worker.devices.device import Device
from raybench.worker.group_cache import GroupCache
from tests.ranks.ranks import Ranks
from tests.ranks.trials import CPU, serve_trial
from tests.support.planted import to_record

KIB, MIB = 2**10, 2**20
ROUNDS = 3
PLANTED_LATENCY_S, PLANTED_BYTES_PER_S = 0.02, 2e7
PLANTED_SIZES = (KIB, 256 * KIB, MIB)


def _request(world_size: int = 2, **fields: Any) -> CollectivesRequest:
    measure = SweepMeasureSpec(max_seconds=1e-9, timeout_seconds=60.0)  # so: the fewest rounds
    given = {"collectives": COLLECTIVES, "message_bytes": (KIB, 64 * KIB, 4 * MIB)} | fields
    return CollectivesRequest(config=Place(world_size=world_size), measure=measure, **given)


REQUESTS = {
    "whole": _request(),
    "planted": _request(collectives=("all_reduce",), message_bytes=PLANTED_SIZES),
    "memory": _request(collectives=("broadcast",), message_bytes=(KIB, 64 * MIB)),
    "fails": _request(collectives=("reduce_scatter",), message_bytes=(KIB,)),
    "after it": _request(collectives=("reduce_scatter",), message_bytes=(KIB,)),
}


class PlannedDevice(Device):
    """One on which time passes only where it is planted: nothing here depends on a real clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def stopwatch(self) -> Any:
        return PlannedStopwatch(self)


class PlannedStopwatch:
    def __init__(self, device: PlannedDevice) -> None:
        self._device, self._marks = device, list[float]()

    def start(self) -> None:
        self._marks = [self._device.now_s]

    def lap(self) -> None:
        self._marks.append(self._device.now_s)

    def read(self) -> NDArray[np.float64]:
        return np.diff(self._marks)


def _plant(name: str, patch: pytest.MonkeyPatch) -> Device:
    """On this rank; returns the device that the trial is on."""
    real_all_reduce, device = dist.all_reduce, PlannedDevice()

    def slow(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if tensor.dtype == torch.float32:  # the second rank's is the slowest
            seconds = PLANTED_LATENCY_S + tensor.nbytes / PLANTED_BYTES_PER_S
            device.now_s += seconds if dist.get_rank() == 1 else seconds / 2
        return real_all_reduce(tensor, *arguments, **named)

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("planted")

    if name == "planted":
        patch.setattr(dist, "all_reduce", slow)
        return device
    if name == "memory":
        patch.setattr(host, "available_memory_bytes", lambda: 256 * MIB)
    elif name == "fails" and dist.get_rank() == 1:
        patch.setattr(collectives_trial, "_reduce_scatter", fails)
    return CPU


def _serve(names: list[str], requests: list[CollectivesRequest]) -> list[Outcome]:
    """On each rank: trial after trial, each with what is planted in it; rank 0 brings the outcomes."""
    torch.set_num_threads(1)
    communicators, outcomes = Communicators("gloo"), list[Outcome]()
    for name, request in zip(names, requests, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            device = _plant(name, patch)
            ranks = tuple(range(request.config.world_size))
            outcomes += serve_trial(request, ranks, communicators, GroupCache(), device=device)
    communicators.drop_team()
    return outcomes


@pytest.fixture(scope="module")
def outcomes(pair: Ranks) -> dict[str, Outcome]:
    return dict(zip(REQUESTS, pair.call(_serve, list(REQUESTS), list(REQUESTS.values()))[0], strict=True))


def result(outcome: Outcome) -> CollectivesResult:
    assert outcome.state == "complete", outcome.reason
    assert isinstance(outcome.result, CollectivesResult)
    return outcome.result


Outcomes = dict[str, Outcome]


def test_every_message_is_in_every_round_in_an_order_of_its_own(outcomes: Outcomes) -> None:
    found = result(outcomes["whole"])
    assert (found.backend, len(found.rounds)) == ("gloo", ROUNDS)
    orders = [[(block.collective, block.message_bytes) for block in each.blocks] for each in found.rounds]
    wanted = {(name, size) for name in COLLECTIVES for size in REQUESTS["whole"].message_bytes}
    assert all(set(order) == wanted and len(order) == len(wanted) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    for block in (block for each in found.rounds for block in each.blocks):
        assert len(block.time_s) == 2
        assert min(block.time_s) > 0
        assert 1 <= block.num_operations <= 1000
    record = to_record(REQUESTS["whole"], outcomes["whole"])
    assert TrialRecord.model_validate(record.model_dump(mode="json")) == record


def test_bandwidths_are_consistent_and_time_grows_with_the_message(outcomes: Outcomes) -> None:
    swept = messages([to_record(REQUESTS["whole"], outcomes["whole"])])
    assert len(swept) == 12
    for each in swept:
        assert each.place.backend == "gloo"
        algorithm = each.algorithm_bandwidth_bytes_per_s
        assert algorithm.value == pytest.approx(each.message_bytes / each.time_s.value)
        assert each.bus_bandwidth_bytes_per_s.value == pytest.approx(
            algorithm.value * bus_factor(each.collective, 2)
        )
    blocks = [block for each in result(outcomes["whole"]).rounds for block in each.blocks]
    for collective in COLLECTIVES:
        small, large = (
            [each.slowest_s for each in blocks if (each.collective, each.message_bytes) == (collective, size)]
            for size in (KIB, 4 * MIB)
        )
        assert min(large) > min(small), collective  # 4,096 times as much, at a busy machine's best


def test_the_devices_clock_and_the_slowest_rank_decide(outcomes: Outcomes) -> None:
    for each in result(outcomes["planted"]).rounds:
        for block in each.blocks:
            seconds = PLANTED_LATENCY_S + block.message_bytes / PLANTED_BYTES_PER_S
            assert block.time_s == (pytest.approx(seconds / 2), pytest.approx(seconds))
            assert block.slowest_s == pytest.approx(seconds)


def test_a_planted_latency_and_rate_are_found_again(outcomes: Outcomes) -> None:
    record = to_record(REQUESTS["planted"], outcomes["planted"])
    line = next(each for each in links(messages([record])) if each.collective == "all_reduce")
    assert line.latency_s is not None
    assert line.latency_s.value == pytest.approx(PLANTED_LATENCY_S)
    assert line.algorithm_bandwidth_bytes_per_s is not None
    assert line.algorithm_bandwidth_bytes_per_s.value == pytest.approx(PLANTED_BYTES_PER_S)


def test_without_memory_smaller_sizes_are_proposed(outcomes: Outcomes) -> None:
    assert outcomes["memory"].state == "oom"
    reason = str(outcomes["memory"].reason)
    assert "give smaller --sizes (192.0 MiB wanted, 128.0 MiB left for this rank)" in reason


def test_a_failure_on_one_rank_costs_the_trial_only(outcomes: Outcomes) -> None:
    assert outcomes["fails"].state == "crashed"
    assert "rank 1: ValueError: planted" in str(outcomes["fails"].reason)
    assert len(result(outcomes["after it"]).rounds) == ROUNDS


def test_three_ranks_share_messages_evenly(four: Ranks) -> None:
    request = _request(world_size=3, message_bytes=(8, KIB))
    found = result(four.call(_serve, ["three"], [request])[0][0])
    assert {block.message_bytes for each in found.rounds for block in each.blocks} == {12, 1020}
    assert all(len(block.time_s) == 3 for each in found.rounds for block in each.blocks)
