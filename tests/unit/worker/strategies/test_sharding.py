"""Which models keep autocast under FSDP."""

import torchvision
from torch import nn

from raybench.worker.strategies.sharding import has_batch_norm


def test_batch_norm_keeps_autocast_under_fsdp():
    assert has_batch_norm(torchvision.models.resnet18())
    assert not has_batch_norm(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
