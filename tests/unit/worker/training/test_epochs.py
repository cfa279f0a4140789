"""Shares of an epoch, samples that do not depend on their reader, checkpoints that are whole or absent."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from raybench.errors import InvalidTrialError
from raybench.worker.devices.cpu import CPUDevice
from raybench.worker.training.checkpoints import STATE, Checkpoints, random_state, set_random_state
from raybench.worker.training.epochs import Part, Reader, even_sizes, shuffled, split

CPU = CPUDevice()


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
        mine = [index for part in parts for index in part.indices[: part.num_samples]]
        assert sorted(mine) == sorted(order[number * step_size : (number + 1) * step_size])
        assert {part.step_samples for part in parts} == {len(mine)}
        by_rank = [sum(part.num_samples for part in rank) for rank in step]
        assert max(by_rank) - min(by_rank) <= 1
        assert all(part.indices for part in parts)  # no forward pass without a sample
        # the mean of the ranks' gradients, each weighted by its samples, is the mean over the step
        assert sum(part.num_samples * ranks / part.step_samples for part in parts) / ranks == pytest.approx(1)
        seen += mine
    assert sorted(seen) == list(range(length))


def test_each_epoch_has_its_own_order():
    assert shuffled(50, 0, 1) == shuffled(50, 0, 1)
    assert len({tuple(shuffled(50, seed, epoch)) for seed in (0, 1) for epoch in (1, 2)}) == 4


def test_even_sizes_differ_by_one_at_most():
    assert even_sizes(7, 3) == [3, 2, 2]
    assert even_sizes(1, 3) == [1, 0, 0]


class Noisy:
    """Samples that are random each time."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        return float(torch.rand(())), random.random(), float(np.random.rand())


def test_what_is_random_in_a_sample_depends_on_its_part_only():
    reader, part = Reader(Noisy()), Part((3, 4), 2, 2, seed=11)
    torch.manual_seed(5)
    before = random_state(CPU)
    first = reader.__getitems__(part)
    after = random_state(CPU)
    assert torch.equal(before["torch"], after["torch"])  # the model's own generator is left alone
    torch.manual_seed(6)
    assert reader.__getitems__(part) == first
    assert reader.__getitems__(Part((3, 4), 2, 2, seed=12)) != first


def test_generators_go_on_where_they_stood(tmp_path):
    store = Checkpoints(tmp_path / "trial")
    store.save({"random": random_state(CPU)}, 1)
    expected = torch.rand(3).tolist(), random.random(), float(np.random.rand())
    state = store.last()
    assert state is not None
    set_random_state(state["random"], CPU)
    assert (torch.rand(3).tolist(), random.random(), float(np.random.rand())) == expected


def test_the_last_good_checkpoint_is_kept_and_older_ones_go(tmp_path):
    store = Checkpoints(tmp_path / "trial")
    assert store.last() is None
    for epoch in (1, 2, 3):
        store.save({"epoch": epoch}, epoch)
    assert [path.name for path in (tmp_path / "trial").iterdir()] == ["epoch-0003"]
    assert store.last() == {"epoch": 3}


def test_a_write_that_dies_in_the_middle_loses_its_epoch_only(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path / "trial")
    store.save({"epoch": 1}, 1)

    def dies(state: object, file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", dies)
        with pytest.raises(OSError, match="killed"):
            store.save({"epoch": 2}, 2)
    assert sorted(path.name for path in (tmp_path / "trial").iterdir()) == [".unfinished-0002", "epoch-0001"]
    assert store.last() == {"epoch": 1}
    assert [path.name for path in (tmp_path / "trial").iterdir()] == ["epoch-0001"]
    store.save({"epoch": 2}, 2)
    assert store.last() == {"epoch": 2}


def test_the_directory_is_finished_before_it_has_its_name(tmp_path):
    seen: list[Path] = []

    def finish(path: Path) -> None:
        assert (path / STATE).is_file()
        seen.append(path)

    Checkpoints(tmp_path / "trial", finish).save({}, 7)
    assert [path.name for path in seen] == [".unfinished-0007"]


def test_a_damaged_checkpoint_is_named(tmp_path):
    store = Checkpoints(tmp_path / "trial")
    store.save({}, 1)
    (tmp_path / "trial" / "epoch-0001" / STATE).write_bytes(b"broken")
    with pytest.raises(InvalidTrialError, match=r"epoch-0001/state.pt cannot be read .* remove it to begin"):
        store.last()
