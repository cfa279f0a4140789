"""The all-reduces of a step's real buckets: alone (the variant ``replay``), and while the cores compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from threading import Event
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from raybench.records.results import Contention, ContentionTurn
from raybench.worker.communicators import Team
from raybench.worker.strategies.ddp import Communication, bucket_bytes
from raybench.worker.strategies.models import StrategyModels


@dataclass(frozen=True)
class _ReplayBucket:
    """The interface of DDP's bucket that a communication hook uses, without DDP."""

    _buffer: torch.Tensor
    _index: int
    _last: bool

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last


class Replay:
    """The all-reduces of a step, as DDP would send them, with no compute alongside."""

    def __init__(
        self,
        bucket_bytes: Sequence[int],
        team: Team,
        device: torch.device,
        communication: Communication,
    ) -> None:
        last = len(bucket_bytes) - 1
        self._group, self._communication = team.data, communication
        self._buckets = [
            _ReplayBucket(torch.zeros(size // 4, dtype=torch.float32, device=device), index, index == last)
            for index, size in enumerate(bucket_bytes)
        ]

    def begin(self) -> list[torch.futures.Future[Any]]:
        """Send every bucket; a future for each."""
        hook, state = self._communication.hook, self._communication.state
        if hook is not None:
            return [hook(state, bucket) for bucket in self._buckets]
        return [work.get_future() for work in self._works()]

    def step(self) -> None:
        """Send every bucket, then wait for all."""
        for sent in self.begin() if self._communication.hook is not None else self._works():
            sent.wait()

    def _works(self) -> list[Any]:
        return [dist.all_reduce(b.buffer(), group=self._group, async_op=True) for b in self._buckets]


REPLAY_S = 0.3  # of all-reduces, while the cores that they take are counted
MAX_SHARE, MOST_SHARE = 0.10, 0.20  # of the trial's time; for the least turns no more than the second
LEAST_TURNS, MOST_TURNS = 4, 10  # the first is thrown away
OVERLAP_SHARE = 0.8  # of the transfers, that steps are to last: they should not outlast them
MOST_SENDS = 50  # of all buckets in a turn: where a step lasts longer, transfers hardly matter to it
MOST_STEPS = 20
CALLED_BACK_S = 1.0  # after a transfer has ended, at the latest
DIGITS = 6  # of a time in s


def communication_cores(models: StrategyModels, team: Team, replay_s: float | None) -> float | None:
    """What the all-reduces take of this rank's cores while nothing else runs; None where there are none.

    A rank that computes at the same time shares its core with them. A collective call.
    """
    replay = _own_replay(models, team)
    if replay is None or replay_s is None:
        return None
    replay.step()
    meter = models.device.utilization_meter(1)
    meter.start()
    began = perf_counter()
    for _ in range(max(1, min(20, round(REPLAY_S / replay_s)))):
        replay.step()
    meter.stop(perf_counter() - began)
    return meter.mean()


def contention(
    models: StrategyModels, team: Team, *, step_s: float, replay_s: float | None, max_seconds: float
) -> Contention | None:
    """Turns of: the twin's steps, transfers without steps, both at once. A collective call.

    ``step_s`` and ``replay_s`` are what each takes alone, equal on every rank. None on GPUs, where the
    transfers are too short for a step alongside, and where the trial is too short for turns.
    """
    replay = _own_replay(models, team)
    if replay is None or replay_s is None or models.twin is None:
        return None
    sends = max(1, math.ceil(step_s / (OVERLAP_SHARE * replay_s)))
    steps = max(1, min(MOST_STEPS, math.floor(OVERLAP_SHARE * sends * replay_s / step_s)))
    turn_s = steps * step_s + sends * replay_s + max(steps * step_s, sends * replay_s)
    turns = max(LEAST_TURNS, min(MOST_TURNS, math.floor(MAX_SHARE * max_seconds / turn_s)))
    if sends > MOST_SENDS or turns * turn_s > MOST_SHARE * max_seconds:
        return None
    own = [_one_turn(models.twin.step, replay, team, steps, sends) for _ in range(turns)][1:]
    of_ranks: list[list[ContentionTurn]] = team.gather(own)
    return Contention(
        turns=tuple(map(_mean_turn, zip(*of_ranks, strict=True))),
        steps_per_turn=steps,
        replays_per_turn=sends,
    )


def _own_replay(models: StrategyModels, team: Team) -> Replay | None:
    """The trial's transfers by themselves; None where there are none, and where they need no core."""
    if models.device.kind != "cpu" or models.wrapped is None:
        return None
    sizes = bucket_bytes(models.wrapped.module)  # type: ignore[arg-type]
    return Replay(sizes, team, models.device.torch_device, models.communication)


def _one_turn(step: Callable[[], None], replay: Replay, team: Team, steps: int, sends: int) -> ContentionTurn:
    team.barrier()
    began = perf_counter()
    for _ in range(steps):
        step()
    step_s = (perf_counter() - began) / steps
    team.barrier()
    began = perf_counter()
    _sent(replay, sends).wait()
    replay_s = (perf_counter() - began) / sends
    team.barrier()
    ends, is_back, began = list[float](), Event(), perf_counter()

    def note_end(_: Any) -> None:
        ends.append(perf_counter())
        is_back.set()

    sent = _sent(replay, sends)
    sent.add_done_callback(note_end)
    for _ in range(steps):
        step()
    step_beside_s = (perf_counter() - began) / steps
    sent.wait()
    is_back.wait(CALLED_BACK_S)  # by the thread that ended the last transfer
    end_s = ends[0] if ends else perf_counter()
    return ContentionTurn(
        step_s=step_s,
        replay_s=replay_s,
        step_beside_s=step_beside_s,
        replay_beside_s=(end_s - began) / sends,
    )


def _sent(replay: Replay, sends: int) -> torch.futures.Future[Any]:
    """All buckets, ``sends`` times; done when the last of them is back."""
    return torch.futures.collect_all([future for _ in range(sends) for future in replay.begin()])


def _mean_turn(turns: tuple[ContentionTurn, ...]) -> ContentionTurn:
    """Of one turn on all ranks."""
    names = ContentionTurn.model_fields
    return ContentionTurn(
        **{name: round(fmean(getattr(each, name) for each in turns), DIGITS) for name in names}
    )
