"""The batches of an epoch on one rank, read by parts: every sample once, the last step split evenly.

The samples of an optimizer step depend on the seed, the epoch and the global batch only, never on the number
of ranks; and what is random in a sample (its augmentation) on its place in the epoch, never on the process
that reads it. So one device and several train on the same steps, and a resumed trial on the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from raybench.spec.knobs import Setting
from raybench.worker.batches import loader_options, read_next
from raybench.worker.devices.device import Device
from raybench.workloads.batch_counts import samples_of
from raybench.workloads.batch_parts import on_device
from raybench.workloads.protocol import Workload, read_samples
from raybench.workloads.seeding import seeded


class Reader(Dataset[Any]):
    """The data set by parts: ``DataLoader`` hands ``__getitems__`` what its batch sampler yields."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitems__(self, part: Part) -> Any:
        """The samples of a part, the same ones whenever and wherever they are read."""
        with seeded(part.seed):
            return read_samples(self._dataset, part.indices)


class EpochBatches:
    """The batches of the epoch that was begun, on the device; ``part`` is the last one's."""

    prefetched = 0

    def __init__(self, workload: Workload, dataset: Any, setting: Setting, device: Device) -> None:
        self.num_samples = len(dataset)
        self.part: Part
        self._reader, self._parts = Reader(dataset), list[Part]()
        self._channels_last, self._device = setting.channels_last, device.torch_device
        self._workload, self._collate = workload, getattr(workload, "collate", None)
        self._left: Iterator[Part] = iter(())
        self._batches: Iterator[Any] = iter(())
        self._loader: DataLoader[Any] = DataLoader(
            self._reader,
            batch_sampler=self._parts,  # type: ignore[arg-type]  # parts, which Reader takes; of each epoch
            generator=torch.Generator(),  # of its own: the global one belongs to the model
            **loader_options(workload, setting, device, persists=True),
        )

    def begin(self, steps: Sequence[Sequence[Part]]) -> None:
        """What ``next`` brings from here on."""
        self._parts[:] = [part for step in steps for part in step]
        self._left, self._batches = iter(self._parts), iter(self._loader)

    def next(self) -> Any:
        """The next micro-batch."""
        self.part = next(self._left)
        return self._placed(read_next(self._batches), self.part)

    def read(self, part: Part) -> Any:
        """One batch, read here and now, whatever epoch is under way."""
        samples = self._reader.__getitems__(part)
        return self._placed((self._collate or default_collate)(samples), part)

    def _placed(self, batch: Any, part: Part) -> Any:
        """On the device, once it is as many samples as were read for it: losses are weighted by them."""
        samples_of(self._workload, batch, len(part.indices), "a batch of the data set")
        return on_device(batch, self._device, self._channels_last)


MOST_SEEDS = 2**63  # that torch's generators take
PRIME = 1_000_003  # separates the seeds of epochs, and of parts


@dataclass(frozen=True)
class Part:
    """One micro-batch of one rank."""

    indices: tuple[int, ...]  # of the data set
    num_samples: int  # that count: 0 where the indices only stand in, for a rank that must take part
    step_samples: int  # of all ranks in this optimizer step
    seed: int  # of what is random in the samples


def split(
    order: Sequence[int], *, step_size: int, ranks: int, rank: int, micro_batches: int, seed: int
) -> list[list[Part]]:
    """The optimizer steps of an epoch, each with the micro-batches of ``rank``.

    A step's samples are split over the ranks, then over each rank's micro-batches; only the last step may
    be short. A part without samples holds two of the step's, to be weighted with 0: its rank must take part
    in the collectives.
    """
    steps = []
    for number, begin in enumerate(range(0, len(order), step_size)):
        step = order[begin : begin + step_size]
        first, parts = (number * ranks + rank) * micro_batches, list[Part]()
        own = np.array_split(step, ranks)[rank]  # sizes differ by 1 at most, the larger first
        for place, indices in enumerate(np.array_split(own, micro_batches), start=first):
            seed_of = (seed * PRIME + place) % MOST_SEEDS
            parts.append(Part(tuple(indices.tolist()) or tuple(step[:2]), len(indices), len(step), seed_of))
        steps.append(parts)
    return steps


def shuffled(length: int, seed: int, epoch: int) -> list[int]:
    """The order of an epoch, the same on every rank."""
    generator = torch.Generator().manual_seed((seed * PRIME + epoch) % MOST_SEEDS)
    order: list[int] = torch.randperm(length, generator=generator).tolist()
    return order


@contextmanager
def state_preserved(module: nn.Module, device: Device) -> Iterator[None]:
    """Buffers and generators are afterwards what they were: the training goes on as if nothing had been."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        with device.fork_rng():
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
