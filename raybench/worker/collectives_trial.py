"""A trial of a sweep of collectives on one rank: messages warmed up, and timed in rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from raybench.analysis.stats.stopping import LEAST_MEASURED, decide_sweep
from raybench.errors import InvalidTrialError
from raybench.records.messages import OnProgress, Outcome, Progress
from raybench.records.requests import CollectivesRequest
from raybench.records.results import CollectivesResult, MessageBlock, MessageRound
from raybench.spec.plural import bytes_words
from raybench.spec.sweep import ELEMENT_BYTES, Collective, message_in_shares
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, Stopwatch
from raybench.worker.memory import memory_limits


def measure_collectives(
    request: CollectivesRequest, team: Team, device: Device, on_progress: OnProgress
) -> Outcome:
    """The times of all messages, on the leader. A collective call."""
    cases = prepare(request, team, device, lambda words: on_progress(Progress("warm up", words)))
    rounds = measure(request, team, device, cases, on_progress)
    if not team.leads:
        return Outcome("complete")
    backend = str(dist.get_backend(team.data))
    return Outcome("complete", result=CollectivesResult(backend=backend, rounds=tuple(rounds)))


def measure(
    request: CollectivesRequest, team: Team, device: Device, cases: Sequence[Case], on_progress: OnProgress
) -> list[MessageRound]:
    """The rounds, on the leader, until intervals are narrow enough or the time is spent.

    The leader's clock counts, so that all stop together. A collective call.
    """
    shuffled, stopwatch = random.Random(request.config.seed), device.stopwatch()
    began, rounds, number = perf_counter(), list[MessageRound](), 0
    while True:
        number, at_s = number + 1, perf_counter() - began
        in_turn = shuffled.sample(cases, len(cases))  # the same on every rank
        own = [_block(case, team, device, stopwatch) for case in in_turn]
        of_ranks = team.gather_on_leader(own)
        stop = None
        if of_ranks is not None:
            blocks = tuple(
                MessageBlock(
                    collective=case.collective,
                    message_bytes=case.message_bytes,
                    time_s=tuple(times_s),
                    num_operations=case.timed,
                )
                for case, *times_s in zip(in_turn, *of_ranks, strict=True)
            )
            rounds.append(MessageRound(blocks=blocks, at_s=at_s))
            stop = decide_sweep(rounds, request.measure, request.config.device, perf_counter() - began)
        on_progress(Progress("measure", f"round {number}"))
        if team.from_leader(stop) is not None:
            return rounds


def _block(case: Case, team: Team, device: Device, stopwatch: Stopwatch) -> float:
    """The time of one operation on this rank, in s."""
    device.synchronize()
    team.barrier()
    stopwatch.start()
    for _ in range(case.discarded):
        case.run()
    stopwatch.lap()
    for _ in range(case.timed):
        case.run()
    stopwatch.lap()
    return float(stopwatch.read()[-1]) / case.timed


# torch 2.14 gives two collectives a new name, and warns of the old one; 2.11 has the old one alone
_new = vars(dist)
_reduce_scatter: Callable[..., object] = _new.get("reduce_scatter_single") or _new["reduce_scatter_tensor"]
_all_gather: Callable[..., object] = _new.get("all_gather_single") or _new["all_gather_into_tensor"]


# Of the largest message, the others are its beginning: all of it, and a share.
Buffers = tuple[torch.Tensor, torch.Tensor]


def operation(
    collective: Collective, message_bytes: int, buffers: Buffers, team: Team
) -> Callable[[], object]:
    """What gives one collective on one message to the device; on a CPU it is done when the call returns.

    all_reduce and broadcast work in place, on the whole message; all_gather makes the whole of every rank's
    share, reduce_scatter the share of every rank's whole. Messages are zeros: sums of sums would soon be
    infinite.
    """
    elements, group = message_bytes // ELEMENT_BYTES, team.data
    whole, share = buffers[0][:elements], buffers[1][: elements // team.size]
    if collective == "all_reduce":
        return partial(dist.all_reduce, whole, group=group)
    if collective == "broadcast":
        return partial(dist.broadcast, whole, src=team.ranks[0], group=group)
    if collective == "all_gather":
        return partial(_all_gather, whole, share, group=group)
    return partial(_reduce_scatter, share, whole, group=group)


BLOCK_S = 0.05  # at least, of a block: the ranks leave a barrier within a hundredth of that
MOST_OPERATIONS = 1000  # of a block
WARM_S, FURTHER_LOOKS = 0.01, 2  # of the operations whose time is taken for a block's number


@dataclass(frozen=True)
class Case:
    """One collective on one message, ready for the rounds."""

    collective: Collective
    message_bytes: int
    run: Callable[[], object]
    operation_s: float  # roughly, on the slowest rank

    @property
    def timed(self) -> int:
        """Operations of a block that count."""
        return min(max(round(BLOCK_S / self.operation_s), 1), MOST_OPERATIONS)

    @property
    def discarded(self) -> int:
        """Operations before them: one, as the ranks come from a barrier, where that is more than nothing."""
        return 1 if self.operation_s < BLOCK_S else 0


def prepare(
    request: CollectivesRequest, team: Team, device: Device, on_message: Callable[[str], None]
) -> list[Case]:
    """Every message, warm, the smallest first; ``on_message`` hears which is next.

    Raises ``AgreedFailure`` where the largest does not fit, ``InvalidTrialError`` where the rounds would take
    too long, on all ranks. A collective call.
    """
    most_s = request.measure.timeout_seconds / 2  # as long as it takes to warm them
    sizes = sorted({message_in_shares(each, team.size) for each in request.message_bytes})
    # what a rank may take must not be tried on a device that gives memory that it has not
    device.release_memory()
    available = device.available_memory() if device.overcommits else None
    limits = memory_limits(team.gather(available))
    room_bytes = None if limits is None or available is None else limits[team.rank] - available.taken_bytes
    buffers = team.agreed(partial(_buffers, sizes[-1], team, device, room_bytes))
    cases = list[Case]()
    for size in sizes:
        for collective in request.collectives:
            on_message(f"{collective} of {size:,} bytes")
            run = operation(collective, size, buffers, team)
            cases.append(Case(collective, size, run, _operation_s(run, team, device)))
        round_s = sum((case.discarded + case.timed) * case.operation_s for case in cases)
        if LEAST_MEASURED * round_s > most_s:
            raise InvalidTrialError(
                f"{LEAST_MEASURED} rounds with messages of up to {size:,} bytes take more than {most_s:g} s, "
                "half of the trial's time-out: give smaller --sizes, or more --max-seconds"
            )
    return cases


def _operation_s(run: Callable[[], object], team: Team, device: Device) -> float:
    """Of one operation, on the slowest rank, when it is warm; of several looks the shortest.

    A look that another process disturbed would make every block of the message too short.
    """

    def look() -> float:
        team.barrier()
        began = perf_counter()
        for _ in range(number):
            run()
        device.synchronize()
        slowest_s: float = max(team.gather(perf_counter() - began))
        return slowest_s

    number = 1
    look()  # connects
    while (seconds := look()) < WARM_S and number < MOST_OPERATIONS:
        number = min(4 * number, MOST_OPERATIONS)
    if seconds < BLOCK_S:
        seconds = min(seconds, *(look() for _ in range(FURTHER_LOOKS)))
    return seconds / number


# For what a rank needs room where memory is promised that is not there, in messages: the message, a share of
# it, and the copy that gloo's reduce_scatter makes (pytorch pull request 118911).
MESSAGES_TAKEN = 3
TOO_LARGE = "no memory for the largest message: give smaller --sizes"


def _buffers(size: int, team: Team, device: Device, room_bytes: int | None) -> Buffers:
    """For messages of up to ``size`` bytes; raises ``MemoryError`` where they do not fit on this rank."""
    needed_bytes = MESSAGES_TAKEN * size
    if room_bytes is not None and needed_bytes > room_bytes:
        room = f"{bytes_words(needed_bytes)} wanted, {bytes_words(room_bytes)} left for this rank"
        raise MemoryError(f"{TOO_LARGE} ({room})")
    elements = size // ELEMENT_BYTES
    how: dict[str, Any] = {"dtype": torch.float32, "device": device.torch_device}
    try:
        # written to, not only promised: a page that is first touched while it is timed costs a fault
        whole, share = (torch.zeros(each, **how) for each in (elements, elements // team.size))
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"{TOO_LARGE} ({error})") from error
    return whole, share
