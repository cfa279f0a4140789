"""Steps as if on more devices: the real ones, whose collectives last as long as they would on so many.

The buckets, their order, what overlaps with them and the optimizer are real. Assumed is only how long a
collective takes: each bucket's all-reduce is done, and then holds the channel for what more devices would
take longer, so that the next begins after it. What the all-reduce takes here is measured alone before the
rounds. Each step begins with the wait for the slowest of so many devices, drawn from what the steps of each
rank differ by among themselves (the variant ``local``): every rank waits for the same, the largest of N draws
less the largest of as many as there are ranks, which these have already. What a rank is always slower by
stays, and is not multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from queue import SimpleQueue
from statistics import median
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from raybench.analysis.simulate.timeline import AT_ONCE
from raybench.records.requests import AsIf
from raybench.spec.network import all_reduce_s
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.steps.replay import ReplayBucket
from raybench.worker.strategies.ddp import Communication, Hook

Floats = NDArray[np.float64]
Send = Callable[[torch.Tensor], torch.futures.Future[Any]]

SMALL_BYTES = 4096  # of a message that is all latency
MOST_SIZES = 8  # that are timed; between them times are interpolated
TIMED_S, LEAST_TIMES, MOST_TIMES = 0.06, 3, 15  # of a size
IDLE_S = 0.002  # before each, as between the buckets of a step: threads that wait have fallen asleep
SPREAD_S, LEAST_STEPS, MOST_STEPS = 0.5, 20, 300  # of the steps by which ranks differ from themselves
DRAWS = 4096
SHORTEST_PAUSE_S = 100e-6  # the system wakes a thread later than that


def sender(team: Team, communication: Communication) -> Send:
    """What sends a bucket as the setting does.

    Without a hook the sum is left undivided: DDP divides while it fills its buckets, a hook of one's own
    would in a pass of its own. Loss and gradients are divided before (``AsIfSteps.divisor``).
    """
    if communication.hook is None:
        return lambda buffer: _sent(buffer, team)
    hook, state = communication.hook, communication.state
    return lambda buffer: hook(state, ReplayBucket(buffer))


def _sent(buffer: torch.Tensor, team: Team) -> torch.futures.Future[Any]:
    work = dist.all_reduce(buffer, group=team.data, async_op=True)
    assert work is not None
    return work.get_future()


@dataclass(frozen=True)
class Alone:
    """What an all-reduce takes here while nothing else runs, by its bytes, once the last rank is there."""

    sizes: Floats  # ascending, in bytes
    times_s: Floats

    def __call__(self, message_bytes: float) -> float:
        """In s."""
        return float(np.interp(message_bytes, self.sizes, self.times_s))

    @property
    def latency_s(self) -> float:
        """Of a message of hardly any bytes."""
        return float(self.times_s[0])


def time_alone(team: Team, device: Device, send: Send, bucket_bytes: Sequence[int]) -> Alone:
    """Time a message of hardly any bytes, and at most eight sizes of the buckets. A collective call."""
    sizes = np.unique(np.array([SMALL_BYTES, *bucket_bytes]))
    if len(sizes) > MOST_SIZES:
        sizes = sizes[np.linspace(0, len(sizes) - 1, MOST_SIZES).round().astype(int)]
    times = [_time_alone(team, device, send, int(size)) for size in sizes]
    return Alone(sizes.astype(np.float64), np.maximum.accumulate(times))


def _time_alone(team: Team, device: Device, send: Send, size: int) -> float:
    buffer = torch.zeros(size // 4, device=device.torch_device)

    def timed() -> float:
        device.pause(IDLE_S)
        device.synchronize()
        began = perf_counter()
        send(buffer).wait()
        device.synchronize()
        return perf_counter() - began

    timed()
    first_s = max(team.gather(timed()))
    times = range(min(max(math.ceil(TIMED_S / first_s), LEAST_TIMES), MOST_TIMES))
    # of the rank that comes last: the others wait for it first
    by_rank: list[list[float]] = team.gather([timed() for _ in times])
    return float(median(map(min, *by_rank)))


def longer_s(asked: AsIf, alone: Alone, message_bytes: float, share: float, size: int, backend: str) -> float:
    """By how much an all-reduce takes longer than here on ``size`` devices, in s.

    ``share`` of ``message_bytes`` travels. Without a network the further devices are joined as those here
    are: the steps of gloo's ring grow with the devices, those of NCCL's trees with their logarithm, and each
    link carries 2 (n - 1) / n of a message.
    """
    here_s, n = alone(message_bytes), asked.world_size
    if asked.lines:
        return max(all_reduce_s(asked.lines, share * message_bytes) - here_s, 0.0)
    steps = math.log2(n) / math.log2(size) if backend == "nccl" else (n - 1) / (size - 1)
    bytes_more = (1 - 1 / n) / (1 - 1 / size)
    latency_s = min(alone.latency_s, here_s)
    return latency_s * (steps - 1) + (here_s - latency_s) * (bytes_more - 1)


def waits_s(residuals: Sequence[Floats], step_s: float, size: int, asked: int, seed: int) -> Floats:
    """Draws of how much later than the slowest of ``size`` devices the slowest of ``asked`` is, in s.

    ``residuals``: of each rank, its steps over its own mean, less 1. Equal on all ranks for equal arguments.
    """
    random = np.random.default_rng(seed)
    drawn = np.stack([random.choice(residuals[each % len(residuals)], DRAWS) for each in range(asked)])
    found: Floats = step_s * (drawn.max(axis=0) - drawn[:size].max(axis=0))
    return found


class Pause:
    """Idle time of a device, in which what the system adds to one pause is taken off the next."""

    def __init__(self, device: Device) -> None:
        self._device, self._owed_s = device, 0.0

    def __call__(self, seconds: float) -> None:
        """As good as so long, over several calls."""
        self._owed_s += seconds
        if self._owed_s > SHORTEST_PAUSE_S:
            self._owed_s -= self._device.pause(self._owed_s)


@dataclass(frozen=True)
class Hold:
    """For how long a message holds the channel when it is through, and when it counts as arrived, in s."""

    channel_s: float
    arrives_s: float  # after it is through; at least ``channel_s``


class ThreadChannel:
    """gloo's: a thread sends a message, waits for it, and sleeps until the next may go.

    gloo has two at once, of which each has half of the link: what is latency alone passes beside another
    message, so that of the later arrival a second thread tells. Only messages that are all latency here too
    follow one another where gloo would have sent two.
    """

    def __init__(self, device: Device, send: Send) -> None:
        self._send, self._pause = send, Pause(device)
        self._sending, self._arriving = SimpleQueue[Any](), SimpleQueue[Any]()
        for run in (self._run_sending, self._run_arriving):
            Thread(target=run, name="raybench-as-if", daemon=True).start()

    def begin(self, buffer: torch.Tensor, hold: Hold) -> torch.futures.Future[torch.Tensor]:
        """Send a bucket after those before it; done when it has arrived."""
        future = torch.futures.Future[torch.Tensor]()
        self._sending.put((buffer, hold, future))
        return future

    def close(self) -> None:
        """End the threads."""
        self._sending.put(None)

    def _run_sending(self) -> None:
        while (item := self._sending.get()) is not None:
            buffer, hold, future = item
            try:
                self._send(buffer).wait()
            except Exception as error:  # DDP raises it where it waits
                future.set_exception(error)
                continue
            through = perf_counter()
            self._pause(hold.channel_s)
            if hold.arrives_s > hold.channel_s:
                self._arriving.put((through + hold.arrives_s, buffer, future))
            else:
                future.set_result(buffer)
        self._arriving.put(None)

    def _run_arriving(self) -> None:
        while (item := self._arriving.get()) is not None:
            until, buffer, future = item
            sleep(max(until - perf_counter(), 0.0))
            future.set_result(buffer)


class StreamChannel:
    """NCCL's: a stream that waits for the gradients, has them sent, and idles until the hold is over."""

    def __init__(self, device: Device, send: Send) -> None:
        self._device, self._send = device, send
        self._stream = torch.cuda.Stream(device.torch_device)  # type: ignore[no-untyped-call]

    def begin(self, buffer: torch.Tensor, hold: Hold) -> torch.futures.Future[torch.Tensor]:
        """Send a bucket after those before it; done when its hold is."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device.torch_device))
        with torch.cuda.stream(self._stream):
            self._send(buffer).wait()
            self._device.pause(hold.arrives_s)
            future = torch.futures.Future[torch.Tensor](devices=[self._device.torch_device])
            future.set_result(buffer)
        return future

    def close(self) -> None:
        """Nothing: the stream is torch's."""


