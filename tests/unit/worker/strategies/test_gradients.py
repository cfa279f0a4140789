"""What a rank's loss weighs, and the gradients of a module."""

import pytest
import torch
from torch import nn

from raybench.worker.strategies.stepper import gradients_of, sample_weight


def test_weights_of_uneven_ranks_make_their_mean_the_mean_over_samples():
    sizes, values = (5, 3, 0), (2.0, 10.0, 99.0)
    mean = sum(sample_weight(b, 8, 3) * v for b, v in zip(sizes, values, strict=True)) / 3
    assert mean == pytest.approx((5 * 2.0 + 3 * 10.0) / 8)
    assert sample_weight(4, 8, 2) == 1.0


def test_a_parameter_without_a_gradient_has_zeros_and_one_that_is_not_trained_none():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 1))
    model[2].requires_grad_(False)
    model[0](torch.ones(1, 2)).sum().backward()
    first, second = gradients_of(model)
    assert torch.equal(first, torch.ones(2, 2))
    assert torch.equal(second, torch.zeros(2, 2))
