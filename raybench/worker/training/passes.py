"""The passes of an epoch on one rank: over training and test samples, at which rates, and their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from raybench.errors import InvalidBatchError, InvalidTrialError
from raybench.records.requests import TrainingRequest
from raybench.worker.communicators import Team, default_group
from raybench.worker.devices.device import Device
from raybench.worker.strategies.stepper import Stepper, sample_weight
from raybench.worker.training.epoch_batches import PRIME, EpochBatches, Part, shuffled, split
from raybench.workloads import Workload
from raybench.workloads.batch_counts import correct_of
from raybench.workloads.protocol import dataset_of
from raybench.workloads.schedule import Schedule


class Passes:
    """Runs the passes of a training trial; every call is collective."""

    def __init__(self, request: TrainingRequest, team: Team, device: Device, workload: Workload) -> None:
        """``team``: those who train; under dp the leader alone, whose steps are those of all devices.

        Raises ``InvalidTrialError`` where a part of the data set has no samples.
        """
        self._config, self._spec, self._team, self._device = request.config, request.training, team, device
        self._workload, self._counter = workload, Counter(workload, device.torch_device)
        self._split = partial(split, ranks=team.size, rank=team.rank)
        self.train_batches, self._test = self._batches("train"), self._batches("test")
        self.utilization = list[float]()  # of this rank's device in each epoch, 0 to 1; empty where unknown

    def _batches(self, split_name: str) -> EpochBatches:
        dataset = dataset_of(self._workload, split_name)
        if not len(dataset):
            raise InvalidTrialError(f"the data set has no {split_name} samples")
        return EpochBatches(self._workload, dataset, self._config.setting, self._device)

    def first_batch(self) -> Any:
        """This rank's first micro-batch of the first epoch, or what one device gets of it."""
        part = self._epoch_steps(1)[0][0]
        if self._team.size < self._config.world_size:
            part = replace(part, indices=part.indices[: self._config.batch_size])
        return self.train_batches.read(part)

    def attach(self, stepper: Stepper) -> Callable[[], None]:
        """See what ``stepper`` trains on, and weigh its losses; what comes back ends the former.

        Each loss is weighted so that the mean of the ranks' gradients is that of the step's samples.
        """
        stop_watching = self._counter.watch(stepper.module)
        stepper.weigh_loss = self._count_and_weigh
        return stop_watching

    def train(self, stepper: Stepper, rates: LearningRates, epoch: int) -> tuple[list[Sums], int]:
        """Train for one epoch: the sums of every rank, and the number of optimizer steps."""
        steps = self._epoch_steps(epoch)
        self._team.barrier()
        began, rate, skipped = perf_counter(), 0.0, stepper.skipped_steps
        meter = self._device.utilization_meter(self._config.cpus_per_worker)
        self.train_batches.begin(steps)
        for index in range(len(steps)):
            rate = rates.set(stepper.optimizer, (epoch - 1) * len(steps) + index, len(steps))
            stepper.step()
            meter.after_step()
        self._device.synchronize()
        seconds, used = perf_counter() - began, meter.mean()
        self.utilization += [] if used is None else [used]
        sums = self._counter.take(seconds, rate, stepper.skipped_steps - skipped)
        return self._team.gather(sums), len(steps)

    def evaluate(self, stepper: Stepper) -> list[Sums]:
        """Loss and correct predictions over the test samples, each counted once: the sums of every rank."""
        order, step_size = range(self._test.num_samples), self._config.samples_per_pass
        steps = self._split(order, step_size=step_size, micro_batches=1, seed=0)
        module = stepper.evaluated
        module.eval()
        stop_watching = self._counter.watch(module)
        self._team.barrier()
        began = perf_counter()
        self._test.begin(steps)
        with torch.no_grad(), stepper.precision_context(), default_group(stepper.group):
            for _ in steps:
                batch = self._test.next()
                self._counter.add(self._workload.loss(module, batch), batch, self._test.part.num_samples)
        self._device.synchronize()
        sums = self._team.gather(self._counter.take(perf_counter() - began))
        stop_watching()
        module.train()
        return sums

    def _epoch_steps(self, epoch: int) -> list[list[Part]]:
        config = self._config
        return self._split(
            shuffled(self.train_batches.num_samples, config.seed, epoch),
            step_size=config.global_batch_size,
            micro_batches=config.setting.gradient_accumulation,
            seed=config.seed * PRIME + epoch,
        )

    def _count_and_weigh(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        part = self.train_batches.part
        self._counter.add(loss, batch, part.num_samples, trains=True)
        return loss * sample_weight(part.num_samples, part.step_samples, self._team.size)


@dataclass
class Sums:
    """What the samples of one pass add up to on this rank."""

    samples: int = 0
    loss: float = 0.0  # summed over samples
    correct: int | None = None  # None: the workload has no metric
    seconds: float = 0.0
    learning_rate: float = 0.0
    skipped_steps: int = 0  # left out by the gradient scaler


class Counter:
    """Adds up loss and correct predictions of a pass, on the device, without waiting for it."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        self._metric = getattr(workload, "metric", None)
        self._in_training = not getattr(self._metric, "waits", False)
        self._output: Any = None
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._samples, self._is_counted = 0, True

    def watch(self, module: nn.Module) -> Callable[[], None]:
        """See the outputs of ``module`` from here on; what comes back ends that."""
        return module.register_forward_hook(self._keep).remove

    def add(self, loss: torch.Tensor, batch: Any, num_samples: int, *, trains: bool = False) -> None:
        """Count a batch whose forward pass has just been made; one that stands in has no samples.

        A metric that waits for the device is not asked in training: a Trainer does not either.
        """
        self._is_counted = self._in_training or not trains
        output, self._output = self._output, None
        if not num_samples:
            return
        with torch.no_grad():
            self._samples += num_samples
            self._loss += loss.detach().double() * num_samples
            if self._metric is not None and self._is_counted:
                self._correct += correct_of(self._metric(output, batch))

    def take(self, seconds: float, learning_rate: float = 0.0, skipped_steps: int = 0) -> Sums:
        """The sums so far, and begin again at 0. Raises ``InvalidBatchError`` where a metric cannot be."""
        correct = int(self._correct) if self._metric is not None and self._is_counted else None
        if correct is not None and not 0 <= correct <= self._samples:
            raise InvalidBatchError(
                "metric(output, batch): correct predictions of the batch, from 0 to its samples "
                f"(received {correct:,} of {self._samples:,} samples)"
            )
        sums = Sums(self._samples, float(self._loss), correct, seconds, learning_rate, skipped_steps)
        self._samples = 0
        self._loss.zero_()
        self._correct.zero_()
        return sums

    def _keep(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._output = output


def mean_loss(sums: Sequence[Sums]) -> float:
    """Over the samples of all ranks. Raises ``InvalidTrialError`` where it is not finite."""
    loss = sum(of_rank.loss for of_rank in sums) / sum(of_rank.samples for of_rank in sums)
    if not math.isfinite(loss):
        raise InvalidTrialError("the loss is not finite: the training diverged")
    return loss


def correct_predictions(sums: Sequence[Sums]) -> int | None:
    """Of all ranks; None: the workload has no metric."""
    counted = [of_rank.correct for of_rank in sums if of_rank.correct is not None]
    return sum(counted) if len(counted) == len(sums) else None


class LearningRates:
    """Sets the rates of an optimizer, step by step."""

    def __init__(
        self, request: TrainingRequest, optimizer: torch.optim.Optimizer, own: Schedule | None = None
    ) -> None:
        """``optimizer`` as it was made: its rates are those of one device at the reference batch.

        ``own`` is the workload's schedule: it holds where the study asks for no warm-up.
        """
        self._spec, self._own = request.training, own
        self._base = [float(group["lr"]) for group in optimizer.param_groups]
        self._factor = request.learning_rate_factor

    def set(self, optimizer: torch.optim.Optimizer, step: int, steps_per_epoch: int) -> float:
        """Set the rates of optimizer step ``step``, from 0 over all epochs. Returns the first group's."""
        factor = self._factor * self._spec.warmup_factor(step, steps_per_epoch)
        base = self._own.rates(step) if self._own and not self._spec.warmup_epochs else self._base
        for group, rate in zip(optimizer.param_groups, base, strict=True):
            group["lr"] = rate * factor
        return base[0] * factor
