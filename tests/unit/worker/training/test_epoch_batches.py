"""Samples that do not depend on who reads them."""

import random

import numpy as np
import torch

from raybench.worker.devices.device import Device
from raybench.worker.training.checkpoints import random_state
from raybench.worker.training.epoch_batches import Part, Reader

CPU = Device()


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
