"""A ``transformers.Trainer`` as a workload: its model, data, loss and optimizer, without its loop."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn

from raybench.errors import RequestError
from raybench.spec.knobs import KnobValue
from raybench.workloads.protocol import UNKNOWN_STEPS, OfLoaders, as_made, ignored, is_changed, other_sampler

WHERE = "workload.trainer"
# By these Accelerate takes a process for one of several: it would open groups, and choose a device.
LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ACCELERATE_TORCH_DEVICE", "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
)  # fmt: skip


@contextmanager
def alone() -> Iterator[None]:
    """Inside, a Trainer is made as in a process of its own: no group, no device, and a model that stays.

    Without a launcher's variables Accelerate neither joins nor opens a process group, and a Trainer chooses
    the first GPU, which is another rank's.
    """
    from transformers import Trainer

    hidden = {name: os.environ.pop(name) for name in LAUNCHER if name in os.environ}
    words = logging.getLogger("transformers.training_args")
    words.setLevel(logging.ERROR)  # it would warn of the ranks' group, which is not the Trainer's
    try:
        with (
            mock.patch.object(Trainer, "_move_model_to_device"),
            mock.patch("torch.cuda.set_device"),
        ):
            yield
    finally:
        os.environ.update(hidden)
        words.setLevel(logging.NOTSET)


class TrainerWorkload(OfLoaders):
    """What raybench needs of a Trainer that has not started."""

    def __init__(self, trainer: Any, made_by: str) -> None:
        """Raises ``RequestError`` for what is no Trainer, and for one that shards or spreads its model."""
        from transformers import Trainer

        if not isinstance(trainer, Trainer):
            rule = "a transformers.Trainer, not yet started"
            raise RequestError(f"{WHERE}: {rule} (received a {type(trainer).__name__} from {made_by})")
        if trainer.train_dataset is None:
            raise RequestError(f"{WHERE}: a Trainer with a train_dataset (received None from {made_by})")
        for name in ("is_deepspeed_enabled", "is_fsdp_enabled", "is_model_parallel"):
            if getattr(trainer, name, False):
                rule = "a Trainer that leaves its model whole, the study's strategy spreads it"
                raise RequestError(f"{WHERE}: {rule} (received one with {name} from {made_by})")
        self._trainer, self._args = trainer, trainer.args
        trainer.log = ignored  # of the loss that calls it, in every step
        self._args._n_gpu = min(self._args._n_gpu, 1)  # a rank has one device, whatever it sees
        super().__init__()
        if _counts_correct(trainer):
            self.metric = self._correct

    def model(self) -> nn.Module:
        """A copy of the Trainer's model, or a new one of its ``model_init``."""
        trainer = self._trainer
        model = copy.deepcopy(trainer.model) if trainer.model_init is None else trainer.call_model_init()
        if getattr(model, "config", None) is not None:
            model.config.use_cache = trainer.model.config.use_cache
        return model  # type: ignore[no-any-return]

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The Trainer's ``compute_loss``, of a batch that is all of an optimizer step's."""
        trainer = self._trainer
        self._be_on(next(model.parameters()).device)
        items = None
        if not isinstance(model, nn.DataParallel):  # which cannot spread a number
            _, items = trainer.get_batch_samples(iter([batch]), 1, self._args.device)
        inputs = copy.copy(batch)  # from which labels are taken out
        with trainer.compute_loss_context_manager():
            loss: torch.Tensor = trainer.compute_loss(model, inputs, num_items_in_batch=items)
        return loss.mean() if loss.dim() else loss  # of the devices of dp

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """What the Trainer would make for ``model``; of one that it was given a copy."""
        trainer, given = self._trainer, self._trainer.optimizer
        if given is not None:
            own = zip(trainer.model.parameters(), model.parameters(), strict=True)
            copied = copy.deepcopy(given, {id(theirs): ours for theirs, ours in own})
            for name, value in vars(given).items():  # what a class of its own adds, torch does not copy
                if name != "step" and not name.startswith("_optimizer"):
                    vars(copied).setdefault(name, value)
            return as_made(copied)
        before, scheduler = trainer.model, trainer.lr_scheduler
        trainer.model = model
        try:
            if is_changed(trainer, "create_optimizer_and_scheduler", ("transformers",)):
                trainer.create_optimizer_and_scheduler(UNKNOWN_STEPS)
                return trainer.optimizer  # type: ignore[no-any-return]
            return trainer.create_optimizer()  # type: ignore[no-any-return]
        finally:
            trainer.model, trainer.optimizer, trainer.lr_scheduler = before, None, scheduler

    def scheduler(self, optimizer: torch.optim.Optimizer, steps: int) -> Any:
        """What the Trainer would make; of one that it was given a copy."""
        trainer, given = self._trainer, self._trainer.lr_scheduler
        if given is not None:
            for group, rate in zip(optimizer.param_groups, given.get_last_lr(), strict=True):
                group["lr"] = rate
            return copy.deepcopy(given, {id(given.optimizer): optimizer})
        try:
            return trainer.create_scheduler(steps, optimizer)
        finally:
            trainer.lr_scheduler = None

    def after_backward(self, model: nn.Module) -> None:
        """Clip as ``max_grad_norm`` says; 0: not at all."""
        if self._args.max_grad_norm:
            nn.utils.clip_grad_norm_(model.parameters(), self._args.max_grad_norm)

    def left_out(self) -> tuple[str, ...]:
        """What is the Trainer's own and not in the steps."""
        trainer, args = self._trainer, self._args
        callbacks = [type(each) for each in trainer.callback_handler.callbacks]
        own = [f"{each.__name__}" for each in callbacks if not each.__module__.startswith("transformers.")]
        changed = [
            f"{type(trainer).__name__}.{name}"
            for name in ("training_step", "_clip_grad_norm", "_prepare_inputs")
            if is_changed(trainer, name, ("transformers",))
        ]
        parts = {
            "NEFTune": args.neftune_noise_alpha,
            "the NaN filter of the logged loss": args.logging_nan_inf_filter,
            "the count of tokens on all devices": getattr(args, "average_tokens_across_devices", False),
        }
        named = [name for name, is_there in parts.items() if is_there]
        return (*other_sampler(self.loader("train")), *own, *changed, *named)

    def knobs(self) -> Mapping[str, KnobValue]:
        """What the TrainingArguments say, for knobs that the study does not name; None: nothing."""
        args, static = self._args, getattr(self._args, "ddp_static_graph", None)
        # by a rule of the Trainer's own where its arguments do not say; a static graph finds them anyway
        finds_unused = getattr(self._trainer.accelerator.ddp_handler, "find_unused_parameters", None)
        precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "tf32" if args.tf32 else None
        return {
            "batch_size": args.per_device_train_batch_size,
            "gradient_accumulation": args.gradient_accumulation_steps,
            "precision": precision,
            "bucket_cap_mb": args.ddp_bucket_cap_mb,
            "find_unused_parameters": None if static else finds_unused,
            "broadcast_buffers": args.ddp_broadcast_buffers,
            "static_graph": static,
            "activation_checkpointing": args.gradient_checkpointing or None,
            "compile": args.torch_compile or None,
            "workers": args.dataloader_num_workers,
            "persistent_workers": args.dataloader_persistent_workers,
            "pin_memory": args.dataloader_pin_memory,
        }

    def make_loader(self, split: str) -> Any:
        """The Trainer's own, without the columns that its model does not take."""
        trainer, evaluated = self._trainer, self._trainer.eval_dataset
        if split == "train":
            return trainer.get_train_dataloader()
        if evaluated is None or isinstance(evaluated, dict):
            received = "None" if evaluated is None else f"a dict of {', '.join(evaluated)}"
            raise RequestError(f"{WHERE}: training needs one eval_dataset (received {received})")
        return trainer.get_eval_dataloader()

    def _be_on(self, device: torch.device) -> None:
        """Let code that asks the arguments for their device find the one that it runs on."""
        if self._args.device != device:
            vars(self._args)["_setup_devices"] = device
            self._trainer.accelerator.state.device = device

    def _correct(self, output: Any, batch: Any) -> int:
        return _correct_of(self._trainer, output, batch["labels"])

    # for the device, as ``compute_metrics`` does: it is for evaluations
    _correct.waits = True  # type: ignore[attr-defined]