class AsIfSteps:
    """What makes the steps of one trial those on more devices, on one rank."""

    def __init__(
        self,
        team: Team,
        device: Device,
        communication: Communication,
        bucket_bytes: Sequence[int],
        residuals: Sequence[Floats],
        *,
        share: float,
        step_s: float,
        seed: int,
    ) -> None:
        """``share`` of a bucket's bytes travels; ``step_s``: of a rank alone. A collective call."""
        self._team, self._device, self._share = team, device, share
        self._residuals, self._step_s, self._seed = residuals, step_s, seed
        send = sender(team, communication)
        # of the loss: the buckets' sum is then the mean, unless a hook divides
        self.divisor = team.size if communication.hook is None else 1
        self._alone = time_alone(team, device, send, bucket_bytes)
        self._backend, self._pause = device.data_backend, Pause(device)
        self._channel = StreamChannel(device, send) if device.kind == "cuda" else ThreadChannel(device, send)

    def hook_of(self, asked: AsIf) -> Hook:
        """DDP's hook for as many devices as are ``asked``."""
        known: dict[int, Hold] = {}

        def held(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
            buffer = bucket.buffer()
            if buffer.nbytes not in known:
                known[buffer.nbytes] = self._hold(asked, buffer.nbytes)
            return self._channel.begin(buffer, known[buffer.nbytes])

        return held

    def step_of(self, asked: AsIf, step: Callable[[], None]) -> Callable[[], None]:
        """``step``, after the wait for the slowest device."""
        waits = cycle(self.waits_s(asked).tolist())

        def waiting_step() -> None:
            self._pause(next(waits))
            step()

        return waiting_step

    def waits_s(self, asked: AsIf) -> Floats:
        """Draws of the wait for the slowest device, in s."""
        return waits_s(self._residuals, self._step_s, self._team.size, asked.world_size, self._seed)

    def held_s(self, asked: AsIf, bucket_bytes: Sequence[int]) -> float:
        """By how much all collectives of a step together take longer, in s."""
        return sum(self._longer_s(asked, size) for size in bucket_bytes)

    def _longer_s(self, asked: AsIf, message_bytes: int) -> float:
        return longer_s(asked, self._alone, message_bytes, self._share, self._team.size, self._backend)

    def _hold(self, asked: AsIf, message_bytes: int) -> Hold:
        """One of so many messages at once has its share of the channel, where latency is most of its time."""
        here_s, longer = self._alone(message_bytes), self._longer_s(asked, message_bytes)
        all_s, latency_s = here_s + longer, self._alone.latency_s + self._longer_s(asked, 0)
        if asked.lines:
            latency_s = all_reduce_s(asked.lines, 0.0)
        busy_s = max(all_s - latency_s, all_s / AT_ONCE[self._backend])
        return Hold(min(max(busy_s - here_s, 0.0), longer), longer)

    def close(self) -> None:
        """End what holds the channel."""
        self._channel.close()
