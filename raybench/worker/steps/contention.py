"""What transfers and computing take from each other on shared cores: each timed alone, then both at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from threading import Event
from time import perf_counter
from typing import Any

import torch

from raybench.records.measurements import Contention, ContentionTurn
from raybench.worker.communicators import Team
from raybench.worker.steps.replay import Replay
from raybench.worker.strategies.ddp_report import bucket_bytes
from raybench.worker.strategies.models import StrategyModels

REPLAY_S = 0.3  # of all-reduces, while the cores that they take are counted
MAX_SHARE, MOST_SHARE = 0.10, 0.20  # of the trial's time; for the least turns no more than the second
LEAST_TURNS, MOST_TURNS = 4, 10  # the first is thrown away
BESIDE_SHARE = 0.8  # of the transfers, that steps are to last: they should not outlast them
MOST_SENDS = 50  # of all buckets in a turn: where a step lasts longer, transfers hardly matter to it
MOST_STEPS = 20
CALLED_BACK_S = 1.0  # after a transfer has ended, at the latest
DIGITS = 6  # of a time in s


def communication_cores(models: StrategyModels, team: Team, replay_s: float | None) -> float | None:
    """What the all-reduces take of this rank's cores while nothing else runs; None where there are none.

    Who computes meanwhile has to share its core with them. A collective call.
    """
    replay = _replay(models, team)
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

    ``step_s`` and ``replay_s`` are what each takes alone, alike on every rank. None on GPUs, where the
    transfers are too short for a step beside them, and where the trial is too short for turns.
    """
    replay = _replay(models, team)
    if replay is None or replay_s is None or models.twin is None:
        return None
    sends = max(1, math.ceil(step_s / (BESIDE_SHARE * replay_s)))
    steps = max(1, min(MOST_STEPS, math.floor(BESIDE_SHARE * sends * replay_s / step_s)))
    turn_s = steps * step_s + sends * replay_s + max(steps * step_s, sends * replay_s)
    turns = max(LEAST_TURNS, min(MOST_TURNS, math.floor(MAX_SHARE * max_seconds / turn_s)))
    if sends > MOST_SENDS or turns * turn_s > MOST_SHARE * max_seconds:
        return None
    own = [_turn(models.twin.step, replay, team, steps, sends) for _ in range(turns)][1:]
    of_ranks: list[list[ContentionTurn]] = team.gather(own)
    return Contention(
        turns=tuple(map(_mean, zip(*of_ranks, strict=True))), steps_per_turn=steps, replays_per_turn=sends
    )


def _replay(models: StrategyModels, team: Team) -> Replay | None:
    """The trial's transfers by themselves; None where there are none, and where they need no core."""
    if models.device.kind != "cpu" or models.wrapped is None:
        return None
    sizes = bucket_bytes(models.wrapped.module)  # type: ignore[arg-type]
    return Replay(sizes, team, models.device.torch_device, models.communication)


def _turn(step: Callable[[], None], replay: Replay, team: Team, steps: int, sends: int) -> ContentionTurn:
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
    """All buckets, so many times; done when the last of them is back."""
    return torch.futures.collect_all([future for _ in range(sends) for future in replay.begin()])


def _mean(turns: tuple[ContentionTurn, ...]) -> ContentionTurn:
    """Of one turn on all ranks."""
    names = ContentionTurn.model_fields
    return ContentionTurn(
        **{name: round(fmean(getattr(each, name) for each in turns), DIGITS) for name in names}
    )
