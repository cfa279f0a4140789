"""Which modules of a model are its repeated blocks, and what checkpointing makes of them."""

import pytest
import torch
import torchvision
from torch import nn

from raybench.errors import InvalidTrialError
from raybench.spec.knobs import Setting
from raybench.worker.strategies.transforms import checkpointed, repeated_blocks

CHECKPOINTED = Setting(activation_checkpointing=True)


def names(model):
    by_id = {id(module): name for name, module in model.named_modules()}
    return [by_id[id(block)] for block in repeated_blocks(model)]


def test_residual_blocks_of_a_resnet():
    found = names(torchvision.models.resnet18(num_classes=10))
    assert found == [f"layer{stage}.{block}" for stage in range(1, 5) for block in range(2)]


def test_layers_of_a_transformer_inside_a_sequential():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(8, 2))
    assert names(model) == ["0.layers.0", "0.layers.1", "0.layers.2"]


def test_the_classes_that_a_transformers_model_names():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))])

    class Model(nn.Module):
        _no_split_modules = ("Layer",)

        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(), Layer()

    assert names(Model()) == ["first", "second"]  # not what is inside them


def test_the_layers_of_an_mlp_and_none_of_a_single_layer():
    assert names(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))) == ["0", "2"]
    assert repeated_blocks(nn.Linear(4, 4)) == []


def test_checkpointing_keeps_parameters_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))
    inputs, before = torch.randn(5, 4), [name for name, _ in model.named_parameters()]
    model(inputs).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    assert checkpointed(model, CHECKPOINTED) is model
    loss = model(inputs).sum()
    assert [name for name, _ in model.named_parameters()] != before  # torch's wrapper is there
    assert len(repeated_blocks(model)) == 3
    loss.backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))


def test_checkpointing_without_blocks_says_so():
    with pytest.raises(InvalidTrialError, match="no repeated blocks"):
        checkpointed(nn.Linear(4, 4), CHECKPOINTED)