def _counts_correct(trainer: Any) -> bool:
    """Whether ``compute_metrics`` has the accuracy of a batch, by which correct predictions are counted."""
    classes = getattr(getattr(trainer.model, "config", None), "num_labels", None)
    if trainer.compute_metrics is None or trainer.eval_dataset is None or not classes:
        return False
    try:
        loader = trainer.get_train_dataloader()
        labels = loader.collate_fn([loader.dataset[index] for index in range(2)])["labels"]
        output = SimpleNamespace(logits=torch.zeros(2, classes))
        return labels.shape == (2,) and _correct_of(trainer, output, labels) in (0, 1, 2)
    except Exception:  # made for whole sets, other shapes, or other names: then there are losses alone
        return False


def _correct_of(trainer: Any, output: Any, labels: torch.Tensor) -> int:
    from transformers import EvalPrediction

    logits = output["logits"] if isinstance(output, dict) else output.logits
    logits = logits.detach()
    if trainer.preprocess_logits_for_metrics is not None:
        logits = trainer.preprocess_logits_for_metrics(logits, labels)
    found = trainer.compute_metrics(EvalPrediction(logits.float().cpu().numpy(), labels.cpu().numpy()))
    accuracy = found.get("accuracy", found.get("eval_accuracy"))
    return round(float(accuracy) * len(labels))
