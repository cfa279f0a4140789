"""A part of a sweep of collectives on one rank: messages checked, warmed up, and timed in rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
import torch.distributed as dist

from raybench.analysis.stats.stopping import LEAST_MEASURED, PATIENCE
from raybench.errors import InvalidTrialError
from raybench.records.messages import OnProgress, Outcome, Progress, RankFile
from raybench.records.requests import CollectivesRequest
from raybench.records.results import (
    CollectivesResult,
    MessageBlock,
    MessageRound,
    NotMeasured,
    StopReason,
    WhyNot,
)
from raybench.spec.sweep import ELEMENT_BYTES, Collective, message_in_shares
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, Stopwatch
from raybench.worker.failures import AgreedFailure, describe
from raybench.worker.memory import memory_limits


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


SUMS = ("all_reduce", "reduce_scatter")  # collectives that add up
SHARE_VALUES = 7  # number of values that shares may have: float32 counts exactly up to 2,189 ranks

# torch 2.14 gives two collectives a new name, and warns of the old one; 2.11 has the old one alone
_new = vars(dist)
_reduce_scatter: Callable[..., object] = _new.get("reduce_scatter_single") or _new["reduce_scatter_tensor"]
_all_gather: Callable[..., object] = _new.get("all_gather_single") or _new["all_gather_into_tensor"]


class Buffers:
    """The memory of every message of a sweep: that of the largest, the others are its beginning."""

    def __init__(self, message_bytes: int, team: Team, device: torch.device) -> None:
        """Raises what torch raises where memory does not suffice."""
        self.message_bytes = message_bytes
        elements = message_bytes // ELEMENT_BYTES
        # written to, not only promised: a page that is first touched while it is timed costs a fault
        self.whole = torch.ones(elements, dtype=torch.float32, device=device)
        self.share = torch.ones(elements // team.size, dtype=torch.float32, device=device)


class Operation:
    """One collective on one message.

    all_reduce and broadcast work in place, on the whole message; all_gather makes the whole of every rank's
    share, reduce_scatter the share of every rank's whole. Messages are zeros while they are timed: sums of
    sums would soon be infinite.
    """

    def __init__(self, collective: Collective, message_bytes: int, buffers: Buffers, team: Team) -> None:
        self.collective, self.message_bytes, self._team = collective, message_bytes, team
        elements = message_bytes // ELEMENT_BYTES
        self._whole = buffers.whole[:elements]
        self._share = buffers.share[: elements // team.size]

    def run(self) -> None:
        """Give it to the device; on a CPU it is done when the call returns."""
        group = self._team.data
        if self.collective == "all_reduce":
            dist.all_reduce(self._whole, group=group)
        elif self.collective == "broadcast":
            dist.broadcast(self._whole, src=self._team.ranks[0], group=group)
        elif self.collective == "all_gather":
            _all_gather(self._whole, self._share, group=group)
        else:
            _reduce_scatter(self._share, self._whole, group=group)

    def fill(self) -> None:
        """Numbers of which the result is known: each share has its own, times the rank's in sums."""
        rank = self._team.rank
        weight = rank + 1 if self.collective in SUMS else int(self.collective == "broadcast" and rank == 0)
        for number, part in enumerate(self._whole.view(self._team.size, -1)):
            part.fill_(weight * _share_value(number))
        self._share.fill_(_share_value(rank) if self.collective == "all_gather" else 0)

    def clear(self) -> None:
        """Zeros again."""
        self._whole.zero_()
        self._share.zero_()

    def fault(self) -> str | None:
        """What is wrong with the result after ``fill`` and ``run``; None: nothing."""
        rank, size = self._team.rank, self._team.size
        total = size * (size + 1) / 2 if self.collective in SUMS else 1
        is_share = self.collective == "reduce_scatter"
        parts = {rank: self._share} if is_share else dict(enumerate(self._whole.view(size, -1)))
        for number, part in parts.items():
            low, high = (float(value) for value in part.aminmax())
            expected = total * _share_value(number)
            if (low, high) != (expected, expected):
                return f"of rank numbers it makes {low:g} to {high:g} in the place of {expected:g}"
        return None


def _share_value(number: int) -> float:
    return float(number % SHARE_VALUES + 1)


BLOCK_S = 0.05  # at least, of a block: the ranks leave a barrier within a hundredth of that
MOST_OPERATIONS = 1000  # of a block
WARM_S, FURTHER_LOOKS = 0.01, 2  # of the operations whose time is taken for a block's number


@dataclass(frozen=True)
class Case:
    """One collective on one message, ready for the rounds."""

    operation: Operation
    operation_s: float  # roughly, on the slowest rank

    @property
    def timed(self) -> int:
        """Operations of a block that count."""
        return min(max(round(BLOCK_S / self.operation_s), 1), MOST_OPERATIONS)

    @property
    def discarded(self) -> int:
        """Operations before them: one, as the ranks come from a barrier, where that is more than nothing."""
        return 1 if self.operation_s < BLOCK_S else 0

    @property
    def block_s(self) -> float:
        """A block, in s."""
        return (self.timed + self.discarded) * self.operation_s


