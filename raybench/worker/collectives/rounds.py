"""Rounds of blocks, in each of which the order is shuffled anew, so that drift hits all messages alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from raybench.analysis.estimates.stopping import LEAST_MEASURED
from raybench.records.collectives import MessageBlock, MessageRound
from raybench.records.measurements import StopReason
from raybench.worker.collectives.cases import Case
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device


@dataclass(frozen=True)
class MeasuredRounds:
    """What the rounds of one part brought, the same on every rank."""

    rounds: tuple[MessageRound, ...]
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
        """So many rounds, or what the time allows; the leader's clock counts, so that all stop alike."""
        began, rounds = perf_counter(), list[MessageRound]()
        while True:
            at_s = perf_counter() - began
            blocks = self._round()
            told: list[tuple[list[float], float]] = self._team.gather((blocks.times, perf_counter() - began))
            rounds.append(MessageRound(blocks=_blocks(blocks.order, [times for times, _ in told]), at_s=at_s))
            self._on_round(len(rounds))
            elapsed_s = told[0][1]
            if len(rounds) >= num_rounds:
                return MeasuredRounds(tuple(rounds), "steps", elapsed_s)
            if elapsed_s >= max_seconds and len(rounds) >= LEAST_MEASURED:
                return MeasuredRounds(tuple(rounds), "max_seconds", elapsed_s)

    def _round(self) -> _OwnBlocks:
        order = self._random.sample(self._cases, len(self._cases))
        return _OwnBlocks(order, [self._block(case) for case in order])

    def _block(self, case: Case) -> float:
        """Seconds of one operation on this rank, mean over the block."""
        run, stopwatch = case.operation.run, self._stopwatch
        self._device.synchronize()
        self._team.barrier()
        stopwatch.start()
        for _ in range(case.discarded):
            run()
        stopwatch.lap()
        for _ in range(case.timed):
            run()
        stopwatch.lap()
        return float(stopwatch.read()[-1]) / case.timed


@dataclass(frozen=True)
class _OwnBlocks:
    """This rank's times of a round, in s, in the order of the blocks."""

    order: list[Case]
    times: list[float]


def _blocks(order: Sequence[Case], times_of_ranks: Sequence[Sequence[float]]) -> tuple[MessageBlock, ...]:
    return tuple(
        MessageBlock(
            collective=case.operation.collective,
            message_bytes=case.operation.message_bytes,
            time_s=tuple(times[place] for times in times_of_ranks),
            num_operations=case.timed,
        )
        for place, case in enumerate(order)
    )
