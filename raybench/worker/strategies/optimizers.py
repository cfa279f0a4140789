"""The optimizer of a model, and one state that several optimizers of the same weights share."""

from __future__ import annotations

import torch
from torch import nn

from raybench.spec.study import OptimizerSpec
from raybench.workloads.protocol import Workload, optimizer_of


def make_optimizer(workload: Workload, spec: OptimizerSpec, module: nn.Module) -> torch.optim.Optimizer:
    """The workload's own optimizer, or the study's."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    own = optimizer_of(workload, parameters)
    if own is not None:
        return own
    rate, decay = spec.learning_rate, spec.weight_decay
    if spec.name == "sgd":
        return torch.optim.SGD(parameters, rate, momentum=spec.momentum, weight_decay=decay)
    kind = torch.optim.Adam if spec.name == "adam" else torch.optim.AdamW
    return kind(parameters, rate, weight_decay=decay)


def share_state(source: torch.optim.Optimizer, target: torch.optim.Optimizer) -> None:
    """Let ``target`` update the same state tensors as ``source``, parameter by parameter."""
    groups = zip(source.param_groups, target.param_groups, strict=True)
    for source_group, target_group in groups:
        for parameter, other in zip(source_group["params"], target_group["params"], strict=True):
            target.state[other] = source.state[parameter]
