"""In which order samples are read."""

from collections.abc import Iterator
from itertools import islice

import pytest
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler

from raybench.worker.batches import sample_order


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> int:
        return index


# 23 samples on two ranks: 11 for each, of which batches of 4 leave 3
def order(rank: int, seed: int = 0) -> Iterator[int]:
    return sample_order(Numbers(), 4, world_size=2, rank=rank, seed=seed)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_is_that_of_torchs_sampler_less_what_fills_no_batch(epoch):
    for rank in range(2):
        sampler = DistributedSampler(Numbers(), 2, rank, seed=5, drop_last=True)
        sampler.set_epoch(epoch)
        found = list(islice(order(rank, seed=5), 8 * epoch, 8 * (epoch + 1)))
        assert found == list(sampler)[:8]


def test_shares_of_an_epoch_are_disjoint_and_each_epoch_has_an_order_of_its_own():
    first, second = (list(islice(order(rank), 24)) for rank in range(2))
    for epoch in (slice(0, 8), slice(8, 16), slice(16, 24)):
        assert len({*first[epoch], *second[epoch]}) == 16
    assert first[:8] != first[8:16]


def test_the_same_seed_gives_the_same_samples():
    assert list(islice(order(0), 30)) == list(islice(order(0), 30))
    assert list(islice(order(0), 30)) != list(islice(order(0, seed=1), 30))
