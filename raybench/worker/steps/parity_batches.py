"""The micro-batches of a parity check: the same samples, with the same random draws, whoever takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from raybench.records.requests import Configuration
from raybench.worker.batches import Batches, make_batches
from raybench.worker.devices.base import Device
from raybench.worker.strategies.data_parallel import joined
from raybench.workloads.protocol import Workload

_SEEDS = 2**31 - 1


class SeededPieces:
    """The micro-batches of ``ranks``, rank after rank in each step, torch seeded for each by its place.

    So augmentation and dropout draw the same for a piece, whoever takes it. ``together``: one micro-batch
    of all ranks at once, as dp takes them.
    """

    prefetched = 0

    def __init__(
        self,
        config: Configuration,
        workload: Workload,
        ranks: Iterable[int],
        device: Device,
        *,
        together: bool = False,
    ) -> None:
        self._seed, self._accumulation = config.seed, config.setting.gradient_accumulation
        self._sources = {rank: _batches_of(config, workload, rank, device) for rank in ranks}
        self._pieces = self._joined_pieces() if together else self._single_pieces()

    def next(self) -> Any:
        """The next piece."""
        return next(self._pieces)

    def _single_pieces(self) -> Iterator[Any]:
        step = 0
        while True:
            for rank in self._sources:
                for micro_batch in range(self._accumulation):
                    yield self._read(step, rank, micro_batch)
            step += 1

    def _joined_pieces(self) -> Iterator[Any]:
        step = 0
        while True:
            for micro_batch in range(self._accumulation):
                yield joined([self._read(step, rank, micro_batch) for rank in self._sources])
            step += 1

    def _read(self, step: int, rank: int, micro_batch: int) -> Any:
        place = (((self._seed * 1_009 + step) * 1_000_003 + rank) * 1_009 + micro_batch) % _SEEDS
        torch.manual_seed(place)
        batch = self._sources[rank].next()
        torch.manual_seed(place)
        return batch


class RecordedLosses:
    """A workload that keeps its losses."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.losses: list[torch.Tensor] = []

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The workload's own, remembered."""
        value = self._workload.loss(model, batch)
        self.losses.append(value.detach())
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)


def _batches_of(config: Configuration, workload: Workload, rank: int, device: Device) -> Batches:
    """The rank's batches, read in this process: a loader's own processes would draw otherwise."""
    in_process = config.setting.model_copy(update={"workers": 0})
    config = config.model_copy(update={"setting": in_process})
    return make_batches(workload, config, config.batch_size, rank, device)
