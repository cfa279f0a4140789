"""A part of a sweep of collectives on one rank: buffers, warm-up with a check of every result, rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

import torch.distributed as dist

from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.errors import InvalidTrialError
from raybench.machine.core_time import busy_core_seconds
from raybench.machine.host import allowed_cores, host_id, numbered
from raybench.records.messages import OnProgress, Outcome, Progress
from raybench.records.requests import CollectivesRequest
from raybench.records.results import CollectivesResult, MessageBlock, MessageRound, StopReason
from raybench.worker.collectives.cases import Case, Cases, Preparation
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.memory import all_known


class CollectivesTrial:
    """Everything that one rank holds while it measures messages."""

    def __init__(self, request: CollectivesRequest, team: Team, device: Device) -> None:
        self._request, self._team, self._device = request, team, device
        self._cases = Cases()

    def run(self, on_progress: OnProgress) -> Outcome:
        """The times of all messages, on the leader."""
        began, request = perf_counter(), self._request
        on_progress(Progress("set up"))
        preparation = Preparation(
            request, self._team, self._device, lambda words: on_progress(Progress("warm up", words))
        )
        set_up = perf_counter()
        self._cases = preparation.prepare()
        if not self._cases.ready:
            raise InvalidTrialError(f"no message can be measured: {self._cases.missing[0].reason}")
        warmed_up, num_rounds = perf_counter(), request.measure.min_rounds
        measured = MessageRounds(
            self._cases.ready,
            self._team,
            self._device,
            order=f"{request.config.seed} {request.part}",
            on_round=lambda number: on_progress(Progress("measure", f"round {number} of {num_rounds}")),
        ).run(num_rounds, request.left_s)
        hosts = self._team.gather_on_leader((host_id(), len(allowed_cores())))
        if hosts is None:
            return Outcome("complete")
        on_cores = self._device.kind == "cpu"  # which carry the messages themselves
        result = CollectivesResult(
            backend=str(dist.get_backend(self._team.data)),
            rounds=measured.rounds,
            stopped_by=measured.stopped_by,
            missing=tuple(self._cases.missing),
            hosts=numbered([host for host, _ in hosts]),
            host_cores=tuple(cores for _, cores in hosts) if on_cores else None,
            setup_s=set_up - began,
            warmup_s=warmed_up - set_up,
            measure_s=measured.seconds,
        )
        return Outcome("complete", result=result)

    def release(self) -> None:
        """Drop the buffers."""
        self._cases = Cases()


@dataclass(frozen=True)
class MeasuredRounds:
    """What the rounds of one part brought."""

    rounds: tuple[MessageRound, ...]  # on the leader
    stopped_by: StopReason
    seconds: float


class MessageRounds:
    """Measures the messages of one part on this rank."""

    def __init__(
        self,
        cases: Sequence[Case],
        team: Team,
        device: Device,
        *,
        order: str,
        on_round: Callable[[int], None] = lambda number: None,
    ) -> None:
        """``order`` is the seed of the orders of blocks, the same on every rank."""
        self._cases, self._team, self._device, self._on_round = list(cases), team, device, on_round
        self._random, self._stopwatch = random.Random(order), device.stopwatch()

    def run(self, num_rounds: int, max_seconds: float) -> MeasuredRounds:
        """``num_rounds``, or what the time allows; the leader's clock counts, so that all stop together."""
        began, rounds, number = perf_counter(), list[MessageRound](), 0
        while True:
            number, at_s = number + 1, perf_counter() - began
            own = self._round()
            elapsed_s = perf_counter() - began
            of_ranks = self._team.gather_on_leader(own.blocks)
            if of_ranks is not None:
                rounds.append(MessageRound(blocks=_blocks(own.order, of_ranks), at_s=at_s))
            self._on_round(number)
            stop: StopReason | None = None
            if number >= num_rounds:
                stop = "steps"
            elif elapsed_s >= max_seconds and number >= LEAST_MEASURED:
                stop = "max_seconds"
            stop = self._team.from_leader(stop)
            if stop is not None:
                return MeasuredRounds(tuple(rounds), stop, elapsed_s)

    def _round(self) -> _OwnBlocks:
        order = self._random.sample(self._cases, len(self._cases))
        return _OwnBlocks(order, [self._block(case) for case in order])

    def _block(self, case: Case) -> _OwnBlock:
        """One block on this rank; the host's cores are looked at outside of what the ranks do together."""
        run, stopwatch = case.operation.run, self._stopwatch
        self._device.synchronize()
        host = _HostCores() if self._device.kind == "cpu" else None
        self._team.barrier()
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
        if host is None:
            return _OwnBlock(block_s / case.timed)
        return _OwnBlock(block_s / case.timed, used_s / block_s, host.busy())


class _HostCores:
    """The cores that this process may use, from when this is made."""

    def __init__(self) -> None:
        self._busy_s, self._began = busy_core_seconds(), perf_counter()

    def busy(self) -> float | None:
        """The share of them that was at work since; None where it is not told."""
        busy_s, seconds = busy_core_seconds(), perf_counter() - self._began
        if busy_s is None or self._busy_s is None:
            return None
        return max(busy_s - self._busy_s, 0.0) / (seconds * len(allowed_cores()))


@dataclass(frozen=True)
class _OwnBlock:
    """What a block was on this rank."""

    time_s: float  # of one operation
    busy_cores: float | None = None
    host_busy: float | None = None


@dataclass(frozen=True)
class _OwnBlocks:
    """This rank's blocks of a round, in their order."""

    order: list[Case]
    blocks: list[_OwnBlock]


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
