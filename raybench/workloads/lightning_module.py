"""A LightningModule as a workload: its ``training_step``, optimizer and data, without a Trainer."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from raybench.errors import RequestError
from raybench.spec.knobs import KnobValue
from raybench.workloads.protocol import UNKNOWN_STEPS, OfLoaders, as_made, ignored, is_changed, other_sampler

WHERE = "workload.lightning"
PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # one code, two packages
BATCH_INDEX = 1  # of every step: what a module does in its first batch, or every hundredth, is in none
# hooks that a Trainer calls in every step
HOOKS = (
    "on_train_batch_start", "on_before_batch_transfer", "transfer_batch_to_device", "on_before_backward",
    "backward", "on_after_backward", "on_before_optimizer_step", "configure_gradient_clipping",
    "optimizer_step", "on_before_zero_grad", "optimizer_zero_grad", "lr_scheduler_step", "on_train_batch_end",
)  # fmt: skip


class TrainingStep(nn.Module):
    """``training_step`` as a forward pass, as DDP and FSDP need it: the loss of a batch."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self._takes_index = len(inspect.signature(module.training_step).parameters) > 1

    def forward(self, batch: Any) -> Any:
        """The loss, or the dictionary that has it."""
        module: Any = self.module
        batch = module.on_after_batch_transfer(batch, 0)
        return module.training_step(batch, BATCH_INDEX) if self._takes_index else module.training_step(batch)


class LightningWorkload(OfLoaders):
    """What raybench needs of a LightningModule and its loaders."""

    def __init__(self, made: Any, made_by: str) -> None:
        """``made``: the module, or a tuple of it and a DataModule or loaders of training and validation.

        Raises ``RequestError`` for what is none, and for a module that steps its optimizers itself.
        """
        module, *data = made if isinstance(made, tuple) else (made,)
        if not _is(module, "LightningModule"):
            raise RequestError(
                f"{WHERE}: a LightningModule, alone or in a tuple with a DataModule or loaders "
                f"(received a {type(module).__name__} from {made_by})"
            )
        if not module.automatic_optimization:
            raise RequestError(
                f"{WHERE}: automatic optimization, whose steps raybench can run "
                f"(received {type(module).__name__} with automatic_optimization = False)"
            )
        module.log = module.log_dict = ignored  # each would warn that there is no Trainer
        self._module, self._data = module, data
        self._ready: list[bool] = []  # a list: a copy of this object shares what it has set up
        super().__init__()

    def prepare(self) -> None:
        """Let the DataModule download what it needs: once a node, in the process that looks at a workload."""
        for source in (*self._data, self._module):
            if hasattr(source, "prepare_data"):
                source.prepare_data()

    def model(self) -> nn.Module:
        """A copy of the module, its ``training_step`` as the forward pass."""
        self._set_up()
        return TrainingStep(copy.deepcopy(self._module))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """What ``training_step`` returns, in an evaluation too."""
        wrapped = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
        step: Any = model.module if wrapped else model
        device = next(model.parameters()).device
        if step.module.device != device:
            for module in step.modules():
                if _is(module, "LightningModule"):
                    module._device = device  # which only its own ``to`` would set
        found = model(batch)
        loss = found.get("loss") if isinstance(found, Mapping) else found
        if not isinstance(loss, torch.Tensor):
            received = f"received a {type(loss).__name__}"
            raise RequestError(f'{WHERE}: training_step returns the loss, or a dict with "loss" ({received})')
        return loss.mean() if loss.dim() else loss  # of the devices of dp

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The one of ``configure_optimizers``."""
        return as_made(_configured(model.module, UNKNOWN_STEPS)[0])

    def scheduler(self, optimizer: torch.optim.Optimizer, steps: int) -> Any:
        """The one of ``configure_optimizers``, with an optimizer of its own."""
        _, configured = _configured(copy.deepcopy(self._module), steps)
        if configured is None or not isinstance(configured, Mapping):
            return configured if configured is None else (configured, "epoch")
        scheduler = configured["scheduler"]
        if configured.get("frequency", 1) != 1:
            raise RequestError(f"{WHERE}: a scheduler of frequency 1 (received {configured['frequency']})")
        return scheduler if configured.get("interval") == "step" else (scheduler, "epoch")

    def left_out(self) -> tuple[str, ...]:
        """The module's hooks that a Trainer would call in a step, and what else its loader does."""
        owners = [self._module, *(each for each in self._data if _is(each, "LightningDataModule"))]
        changed = [name for name in HOOKS for owner in owners if is_changed(owner, name, PACKAGES)]
        if any(is_changed(each, "on_after_batch_transfer", PACKAGES) for each in owners[1:]):
            changed.append("on_after_batch_transfer")  # the module's own is in the forward pass
        return (*other_sampler(self.loader("train")), *dict.fromkeys(changed))

    def knobs(self) -> Mapping[str, KnobValue]:
        """What the training loader says, for knobs that the study does not name; None: nothing."""
        loader = self.loader("train")
        return {
            "batch_size": loader.batch_size,
            "workers": loader.num_workers,
            "persistent_workers": loader.persistent_workers,
            "pin_memory": loader.pin_memory,
        }

    def _set_up(self) -> None:
        """As a Trainer does before the first epoch, in its order; with storage, whatever is made without."""
        if self._ready:
            return
        with torch.device("cpu"):
            for each in (*self._data, self._module):
                if hasattr(each, "setup"):
                    each.setup("fit")
            self._module.configure_model()
        self._ready.append(True)

    def make_loader(self, split: str) -> Any:
        """That of the DataModule, of the module, or the one that stands in its place."""
        source = self._data[0] if self._data else self._module
        if hasattr(source, "train_dataloader"):
            self._set_up()
            found = source.train_dataloader() if split == "train" else source.val_dataloader()
            if isinstance(found, list | tuple) and len(found) == 1:
                (found,) = found
        else:  # loaders themselves
            found = dict(zip(("train", "test"), self._data, strict=False)).get(split)
        if not isinstance(found, torch.utils.data.DataLoader):
            name = "training" if split == "train" else "validation"
            raise RequestError(f"{WHERE}: one DataLoader for {name} (received a {type(found).__name__})")
        return found


