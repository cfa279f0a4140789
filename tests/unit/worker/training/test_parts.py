"""The shares of an epoch: every sample once, whatever the ranks."""

import pytest

from raybench.worker.training.epoch_batches import shuffled, split


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 17, 31, 32, 50, 100])
@pytest.mark.parametrize(
    ("ranks", "micro_batches", "size"), [(1, 1, 8), (2, 1, 4), (2, 3, 2), (4, 2, 1), (3, 1, 5)]
)
def test_every_sample_is_in_one_part_and_steps_do_not_depend_on_the_ranks(length, ranks, micro_batches, size):
    order = shuffled(length, seed=3, epoch=1)
    step_size = ranks * micro_batches * size
    shares = [
        split(order, step_size=step_size, ranks=ranks, rank=rank, micro_batches=micro_batches, seed=0)
        for rank in range(ranks)
    ]
    assert {len(share) for share in shares} == {-(-length // step_size)}  # every rank takes every step
    seen = []
    for number, step in enumerate(zip(*shares, strict=True)):
        parts = [part for rank in step for part in rank]
        assert len(parts) == ranks * micro_batches
        indices = [index for part in parts for index in part.indices[: part.num_samples]]
        assert sorted(indices) == sorted(order[number * step_size : (number + 1) * step_size])
        assert {part.step_samples for part in parts} == {len(indices)}
        by_rank = [sum(part.num_samples for part in rank) for rank in step]
        assert max(by_rank) - min(by_rank) <= 1
        for rank in step:
            by_part = [part.num_samples for part in rank]
            assert max(by_part) - min(by_part) <= 1
        assert all(part.indices for part in parts)  # no forward pass without a sample
        # the mean of the ranks' gradients, each weighted by its samples, is the mean over the step
        assert sum(part.num_samples * ranks / part.step_samples for part in parts) / ranks == pytest.approx(1)
        seen += indices
    assert sorted(seen) == list(range(length))


def test_each_epoch_has_its_own_order():
    assert shuffled(50, 0, 1) == shuffled(50, 0, 1)
    assert len({tuple(shuffled(50, seed, epoch)) for seed in (0, 1) for epoch in (1, 2)}) == 4
