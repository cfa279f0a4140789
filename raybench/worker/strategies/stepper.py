"""One way to run a training step: a module, its optimizer, its batches, and the gradients that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from raybench.records.results import Phase
from raybench.spec.knobs import Setting
from raybench.worker.batches import Batches
from raybench.worker.communicators import default_group
from raybench.workloads.protocol import Workload

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
Mark = Callable[[Phase], None]


def _unmarked(phase: Phase) -> None:
    """In timed blocks marks would cost time."""


@dataclass(eq=False)
class Stepper:
    """A module, bare or wrapped, that is trained step by step.

    ``group``: with whom its step may communicate; None: with nobody, as on one device alone.
    ``autocast=False``: the module itself runs in the setting's precision, as FSDP's may.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    workload: Workload
    batches: Batches
    setting: Setting
    device: torch.device
    group: dist.ProcessGroup | None = None
    autocast: bool = True

    def __post_init__(self) -> None:
        self.inner = unwrapped(self.module)  # without the wrapper of DDP or DataParallel
        # what an evaluation runs: DDP's wrapper would send buffers, DataParallel's takes every device
        self.evaluated = self.module if isinstance(self.module, DataParallel) else self.inner
        self.loss: torch.Tensor | None = None  # of the last micro-batch, on the device
        # of a training trial: sees the loss and batch of each forward pass, and returns the weighted loss
        self.weigh_loss: Callable[[torch.Tensor, Any], torch.Tensor] | None = None
        self._after_backward = getattr(self.workload, "after_backward", None)
        self.batches_per_step = self.setting.gradient_accumulation
        # what keeps fp16 gradients from vanishing; switched off at other precisions
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.setting.precision == "fp16")
        self._left_out = torch.zeros(())  # steps, as gradients were not finite: counted on the device
        # a static graph is learnt in the first step, and DDP asserts where that does not synchronise
        self._may_skip_sync = not self.setting.static_graph

    def on(self, batches: Batches, group: dist.ProcessGroup | None = None) -> Stepper:
        """The same module and optimizer at other batches, whose passes may communicate with ``group``."""
        return replace(self, batches=batches, group=group)

    def step(self, mark: Mark = _unmarked) -> None:
        """One optimizer step of ``gradient_accumulation`` micro-batches.

        ``mark`` is called after each phase; the timed blocks go without it.
        """
        with default_group(self.group):
            for left in reversed(range(self.batches_per_step)):
                batch = self.batches.next()
                mark("data")
                self.loss = self.backward(batch, self._weighted, last=left == 0, mark=mark)
            self._update()
            self.optimizer.zero_grad(set_to_none=True)
            mark("optimizer")
        self._may_skip_sync = True

    def backward(
        self,
        batch: Any,
        weighted: Callable[[torch.Tensor, Any], torch.Tensor] = lambda loss, batch: loss,
        *,
        last: bool = True,
        mark: Mark = _unmarked,
    ) -> torch.Tensor:
        """Gradients of the ``weighted`` loss of one batch, added to those there are. Returns the loss.

        They are synchronised where it is the ``last`` of a step.
        """
        with default_group(self.group), self._synchronising(last):
            with self.precision_context():
                loss = self.workload.loss(self.module, batch)
            mark("forward")
            weighted(loss, batch).backward()  # type: ignore[no-untyped-call]
        mark("backward")
        return loss.detach()

    def pass_without_step(self, batch: Any) -> None:
        """A forward and a backward pass without a step: DDP orders its buckets by the first one."""
        self.backward(batch)
        self.optimizer.zero_grad(set_to_none=True)
        self._may_skip_sync = True

    @property
    def skipped_steps(self) -> int:
        """Steps that were left out, as gradients were not finite; asks the device."""
        return int(self._left_out)

    def _update(self) -> None:
        """The optimizer's step on unscaled gradients; the scaler leaves it out where one is not finite.

        Sharded gradients (DTensors) are looked at on all ranks, so all leave out the same steps. What was
        left out is counted without waiting for the device: a fused optimizer knows it there alone.
        """
        if self._after_backward is not None:
            self.scaler.unscale_(self.optimizer)  # which also looks for what is not finite: before clipping
            self._after_backward(self.inner)
        self.scaler.step(self.optimizer)
        if self.scaler.is_enabled():
            for not_finite in self.scaler._found_inf_per_device(self.optimizer).values():
                self._left_out = self._left_out + not_finite
        self.scaler.update()

    def _weighted(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        if self.weigh_loss is not None:
            loss = self.weigh_loss(loss, batch)
        elif self.batches_per_step > 1:
            loss = loss / self.batches_per_step
        scaled: torch.Tensor = self.scaler.scale(loss)
        return scaled

    def tensors(self) -> list[torch.Tensor]:
        """Weights, buffers and optimizer state: what has to be the same on all ranks.

        On a GPU without Adam's count of steps, which is on the CPU: ranks that have stepped alone correct
        their moments otherwise for a while, which changes the loss but not the time of a step.
        """
        state = [
            value
            for values in self.optimizer.state.values()
            for value in values.values()
            if isinstance(value, torch.Tensor) and value.device.type == self.device.type
        ]
        # .data: a broadcast in place into a leaf that requires a gradient
        return [tensor.data for tensor in (*self.module.parameters(), *self.module.buffers(), *state)]

    def precision_context(self) -> AbstractContextManager[Any]:
        """What a forward pass of the module runs in: autocast, unless the module casts or nothing is cast."""
        dtype = AUTOCAST.get(self.setting.precision) if self.autocast else None
        return torch.autocast(self.device.type, dtype=dtype) if dtype else nullcontext()

    def _synchronising(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients of all micro-batches but the last stay on their rank."""
        if isinstance(self.module, DistributedDataParallel):
            skips = self._may_skip_sync and not last
            return self.module.no_sync() if skips else nullcontext()
        set_fsdp_sync = getattr(self.module, "set_requires_gradient_sync", None)
        if set_fsdp_sync is not None:
            set_fsdp_sync(last)
        return nullcontext()


def unwrapped(module: nn.Module) -> nn.Module:
    """The model inside DDP or DataParallel; any other is itself."""
    inner: nn.Module = module.module if isinstance(module, DistributedDataParallel | DataParallel) else module
    return inner


def gradients_of(module: nn.Module) -> Iterator[torch.Tensor]:
    """Of each trained parameter; zeros where it has none."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            yield (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).detach()


def sample_weight(samples: int, all_samples: int, world_size: int) -> float:
    """What a rank multiplies its mean loss by, so that the gradients' mean over ranks is exact.

    DDP and FSDP average gradients over ranks, as if each had the same number of samples. With b_r samples
    on rank r, B on all and n ranks, (1/n) sum_r w_r g_r is the gradient of the mean over all B samples
    exactly when w_r = n b_r / B. A rank without samples takes any batch at weight 0. With accumulation
    ``samples`` is of the micro-batch, ``all_samples`` of all micro-batches of all ranks.
    """
    return world_size * samples / all_samples
