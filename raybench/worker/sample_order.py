"""In which order a rank reads the samples of its share: without an end, or in iterations of a few batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from torch.utils.data import Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler


class SampleOrder(Sampler[int]):
    """Indices of one rank's samples, epoch after epoch, each in a new order; the same seed gives the same.

    Within an epoch no sample is on two ranks, and a rank has whole batches only: the rest of its share is
    dropped. Every iteration begins with a new epoch.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        *,
        world_size: int,
        rank: int,
        seed: int,
        num_batches: int | None = None,
    ) -> None:
        """``num_batches``: after which an iteration ends; None: never, so that no loader starts again.

        The data set has at least ``batch_size`` samples for each rank.
        """
        self._shuffled: DistributedSampler[Any] = DistributedSampler(
            dataset, num_replicas=world_size, rank=rank, seed=seed, drop_last=True
        )
        self._samples_of_epoch = self._shuffled.num_samples // batch_size * batch_size
        assert self._samples_of_epoch, "less than a batch for each rank"
        self._samples = None if num_batches is None else num_batches * batch_size
        self._epochs = count()

    def __iter__(self) -> Iterator[int]:
        """Indices into the data set."""
        return islice(self._endless(), self._samples)

    def _endless(self) -> Iterator[int]:
        for epoch in self._epochs:
            self._shuffled.set_epoch(epoch)
            yield from islice(self._shuffled, self._samples_of_epoch)
