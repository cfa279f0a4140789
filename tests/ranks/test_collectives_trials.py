"""Sweeps of collectives on real gloo ranks: consistent records, planted truths, what cannot be measured."""

from __future__ import annotations

from functools import cache
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from raybench.analysis.collectives.link import LinkKey, link
from raybench.analysis.collectives.messages import bus_factor, messages
from raybench.machine import memory
from raybench.machine.cores import allowed_cores
from raybench.records.collectives import CollectivesResult
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import CollectivesRequest, Place
from raybench.spec.sweep import COLLECTIVES, SweepMeasureSpec
from raybench.testing import to_record
from raybench.worker.cache import GroupCache
from raybench.worker.collectives import operations
from raybench.worker.communicators import Communicators
from raybench.worker.devices.cpu import CPUDevice
from tests.ranks.gpu_like import LateMoment, LateWork
from tests.ranks.ranks import run_ranks, until_it_agrees
from tests.ranks.trials import serve_trial

KIB, MIB = 2**10, 2**20
ROUNDS = 3
PLANTED_LATENCY_S, PLANTED_BYTES_PER_S = 0.02, 2e7
PLANTED_SIZES = (KIB, 256 * KIB, MIB)
LATE_S = 0.01


def _request(world_size: int = 2, max_seconds: float = 20.0, **fields: Any) -> CollectivesRequest:
    measure = SweepMeasureSpec(min_rounds=ROUNDS, max_seconds=max_seconds, timeout_seconds=60.0)
    given = {"collectives": COLLECTIVES, "message_bytes": (KIB, 64 * KIB, 4 * MIB)} | fields
    return CollectivesRequest(
        config=Place(world_size=world_size), measure=measure, left_s=max_seconds, **given
    )


REQUESTS = {
    "whole": _request(),
    "further part": _request(part=1, message_bytes=(KIB,)),
    "planted": _request(collectives=("all_reduce",), message_bytes=PLANTED_SIZES),
    "wrong": _request(collectives=("all_gather", "broadcast"), message_bytes=(KIB,)),
    "unsupported": _request(collectives=("reduce_scatter", "broadcast"), message_bytes=(KIB, 64 * KIB)),
    "memory": _request(collectives=("broadcast",), message_bytes=(KIB, 64 * MIB)),
    "time": _request(max_seconds=0.05, collectives=("all_reduce",), message_bytes=(KIB, 64 * KIB)),
    "fails": _request(collectives=("reduce_scatter",), message_bytes=(KIB,)),
    "after it": _request(collectives=("reduce_scatter",), message_bytes=(KIB,)),
}


