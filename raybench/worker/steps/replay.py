"""The variant ``replay``: the all-reduces of a step's real buckets, with no compute beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from raybench.worker.communicators import Team
from raybench.worker.strategies.ddp import Communication


@dataclass(frozen=True)
class _ReplayBucket:
    """What a communication hook asks of DDP's bucket, without DDP."""

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
    """The all-reduces of a step, as DDP would send them, with no compute beside them."""

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
