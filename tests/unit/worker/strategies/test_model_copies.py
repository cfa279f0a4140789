"""Copies of a model: one set of weights, or two."""

import pytest
import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.worker.strategies.models import CopiedModel


class Workload:
    """A model with buffers, which cannot be copied where its weight is computed."""

    def __init__(self, uncopyable: bool) -> None:
        self._uncopyable = uncopyable

    def model(self) -> nn.Module:
        linear = nn.Linear(4, 4)
        return nn.Sequential(nn.utils.weight_norm(linear) if self._uncopyable else linear, nn.BatchNorm1d(4))

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).square().mean()


def pointers(module: nn.Module) -> list[int]:
    return [tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("uncopyable", [False, True])
def test_copies_share_their_storage_or_have_their_own(uncopyable):
    workload = Workload(uncopyable)
    copied = CopiedModel(workload, workload.model(), Setting(), torch.device("cpu"))
    shared, own = copied.sharing_storage(), copied.with_own_weights()
    assert pointers(shared) == pointers(copied.model)
    assert not {*map(id, shared.parameters())} & {*map(id, copied.model.parameters())}  # own gradients
    assert not {*pointers(own)} & {*pointers(copied.model)}
    for tensor, other in zip(own.state_dict().values(), copied.model.state_dict().values(), strict=True):
        assert torch.equal(tensor, other)
    assert copied.gradient_bytes == sum(4 * parameter.numel() for parameter in own.parameters())


@pytest.mark.parametrize("device", [torch.device("cpu"), None])
def test_weights_are_channels_last_but_for_those_that_fsdp_shards(device):
    """FSDP refuses weights that are not contiguous; one device alone has them as elsewhere."""
    copied = CopiedModel(Workload(False), nn.Conv2d(4, 8, 3), Setting(channels_last=True), device)
    weights = [copied.model.weight, copied.in_layout(copied.with_own_weights()).weight]
    layouts = [weight.is_contiguous(memory_format=torch.channels_last) for weight in weights]
    assert layouts == [device is not None, True]
    assert weights[0].is_contiguous() is (device is None)
