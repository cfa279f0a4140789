"""A part of a sweep of collectives on one rank: buffers, warm-up with a check of every result, rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import perf_counter

import torch.distributed as dist

from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.errors import InvalidTrialError
from raybench.records.messages import OnProgress, Outcome, Progress, RankFile
from raybench.records.requests import CollectivesRequest
from raybench.records.results import CollectivesResult, MessageBlock, MessageRound, StopReason
from raybench.worker.collectives.cases import Case, Preparation
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, Stopwatch


class CollectivesTrial:
    """Everything that one rank holds while it measures messages."""

    def __init__(self, request: CollectivesRequest, team: Team, device: Device) -> None:
        self._request, self._team, self._device = request, team, device

    def run(self, on_progress: OnProgress) -> Outcome:
        """The times of all messages, on the leader."""
        began = perf_counter()
        on_progress(Progress("set up"))
        preparation = Preparation(
            self._request, self._team, self._device, lambda words: on_progress(Progress("warm up", words))
        )
        set_up = perf_counter()
        preparation.prepare()
        if not preparation.ready:
            raise InvalidTrialError(f"no message can be measured: {preparation.missing[0].reason}")
        warmed_up = perf_counter()
        rounds, stopped_by = self.measure(preparation.ready, on_progress)
        if not self._team.leads:
            return Outcome("complete")
        result = CollectivesResult(
            backend=str(dist.get_backend(self._team.data)),
            rounds=tuple(rounds),
            stopped_by=stopped_by,
            missing=tuple(preparation.missing),
            setup_s=set_up - began,
            warmup_s=warmed_up - set_up,
            measure_s=perf_counter() - warmed_up,
        )
        return Outcome("complete", result=result)

    def release(self) -> tuple[RankFile, ...]:
        """Nothing: the buffers have gone with ``run``."""
        return ()

    def measure(
        self, cases: Sequence[Case], on_progress: OnProgress
    ) -> tuple[list[MessageRound], StopReason]:
        """The rounds, on the leader: as many as requested, or what the time allows.

        The leader's clock counts, so that all stop together. A collective call.
        """
        request, team, num_rounds = self._request, self._team, self._request.measure.min_rounds
        shuffled, stopwatch = random.Random(f"{request.config.seed} {request.part}"), self._device.stopwatch()
        began, rounds, number = perf_counter(), list[MessageRound](), 0
        while True:
            number, at_s = number + 1, perf_counter() - began
            in_turn = shuffled.sample(cases, len(cases))  # the same on every rank
            own = [_block(case, team, self._device, stopwatch) for case in in_turn]
            of_ranks = team.gather_on_leader(own)
            if of_ranks is not None:
                rounds.append(MessageRound(blocks=_blocks(in_turn, of_ranks), at_s=at_s))
            on_progress(Progress("measure", f"round {number} of {num_rounds}"))
            stop: StopReason | None = None
            if number >= num_rounds:
                stop = "steps"
            elif perf_counter() - began >= request.left_s and number >= LEAST_MEASURED:
                stop = "max_seconds"
            stop = team.from_leader(stop)
            if stop is not None:
                return rounds, stop


def _block(case: Case, team: Team, device: Device, stopwatch: Stopwatch) -> float:
    """The time of one operation on this rank, in s."""
    run = case.operation.run
    device.synchronize()
    team.barrier()
    stopwatch.start()
    for _ in range(case.discarded):
        run()
    stopwatch.lap()
    for _ in range(case.timed):
        run()
    stopwatch.lap()
    return float(stopwatch.read()[-1]) / case.timed


def _blocks(order: Sequence[Case], of_ranks: Sequence[Sequence[float]]) -> tuple[MessageBlock, ...]:
    return tuple(
        MessageBlock(
            collective=case.operation.collective,
            message_bytes=case.operation.message_bytes,
            time_s=tuple(times_s),
            num_operations=case.timed,
        )
        for case, *times_s in zip(order, *of_ranks, strict=True)
    )
