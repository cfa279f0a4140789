"""What a step sends, alone (the variant ``replay``): DDP's buckets, FSDP's gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from raybench.worker.communicators import Team, default_group
from raybench.worker.strategies.ddp import Communication, bucket_bytes
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.sharding import Collectives, Message


@dataclass
class ReplayBucket:
    """The interface of DDP's bucket, without DDP."""

    _buffer: torch.Tensor
    _index: int = 0
    _last: bool = True
    _parameters: Sequence[torch.Tensor] = ()

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[torch.Tensor]:
        return list(self._parameters)

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, in the parameters' shapes."""
        parts = torch.split(self._buffer, [each.numel() for each in self._parameters])
        return [part.view_as(each) for part, each in zip(parts, self._parameters, strict=True)]

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._last


class Replay:
    """The all-reduces of a step, as DDP would send them, with no compute alongside.

    Its buckets are a whole set of gradients: it has them only between ``activate`` and ``release``, when no
    step holds activations.
    """

    def __init__(
        self,
        bucket_bytes: Sequence[int],
        team: Team,
        device: torch.device,
        communication: Communication,
    ) -> None:
        self._sizes, self._device = bucket_bytes, device
        self._group, self._communication, self._steps = team.data, communication, 0
        # what a hook of the workload's own keeps of the real gradients is left alone
        self._sends = communication if communication.own is None else Communication()
        self._buckets: list[ReplayBucket] = []

    def make_buffers(self) -> None:
        """Take their memory; not a collective call."""
        if self._communication.own is not None and not self._steps:
            state, hook = self._communication.own()
            self._sends = Communication(hook, state)
        self._buckets = [self._bucket(index, size) for index, size in enumerate(self._sizes)]

    def _bucket(self, index: int, size_bytes: int) -> ReplayBucket:
        parameters = self._communication.parameters.get(index, ())
        dtype = parameters[0].dtype if parameters else torch.float32
        buffer = torch.zeros(size_bytes // dtype.itemsize, dtype=dtype, device=self._device)
        return ReplayBucket(buffer, index, index == len(self._sizes) - 1, parameters)

    def activate(self) -> None:
        """Step as often as DDP has: a hook may change with its calls, as PowerSGD begins to compress."""
        if not self._buckets:
            self.make_buffers()
        while self._steps < self._communication.calls[0]:
            self.step()

    def release(self) -> None:
        """Give the memory of the buckets back, and torch's PowerSGD's of what it left out of them."""
        self._buckets = []
        getattr(self._sends.state, "error_dict", {}).clear()

    def step(self) -> None:
        """Send every bucket, then wait for all."""
        self._steps += 1
        with default_group(self._group):
            all_sent = [self._sends.send(bucket, self._group) for bucket in self._buckets]
        for sent in all_sent:
            sent.wait()


class ShardedReplay:
    """The collectives of a step of FSDP, one after the other, with no compute alongside.

    Its buffers, one of each type, are as large as the largest message: it has them only in its blocks.
    """

    def __init__(
        self, collectives: Collectives, messages: Sequence[Message], team: Team, device: torch.device
    ) -> None:
        self._collectives, self._messages, self._team, self._device = collectives, messages, team, device
        self._buffers: dict[torch.dtype, torch.Tensor] = {}

    def make_buffers(self) -> None:
        """Take their memory; not a collective call."""
        largest: dict[torch.dtype, int] = {}
        for each in self._messages:
            largest[each.dtype] = max(each.elements, largest.get(each.dtype, 0))
        self._buffers = {
            dtype: torch.zeros(elements, dtype=dtype, device=self._device)
            for dtype, elements in largest.items()
        }

    activate = make_buffers

    def release(self) -> None:
        """Give it back."""
        self._buffers = {}

    def step(self) -> None:
        """Send every message."""
        for each in self._messages:
            self._collectives.send(each, self._buffers[each.dtype][: each.elements], self._team)


REPLAY_S = 0.3  # of all-reduces, while the cores that they take are counted


def communication_cores(models: StrategyModels, team: Team, replay_s: float | None) -> float | None:
    """What the all-reduces take of this rank's cores while nothing else runs; None where there are none.

    A rank that computes at the same time shares its core with them. None of a hook of the workload's own:
    with a new state it may send otherwise than it has by now. A collective call.
    """
    wrapped, communication = models.wrapped, models.communication
    if models.device.kind != "cpu" or wrapped is None or communication.own is not None or replay_s is None:
        return None
    replay = Replay(bucket_bytes(wrapped.module), team, models.device.torch_device, communication)
    replay.activate()
    replay.step()
    meter = models.device.utilization_meter(1)
    for _ in range(max(1, min(20, round(REPLAY_S / replay_s)))):
        replay.step()
    return meter.mean()
