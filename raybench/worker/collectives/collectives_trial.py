"""A part of a sweep of collectives on one rank: buffers, warm-up with a check of every result, rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

import torch.distributed as dist

from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.errors import InvalidTrialError
from raybench.machine.host import allowed_cores, host_id, numbered
from raybench.records.messages import OnProgress, Outcome, Progress
from raybench.records.requests import CollectivesRequest
from raybench.records.results import CollectivesResult, MessageBlock, MessageRound, StopReason
from raybench.worker.collectives.cases import Case, Preparation
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, Stopwatch
from raybench.worker.memory import all_known
from raybench.worker.steps.meters import CoreMeter


class CollectivesTrial:
    """Everything that one rank holds while it measures messages."""

    def __init__(self, request: CollectivesRequest, team: Team, device: Device) -> None:
        self._request, self._team, self._device = request, team, device
        self._ready: list[Case] = []

    def run(self, on_progress: OnProgress) -> Outcome:
        """The times of all messages, on the leader."""
        began, request = perf_counter(), self._request
        on_progress(Progress("set up"))
        preparation = Preparation(
            request, self._team, self._device, lambda words: on_progress(Progress("warm up", words))
        )
        set_up = perf_counter()
        preparation.prepare()
        self._ready = preparation.ready
        if not self._ready:
            raise InvalidTrialError(f"no message can be measured: {preparation.missing[0].reason}")
        warmed_up, num_rounds = perf_counter(), request.measure.min_rounds
        measured = measure_rounds(
            self._ready,
            self._team,
            self._device,
            order=f"{request.config.seed} {request.part}",
            num_rounds=num_rounds,
            max_seconds=request.left_s,
            on_round=lambda number: on_progress(Progress("measure", f"round {number} of {num_rounds}")),
        )
        hosts = self._team.gather_on_leader((host_id(), len(allowed_cores())))
        if hosts is None:
            return Outcome("complete")
        on_cores = self._device.kind == "cpu"  # which carry the messages themselves
        result = CollectivesResult(
            backend=str(dist.get_backend(self._team.data)),
            rounds=measured.rounds,
            stopped_by=measured.stopped_by,
            missing=tuple(preparation.missing),
            hosts=numbered([host for host, _ in hosts]),
            host_cores=tuple(cores for _, cores in hosts) if on_cores else None,
            setup_s=set_up - began,
            warmup_s=warmed_up - set_up,
            measure_s=measured.seconds,
        )
        return Outcome("complete", result=result)

    def release(self) -> None:
        """Drop the buffers."""
        self._ready = []


@dataclass(frozen=True)
class MeasuredRounds:
    """What the rounds of one part brought."""

    rounds: tuple[MessageRound, ...]  # on the leader
    stopped_by: StopReason
    seconds: float


def measure_rounds(
    cases: Sequence[Case],
    team: Team,
    device: Device,
    *,
    order: str,
    num_rounds: int,
    max_seconds: float,
    on_round: Callable[[int], None] = lambda number: None,
) -> MeasuredRounds:
    """``num_rounds``, or what the time allows; the leader's clock counts, so that all stop together.

    ``order`` is the seed of the orders of blocks, the same on every rank. A collective call.
    """
    shuffled, stopwatch = random.Random(order), device.stopwatch()
    began, rounds, number = perf_counter(), list[MessageRound](), 0
    while True:
        number, at_s = number + 1, perf_counter() - began
        in_turn = shuffled.sample(cases, len(cases))
        own = [_block(case, team, device, stopwatch) for case in in_turn]
        elapsed_s = perf_counter() - began
        of_ranks = team.gather_on_leader(own)
        if of_ranks is not None:
            rounds.append(MessageRound(blocks=_blocks(in_turn, of_ranks), at_s=at_s))
        on_round(number)
        stop: StopReason | None = None
        if number >= num_rounds:
            stop = "steps"
        elif elapsed_s >= max_seconds and number >= LEAST_MEASURED:
            stop = "max_seconds"
        stop = team.from_leader(stop)
        if stop is not None:
            return MeasuredRounds(tuple(rounds), stop, elapsed_s)


def _block(case: Case, team: Team, device: Device, stopwatch: Stopwatch) -> _OwnBlock:
    """One block on this rank; the host's cores are looked at outside of what the ranks do together."""
    run = case.operation.run
    device.synchronize()
    cores = CoreMeter(has_children=False) if device.kind == "cpu" else None
    team.barrier()
    stopwatch.start()
    for _ in range(case.discarded):
        run()
    stopwatch.lap()
    used_s = process_time()
    for _ in range(case.timed):
        run()
    used_s = process_time() - used_s
    stopwatch.lap()
    block_s = float(stopwatch.read()[-1])
    if cores is None:
        return _OwnBlock(block_s / case.timed)
    host = cores.used().host
    return _OwnBlock(
        block_s / case.timed,
        used_s / block_s,
        None if host is None else max(host, 0.0) / len(allowed_cores()),
    )


@dataclass(frozen=True)
class _OwnBlock:
    """What a block was on this rank."""

    time_s: float  # of one operation
    busy_cores: float | None = None
    host_busy: float | None = None


def _blocks(order: Sequence[Case], of_ranks: Sequence[Sequence[_OwnBlock]]) -> tuple[MessageBlock, ...]:
    return tuple(
        MessageBlock(
            collective=case.operation.collective,
            message_bytes=case.operation.message_bytes,
            time_s=tuple(each.time_s for each in blocks),
            num_operations=case.timed,
            busy_cores=all_known(each.busy_cores for each in blocks),
            host_busy=all_known(each.host_busy for each in blocks),
        )
        for case, *blocks in zip(order, *of_ranks, strict=True)
    )
