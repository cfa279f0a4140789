"""Steps as if on more devices: the real ones, whose collectives last as long as they would on so many.

The buckets, their order, what overlaps with them and the optimizer are real. Assumed is how long a bucket's
all-reduce takes; collectives of the forward pass (buffers, SyncBatchNorm) are as here. Each bucket is
all-reduced, and then holds the channel for what more devices would take longer, so that the next begins after
it. What an all-reduce takes here is measured alone before the rounds. Each step begins with the wait for the
slowest of so many devices, drawn from the steps of each rank (the variant ``local``), whose tail is taken to
be exponential: every rank waits for the same, the largest of N draws less the largest of one of each rank,
for which these wait already. What a rank is always slower by stays, and is not multiplied: the others are on
average as fast as the middle one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from queue import SimpleQueue
from statistics import median, median_low
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from raybench.analysis.simulate.timeline import AT_ONCE
from raybench.records.requests import AsIf
from raybench.records.results import HeldSteps
from raybench.spec.network import Line, all_reduce_s
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.steps.replay import ReplayBucket
from raybench.worker.strategies.ddp import Communication, Hook

Floats = NDArray[np.float64]
Lines = tuple[Line, ...]
Send = Callable[[torch.Tensor], Any]  # returns what can be waited for

SMALL_BYTES = 4096  # of a message that is all latency
MOST_SIZES = 8  # that are timed; between them times are interpolated
IN_A_ROW = 5  # messages, where a device is given them ahead
TIMED_S, LEAST_TIMES, MOST_TIMES = 0.06, 3, 15  # of a size
IDLE_S = 0.002  # before each, as between the buckets of a step: threads that wait have fallen asleep
# of the steps by which ranks differ from themselves, and how many before them are thrown away
SPREAD_S, LEAST_STEPS, MOST_STEPS, FIRST_STEPS = 2.0, 12, 300, 3
TAIL = 0.75  # quantile from which on steps are taken to be exponentially late: few of them say how late
DRAWS, GOLDEN = 4096, (math.sqrt(5) - 1) / 2
ENDS_S = 1.0  # a thread that waits for nothing
SHORTEST_PAUSE_S = 100e-6  # the system wakes a thread later than that


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


def time_alone(team: Team, device: Device, message_bytes: Sequence[float]) -> Alone:
    """Time a message of hardly any bytes, and at most eight sizes of those sent. A collective call.

    What a hook does besides, as casting, is in the step as it is.
    """
    sizes = np.unique(np.array([SMALL_BYTES, *message_bytes]))
    if len(sizes) > MOST_SIZES:
        sizes = sizes[np.linspace(0, len(sizes) - 1, MOST_SIZES).round().astype(int)]
    times = [_time_alone(team, device, int(size)) for size in sizes]
    return Alone(sizes.astype(np.float64), np.maximum.accumulate(times))


def _time_alone(team: Team, device: Device, size: int) -> float:
    buffer = torch.zeros(size // 4, device=device.torch_device)
    number = IN_A_ROW if device.kind == "cuda" else 1  # the host's part of a launch is hidden within a step

    def timed() -> float:
        device.pause(IDLE_S)
        device.synchronize()
        began = perf_counter()
        for _ in range(number):
            dist.all_reduce(buffer, group=team.data)
        device.synchronize()
        return (perf_counter() - began) / number

    timed()
    first_s = max(team.gather(timed()))
    times = range(min(max(math.ceil(TIMED_S / first_s), LEAST_TIMES), MOST_TIMES))
    # of the rank that comes last: the others wait for it first
    by_rank: list[list[float]] = team.gather([timed() for _ in times])
    return float(median(map(min, *by_rank)))


def longer_s(
    asked: AsIf, alone: Alone, message_bytes: float, size: int, backend: str, lines: Lines | None = None
) -> float:
    """By how much an all-reduce takes longer than here on ``size`` devices, in s; below 0: less.

    ``lines``: of a network, in place of the middle of that asked for. Without a network the further devices
    are joined as those here are: the steps of gloo's ring grow with the devices, those of NCCL's trees with
    their logarithm, and each link carries 2 (n - 1) / n of a message.
    """
    here_s, n, lines = alone(message_bytes), asked.world_size, lines or asked.lines
    if lines:
        return all_reduce_s(lines, message_bytes) - here_s
    steps = math.log2(n) / math.log2(size) if backend == "nccl" else (n - 1) / (size - 1)
    bytes_more = (1 - 1 / n) / (1 - 1 / size)
    latency_s = min(alone.latency_s, here_s)
    return latency_s * (steps - 1) + (here_s - latency_s) * (bytes_more - 1)


def rank_times(team: Team, device: Device, step: Callable[[], None], step_s: float) -> list[Floats]:
    """Of each rank its steps in s, less what they drift by.

    ``step``: without transfers. A collective call.
    """
    number = FIRST_STEPS + min(max(math.ceil(SPREAD_S / step_s), LEAST_STEPS), MOST_STEPS)
    stopwatch = device.stopwatch()
    team.barrier()
    stopwatch.start()
    for _ in range(number):
        step()
        stopwatch.lap()
    times = stopwatch.read()[FIRST_STEPS:]
    places = np.arange(len(times))
    drift = np.polyval(np.polyfit(places, times, 1), places)
    found: list[Floats] = team.gather(times - drift + times.mean())
    return found


def waits_s(ranks: Sequence[Floats], asked: int, seed: int) -> Floats:
    """Draws of how much later than the slowest of ``ranks`` the slowest of ``asked`` devices is, in s.

    ``ranks``: of each its steps; further devices are as these are, in turn. The largest of n values is the
    quantile of one at U^(1/n). Equal on all ranks for equal arguments.
    """
    random, middle_s = np.random.default_rng(seed), median_low([float(each.mean()) for each in ranks])
    late_s = float(np.mean([_late_s(each) for each in ranks]))
    here = np.max([_quantile(each, late_s, random.random(DRAWS)) for each in ranks], axis=0)
    drawn = [here]
    for place, times in enumerate(ranks, start=len(ranks)):
        if number := len(range(place, asked, len(ranks))):
            largest = _quantile(times, late_s, random.random(DRAWS) ** (1 / number))
            drawn.append(largest + middle_s - times.mean())
    waits = np.sort(np.max(drawn, axis=0) - here)
    # by the golden ratio: the first few, as many as a trial has steps, are nearly as all are on average
    found: Floats = waits[((0.5 + np.arange(DRAWS) * GOLDEN) % 1 * DRAWS).astype(int)]
    return found


def _late_s(times: Floats) -> float:
    """By how much those beyond ``TAIL`` are later than it, in the mean."""
    beyond = times - np.quantile(times, TAIL)
    return float(beyond[beyond > 0].mean()) if (beyond > 0).any() else 0.0


def _quantile(times: Floats, late_s: float, shares: Floats) -> Floats:
    """Of times: as they were up to ``TAIL``, from there on exponentially later by ``late_s``."""
    late = late_s * np.log((1 - TAIL) / (1 - np.maximum(shares, TAIL)))
    found: Floats = np.quantile(times, np.minimum(shares, TAIL)) + late
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
        self.failure: Exception | None = None  # of a collective, for the step to raise
        runs = (self._run_sending, self._run_arriving)
        self._threads = [Thread(target=run, name="raybench-as-if", daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    def begin(self, buffer: torch.Tensor, hold: Hold) -> torch.futures.Future[torch.Tensor]:
        """Send a bucket after those before it; done when it has arrived."""
        future = torch.futures.Future[torch.Tensor]()
        self._sending.put((buffer, hold, future))
        return future

    def close(self) -> None:
        """End the threads, which hold on to the group while they are there."""
        self._sending.put(None)
        for thread in self._threads:
            thread.join(ENDS_S)

    def _run_sending(self) -> None:
        while (item := self._sending.get()) is not None:
            buffer, hold, future = item
            try:
                self._send(buffer).wait()
            except Exception as error:  # DDP takes no error from Python: the step raises it
                self.failure = error
                future.set_result(buffer)
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
        self.failure: Exception | None = None  # NCCL's are raised where the step waits
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
        *,
        share: float,
    ) -> None:
        """``share`` of a bucket's bytes travels. A collective call."""
        self._team, self._device, self._share = team, device, share
        self._bucket_bytes = bucket_bytes

        def send(buffer: torch.Tensor) -> Any:
            return communication.send(ReplayBucket(buffer), team.data)

        # of the loss: the buckets' sum is then the mean; a hook divides in a pass of its own
        self.divisor = team.size if communication.hook is None else 1
        self._alone = time_alone(team, device, [share * each for each in bucket_bytes])
        self._backend, self._pause = device.data_backend, Pause(device)
        self._channel = StreamChannel(device, send) if device.kind == "cuda" else ThreadChannel(device, send)
        self.close = self._channel.close

    def hook_of(self, asked: AsIf) -> Hook:
        """DDP's hook for as many devices as are ``asked``."""
        known: dict[int, Hold] = {}

        def held(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations kept as strings
            buffer = bucket.buffer()
            if buffer.nbytes not in known:
                known[buffer.nbytes] = self._hold(asked, buffer.nbytes)
            return self._channel.begin(buffer, known[buffer.nbytes])

        return held

    def step_after(self, waits: Floats, step: Callable[[], None]) -> Callable[[], None]:
        """``step``, after the wait for the slowest device, of which ``waits`` are draws in s."""
        drawn = cycle(waits.tolist())

        def waiting_step() -> None:
            self._pause(next(drawn))
            step()
            if self._channel.failure is not None:
                raise self._channel.failure

        return waiting_step

    def held(self, asked: AsIf) -> HeldSteps:
        """What is added to a step, on average, beside the wait for the slowest."""
        middle, slow, fast = (
            [self._more_s(asked, size, lines) for size in self._bucket_bytes]
            for lines in (asked.lines, asked.slow_lines, asked.fast_lines)
        )
        held_s, slow_s, fast_s = (sum(max(more_s, 0.0) for more_s in each) for each in (middle, slow, fast))
        shorter_s = -sum(min(more_s, 0.0) for more_s in middle)
        return HeldSteps(
            held_s=held_s, slow_held_s=slow_s, fast_held_s=fast_s, waited_s=0.0, shorter_s=shorter_s
        )

    def _more_s(self, asked: AsIf, bucket_bytes: float, lines: Lines | None = None) -> float:
        message_bytes, team = self._share * bucket_bytes, self._team
        return longer_s(asked, self._alone, message_bytes, team.size, self._backend, lines)

    def _hold(self, asked: AsIf, bucket_bytes: int) -> Hold:
        """One of so many messages at once has its share of the channel, where latency is most of its time."""
        here_s, longer = self._alone(self._share * bucket_bytes), max(self._more_s(asked, bucket_bytes), 0.0)
        all_s, latency_s = here_s + longer, self._alone.latency_s + max(self._more_s(asked, 0), 0.0)
        if asked.lines:
            latency_s = all_reduce_s(asked.lines, 0.0)
        busy_s = max(all_s - latency_s, all_s / AT_ONCE[self._backend])
        return Hold(min(max(busy_s - here_s, 0.0), longer), longer)