def _plant(name: str) -> None:
    """On this rank, until the trial is over."""
    real_all_reduce = dist.all_reduce

    def slow(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if dist.get_rank() == 1 and tensor.dtype == torch.float32:
            sleep(PLANTED_LATENCY_S + tensor.nbytes / PLANTED_BYTES_PER_S)
        return real_all_reduce(tensor, *arguments, **named)

    def wrong(whole: torch.Tensor, share: torch.Tensor, group: Any) -> None:
        whole.fill_(1.0)

    def unsupported(*_: Any, **__: Any) -> None:
        raise RuntimeError("Backend nosuch does not support reduce_scatter")

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("planted")

    if name == "planted":
        vars(dist)["all_reduce"] = slow
    elif name == "wrong":
        vars(operations)["_all_gather"] = wrong
    elif name == "unsupported":
        vars(operations)["_reduce_scatter"] = unsupported
    elif name == "memory":
        memory.available_memory_bytes = lambda: 256 * MIB
    elif name == "fails" and dist.get_rank() == 1:
        vars(operations)["_reduce_scatter"] = fails


def _serve(names: list[str], requests: list[CollectivesRequest]) -> list[Outcome]:
    """On each rank: trial after trial, each with what is planted in it; rank 0 brings the outcomes."""
    torch.set_num_threads(1)
    communicators, outcomes = Communicators("gloo"), list[Outcome]()
    before = (
        dist.all_reduce,
        operations._all_gather,
        operations._reduce_scatter,
        memory.available_memory_bytes,
    )
    for name, request in zip(names, requests, strict=True):
        _plant(name)
        ranks = tuple(range(request.config.world_size))
        outcomes += serve_trial(request, ranks, communicators, GroupCache())
        vars(dist)["all_reduce"], vars(operations)["_all_gather"] = before[:2]
        vars(operations)["_reduce_scatter"], memory.available_memory_bytes = before[2:]
    communicators.drop_team()
    return outcomes


class LateDevice(CPUDevice):
    """Does its work later than it is given, as a GPU does."""

    def __init__(self) -> None:
        super().__init__()
        self.work = LateWork()

    def synchronize(self) -> None:
        LateMoment(self.work).wait()

    def stopwatch(self) -> Any:
        return LateMarks(self.work)


class LateMarks:
    def __init__(self, work: LateWork) -> None:
        self._work, self._marks = work, list[LateMoment]()

    def start(self) -> None:
        self._marks = []
        self.lap()

    def lap(self) -> None:
        self._marks.append(LateMoment(self._work))

    def read(self) -> NDArray[np.float64]:
        self._marks[-1].wait()
        return np.diff([mark.at for mark in self._marks])


def _serve_late(request: CollectivesRequest) -> list[Outcome]:
    """On each rank: every all-reduce is given at once, and takes the device ``LATE_S``."""
    torch.set_num_threads(1)
    communicators, device, real_all_reduce = Communicators("gloo"), LateDevice(), dist.all_reduce

    def late(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        if tensor.dtype == torch.float32:
            device.work.give(LATE_S)
        return real_all_reduce(tensor, *arguments, **named)

    vars(dist)["all_reduce"] = late
    outcomes = serve_trial(request, (0, 1), communicators, GroupCache(), device=device)
    communicators.drop_team()
    return outcomes


def served(names: list[str], requests: list[CollectivesRequest], world_size: int = 2) -> dict[str, Outcome]:
    return dict(zip(names, run_ranks(_serve, world_size, names, requests)[0], strict=True))


@cache
def outcomes() -> dict[str, Outcome]:
    return served(list(REQUESTS), list(REQUESTS.values()))


def result(outcome: Outcome) -> CollectivesResult:
    assert outcome.state == "complete", outcome.reason
    assert isinstance(outcome.result, CollectivesResult)
    return outcome.result


def record(name: str) -> TrialRecord:
    return to_record(REQUESTS[name], outcomes()[name])


def again(name: str) -> dict[str, TrialRecord]:
    """Measured in fresh ranks."""
    return {name: to_record(REQUESTS[name], served([name], [REQUESTS[name]])[name])}


def told(name: str) -> list[tuple[str, int | None, str]]:
    return [(each.collective, each.message_bytes, each.why) for each in result(outcomes()[name]).missing]


def test_every_message_is_in_every_round_in_an_order_of_its_own() -> None:
    found = result(outcomes()["whole"])
    assert (found.backend, found.stopped_by, len(found.rounds)) == ("gloo", "steps", ROUNDS)
    assert found.missing == ()
    orders = [[(block.collective, block.message_bytes) for block in each.blocks] for each in found.rounds]
    wanted = {(name, size) for name in COLLECTIVES for size in REQUESTS["whole"].message_bytes}
    assert all(set(order) == wanted and len(order) == len(wanted) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    for block in (block for each in found.rounds for block in each.blocks):
        assert len(block.time_s) == 2
        assert min(block.time_s) > 0
        assert 1 <= block.num_operations <= 1000
        assert block.busy_cores is not None
        assert all(0 < busy < 1.1 * len(allowed_cores()) for busy in block.busy_cores)
        assert block.host_busy is not None
        assert len(block.host_busy) == 2
    assert found.hosts == (0, 0)
    assert found.host_cores == (len(allowed_cores()),) * 2
    assert TrialRecord.from_json(record("whole").model_dump(mode="json")) == record("whole")


def test_bandwidths_are_consistent_and_time_grows_with_the_message() -> None:
    found = {"whole": record("whole")}

    def check() -> None:
        swept = messages([found["whole"]])
        assert len(swept) == 12
        for each in swept:
            assert each.place.backend == "gloo"
            algorithm = each.algorithm_bandwidth_bytes_per_s
            assert algorithm.value == pytest.approx(each.message_bytes / each.time_s.value)
            assert each.bus_bandwidth_bytes_per_s.value == pytest.approx(
                algorithm.value * bus_factor(each.collective, 2)
            )
        for collective in COLLECTIVES:
            times = [each.time_s.value for each in swept if each.collective == collective]
            assert times[-1] > times[0], collective  # 4 MiB and 1 KiB

    until_it_agrees(check, lambda: found.update(again("whole")))


def test_a_planted_latency_and_rate_are_found_again() -> None:
    found = {"planted": record("planted")}

    def check() -> None:
        line = link([found["planted"]])[LinkKey("all_reduce", 2, None)]
        assert line.latency_s is not None
        assert line.latency_s.value == pytest.approx(PLANTED_LATENCY_S, rel=0.15)
        assert line.algorithm_bandwidth_bytes_per_s is not None
        assert line.algorithm_bandwidth_bytes_per_s.value == pytest.approx(PLANTED_BYTES_PER_S, rel=0.15)

    until_it_agrees(check, lambda: found.update(again("planted")))


def test_the_device_decides_when_a_message_is_done() -> None:
    request = _request(collectives=("all_reduce",), message_bytes=(KIB, 64 * KIB))
    found = list[CollectivesResult]()

    def measure() -> None:
        found[:] = [result(run_ranks(_serve_late, 2, request)[0][0])]

    def check() -> None:
        for each in found[0].rounds:
            for block in each.blocks:
                assert block.slowest_s == pytest.approx(LATE_S, rel=0.05)

    measure()
    until_it_agrees(check, measure)


def test_a_further_part_is_measured_as_the_first() -> None:
    assert len(result(outcomes()["further part"]).rounds) == ROUNDS


def test_a_collective_with_a_wrong_result_is_not_timed() -> None:
    assert told("wrong") == [("all_gather", KIB, "wrong")]
    (missing,) = result(outcomes()["wrong"]).missing
    assert "rank 0: of rank numbers it makes 1 to 1 in the place of 2" in missing.reason
    timed = {block.collective for block in result(outcomes()["wrong"]).rounds[0].blocks}
    assert timed == {"broadcast"}


def test_what_the_backend_does_not_have_is_said() -> None:
    assert told("unsupported") == [("reduce_scatter", None, "unsupported")]
    timed = {
        (block.collective, block.message_bytes)
        for block in result(outcomes()["unsupported"]).rounds[0].blocks
    }
    assert timed == {("broadcast", KIB), ("broadcast", 64 * KIB)}


def test_a_message_without_memory_is_left_out_alone() -> None:
    assert told("memory") == [("broadcast", 64 * MIB, "oom")]
    (missing,) = result(outcomes()["memory"]).missing
    assert "0.188 GiB wanted, 0.125 GiB left" in missing.reason
    assert [block.message_bytes for block in result(outcomes()["memory"]).rounds[0].blocks] == [KIB]


def test_a_message_without_time_is_left_out_alone() -> None:
    assert told("time") == [("all_reduce", 64 * KIB, "time")]


def test_a_failure_on_one_rank_costs_the_trial_only() -> None:
    assert outcomes()["fails"].state == "crashed"
    assert "rank 1: ValueError: planted" in str(outcomes()["fails"].reason)
    assert len(result(outcomes()["after it"]).rounds) == ROUNDS


def test_three_ranks_share_messages_evenly() -> None:
    request = _request(world_size=3, message_bytes=(8, KIB))
    found = result(served(["three"], [request], world_size=3)["three"])
    assert {each.why for each in found.missing} == {"uneven"}
    assert [each.message_bytes for each in found.missing] == [8] * 4
    assert {block.message_bytes for each in found.rounds for block in each.blocks} == {1020}
    assert all(len(block.time_s) == 3 for each in found.rounds for block in each.blocks)