def _configured(module: Any, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    """The optimizer of ``configure_optimizers`` and its scheduler, or a dict with that, or None.

    Raises ``RequestError`` for several optimizers, or none.
    """
    module._trainer = _Steps(steps)  # which a scheduler may be made of
    try:
        found = module.configure_optimizers()
    finally:
        module._trainer = None
    schedulers: Any = ()
    if isinstance(found, list | tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        found, schedulers = found
    if isinstance(found, list | tuple) and len(found) == 1:
        (found,) = found
    if isinstance(found, Mapping):
        found, schedulers = found["optimizer"], [found[name] for name in ("lr_scheduler",) if name in found]
    if not isinstance(found, torch.optim.Optimizer) or len(schedulers) > 1:
        received = f"{len(found)} optimizers" if isinstance(found, list | tuple) else type(found).__name__
        more = f" and {len(schedulers)} schedulers" if len(schedulers) > 1 else ""
        rule = "configure_optimizers returns one optimizer, and a scheduler at most"
        raise RequestError(f"{WHERE}: {rule} (received {received}{more})")
    return found, next(iter(schedulers), None)


class _Steps:
    """What there is of a Trainer: the number of steps."""

    def __init__(self, steps: int) -> None:
        self.estimated_stepping_batches = self.max_steps = steps
        self.global_step = 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"self.trainer.{name}: raybench has no Trainer, only its estimated_stepping_batches and max_steps"
        )


def _is(value: Any, name: str) -> bool:
    """Whether it is of this class of either package; what is not imported has no instances."""
    classes = (getattr(sys.modules.get(package), name, None) for package in PACKAGES)
    return any(isinstance(value, each) for each in classes if each is not None)
