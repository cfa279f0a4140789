"""Copies of a model: on the same storage, training one set of weights, or with their own weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.worker.strategies.repeated_blocks import checkpoint_blocks
from raybench.workloads.protocol import Workload


class CopiedModel:
    """A model as its setting wants it, and further copies of it."""

    def __init__(
        self, workload: Workload, model: nn.Module, setting: Setting, device: torch.device | None
    ) -> None:
        """``device``: where the model is moved to; None: it stays where it is, for FSDP to shard.

        FSDP refuses weights that are not contiguous, so there ``channels_last`` is the inputs' alone: torch's
        convolutions take their layout, and bring the weights into it in each call.

        Raises ``InvalidTrialError`` where the model lacks what the setting needs.
        """
        self._workload, self._setting, self._device = workload, setting, device
        if setting.activation_checkpointing:
            checkpoint_blocks(model)
        self.model = model if device is None else self.in_layout(model.to(device))
        self.model.train()

    @property
    def gradient_bytes(self) -> int:
        """Of a whole set of gradients."""
        return sum(tensor.nbytes for tensor in self.model.parameters() if tensor.requires_grad)

    def in_layout(self, model: nn.Module) -> nn.Module:
        """``model`` with its weights in the setting's memory format."""
        layout = torch.channels_last if self._setting.channels_last else torch.preserve_format
        return model.to(memory_format=layout)

    def with_own_weights(self) -> nn.Module:
        """The same module again, with weights of its own."""
        try:
            return copy.deepcopy(self.model)
        except Exception:  # a module that cannot be copied is built again
            again = self._build_again()
            again.load_state_dict(self.model.state_dict())
            return again

    def sharing_storage(self) -> nn.Module:
        """The same module again, its parameters and buffers on the same storage, its gradients its own."""
        memo: dict[int, Any] = {}
        for parameter in self.model.parameters():
            memo[id(parameter)] = nn.Parameter(parameter.detach(), parameter.requires_grad)
        for buffer in self.model.buffers():
            memo[id(buffer)] = buffer
        try:
            shared: nn.Module = copy.deepcopy(self.model, memo)
        except Exception:  # a module that cannot be copied is built again and put on the same storage
            shared = self._build_again().to(self._device)
            tensors = (*self.model.parameters(), *self.model.buffers())
            for tensor, other in zip(tensors, (*shared.parameters(), *shared.buffers()), strict=True):
                other.data = tensor.data
        return shared

    def _build_again(self) -> nn.Module:
        model = self._workload.model()
        if self._setting.activation_checkpointing:
            checkpoint_blocks(model)
        return model.train()