class Preparation:
    """From the requested messages to the measured ones, on one rank. Every method is a collective call."""

    def __init__(
        self, request: CollectivesRequest, team: Team, device: Device, on_message: Callable[[str], None]
    ) -> None:
        """``on_message`` hears which message is warmed up."""
        self._request, self._team, self._device, self._on_message = request, team, device, on_message
        self._open: list[Collective] = list(request.collectives)
        self.ready, self.missing = list[Case](), list[NotMeasured]()  # what is measured, and what is not

    def prepare(self) -> None:
        """Make ready every message that can be measured, the smallest first."""
        requested = self._request.message_bytes
        sizes = sorted({message_in_shares(each, self._team.size) for each in requested})
        buffers, too_large = allocate(sizes, self._team, self._device)
        for size, reason in sorted(too_large.items()):
            self._leave_out(self._open, size, "oom", reason)
        for size in sizes:
            for collective in tuple(self._open):
                if buffers is not None and size <= buffers.message_bytes:
                    self._on_message(f"{collective} of {size:,} bytes")
                    self._add(Operation(collective, size, buffers, self._team))

    def _add(self, operation: Operation) -> None:
        if not self._takes_too_long(operation) and self._is_right(operation):
            self.ready.append(Case(operation, self._time_of(operation)))

    def _takes_too_long(self, operation: Operation) -> bool:
        """Whether a few rounds with this message would not fit, by the time of the next smaller one."""
        smaller = [case for case in self.ready if case.operation.collective == operation.collective]
        if not smaller:
            return False
        growth = operation.message_bytes / smaller[-1].operation.message_bytes
        expected = Case(operation, smaller[-1].operation_s * growth)
        round_s = sum(case.block_s for case in [*self.ready, expected])
        most_s = PATIENCE * self._request.measure.max_seconds
        if LEAST_MEASURED * round_s <= most_s:
            return False
        reason = (
            f"takes some {expected.operation_s:.2g} s, so that {LEAST_MEASURED} rounds with it "
            f"take more than {most_s:g} s, twice measure.max_seconds"
        )
        self._leave_out([operation.collective], operation.message_bytes, "time", reason)
        return True

    def _is_right(self, operation: Operation) -> bool:
        """Whether the result is what it should be; run by the first part, and once at the least.

        Of what the backend does not have every rank's first call is refused, before anything is sent.
        """
        fault, refused = None, None
        operation.fill()
        self._device.synchronize()
        self._team.barrier()
        try:
            operation.run()
            self._device.synchronize()
            fault = operation.fault() if self._request.part == 0 else None
        except (RuntimeError, NotImplementedError) as error:
            if not _is_refusal(error):
                raise
            refused = describe(error)
        operation.clear()
        answers: list[tuple[str | None, str | None]] = self._team.gather((refused, fault))
        for refusal, _ in answers:
            if refusal:
                self._leave_out([operation.collective], None, "unsupported", refusal)
                self._open.remove(operation.collective)
                return False
        for rank, (_, found) in zip(self._team.ranks, answers, strict=True):
            if found:
                reason = f"rank {rank}: {found}"
                self._leave_out([operation.collective], operation.message_bytes, "wrong", reason)
                return False
        return True

    def _time_of(self, operation: Operation) -> float:
        """Of one operation in s, on the slowest rank, when it is warm; of several looks the shortest.

        A look that another process disturbed would make every block of the message too short.
        """
        number = 1
        while (seconds := self._look(operation, number)) < WARM_S and number < MOST_OPERATIONS:
            number = min(4 * number, MOST_OPERATIONS)
        if seconds < BLOCK_S:
            seconds = min(seconds, *(self._look(operation, number) for _ in range(FURTHER_LOOKS)))
        return seconds / number

    def _look(self, operation: Operation, number: int) -> float:
        """Seconds of ``number`` operations, on the slowest rank."""
        self._team.barrier()
        began = perf_counter()
        for _ in range(number):
            operation.run()
        self._device.synchronize()
        slowest_s: float = max(self._team.gather(perf_counter() - began))
        return slowest_s

    def _leave_out(
        self, collectives: Sequence[Collective], message_bytes: int | None, why: WhyNot, reason: str
    ) -> None:
        self.missing += [
            NotMeasured(collective=each, message_bytes=message_bytes, why=why, reason=reason)
            for each in collectives
        ]


def _is_refusal(error: Exception) -> bool:
    """Whether a backend says that it does not have a collective, rather than that one failed."""
    words = str(error).lower()
    return isinstance(error, NotImplementedError) or any(
        sign in words for sign in ("does not support", "not supported", "not implemented", "unsupported")
    )


# For what a rank needs room where memory is promised that is not there, in messages: the message, a share of
# it, and the copy that gloo's reduce_scatter makes (pytorch pull request 118911).
MESSAGES_TAKEN = 3
GIBIBYTE = 2**30


def allocate(sizes: Sequence[int], team: Team, device: Device) -> tuple[Buffers | None, dict[int, str]]:
    """Buffers for the largest of ``sizes`` (ascending, in bytes) that fits on all ranks; why others do not.

    None where none fits. A collective call.
    """
    room_bytes, too_large = _room_bytes(team, device), dict[int, str]()
    for size in reversed(sizes):
        try:
            return team.agreed(partial(_buffers, size, team, device, room_bytes)), too_large
        except AgreedFailure as failure:
            if not failure.out_of_memory:
                raise
            too_large[size] = str(failure)
            device.release_memory()
    return None, too_large


def _buffers(size: int, team: Team, device: Device, room_bytes: int | None) -> Buffers:
    needed_bytes = MESSAGES_TAKEN * size
    if room_bytes is not None and needed_bytes > room_bytes:
        raise MemoryError(
            f"{needed_bytes / GIBIBYTE:.3g} GiB wanted, {room_bytes / GIBIBYTE:.3g} GiB left for this rank"
        )
    return Buffers(size, team, device.torch_device)


def _room_bytes(team: Team, device: Device) -> int | None:
    """What this rank may take, where it must not be tried: on a device that gives memory that it has not."""
    device.release_memory()
    available = device.available_memory() if device.overcommits else None
    limits = memory_limits(team.gather(available))
    return None if limits is None or available is None else limits[team.rank] - available.taken_bytes
