"""The two passes of an epoch on one rank: over the training samples, and over the test samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch

from raybench.errors import InvalidTrialError
from raybench.records.requests import Configuration, TrainingRequest
from raybench.worker.batches import on_device
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.strategies.gradients import sample_weight
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.counting import Counter, Sums
from raybench.worker.training.epoch_batches import EpochBatches
from raybench.worker.training.learning_rates import LearningRates
from raybench.worker.training.parts import PRIME, Part, shuffled, split
from raybench.workloads import Workload
from raybench.workloads.protocol import dataset_of


@dataclass(frozen=True)
class TrainingData:
    """The data set's two parts, as this rank reads them."""

    train: EpochBatches
    test: EpochBatches


def training_data(config: Configuration, workload: Workload, device: Device) -> TrainingData:
    """Both parts. Raises ``InvalidTrialError`` where one has no samples."""

    def place(batch: Any) -> Any:
        return on_device(batch, device.torch_device, config.setting.channels_last)

    def batches(split_name: str) -> EpochBatches:
        dataset = dataset_of(workload, split_name)
        if not len(dataset):
            raise InvalidTrialError(f"the data set has no {split_name} samples")
        return EpochBatches(workload, dataset, config.setting, device, place)

    return TrainingData(batches("train"), batches("test"))


class Passes:
    """Runs the passes of a training trial; every call is collective."""

    def __init__(
        self, request: TrainingRequest, team: Team, device: Device, workload: Workload, data: TrainingData
    ) -> None:
        """``team``: those who train; under dp the leader alone, whose steps are those of all devices."""
        self._config, self._spec, self._team, self._device = request.config, request.training, team, device
        self._workload, self._train, self._test = workload, data.train, data.test
        self._counter = Counter(workload, device.torch_device)
        self._utilization = device.utilization_meter(request.config.cpus_per_worker)

    def utilization(self) -> float | None:
        """Of this rank's device while it trained, 0 to 1; None where it is not told."""
        return self._utilization.mean()

    def first_part(self) -> Part:
        """This rank's first micro-batch of the first epoch, or what one device gets of it."""
        part = self._epoch_steps(1)[0][0]
        if self._team.size == self._config.world_size:
            return part
        return replace(part, indices=part.indices[: self._config.batch_size])

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
        self._utilization.start()
        self._train.begin(steps)
        for index in range(len(steps)):
            rate = rates.set(stepper.optimizer, (epoch - 1) * len(steps) + index, len(steps))
            stepper.step()
            self._utilization.after_step()
        self._device.synchronize()
        seconds = perf_counter() - began
        self._utilization.stop(seconds)
        sums = self._counter.take(seconds, rate, stepper.skipped_steps - skipped)
        return self._team.gather(sums), len(steps)

    def evaluate(self, stepper: Stepper) -> list[Sums]:
        """Loss and correct predictions over the test samples, each counted once: the sums of every rank."""
        size = self._spec.test_batch_size or self._config.batch_size
        steps = split(
            range(self._test.num_samples),
            step_size=size * self._config.world_size,
            ranks=self._team.size,
            rank=self._team.rank,
            micro_batches=1,
            seed=0,
        )
        module = stepper.evaluated
        module.eval()
        stop_watching = self._counter.watch(module)
        self._team.barrier()
        began = perf_counter()
        self._test.begin(steps)
        with torch.no_grad(), stepper.precision_context():
            for _ in steps:
                batch, part = self._test.next(), self._test.part
                assert part is not None
                self._counter.add(self._workload.loss(module, batch), batch, part.num_samples)
        self._device.synchronize()
        sums = self._team.gather(self._counter.take(perf_counter() - began))
        stop_watching()
        module.train()
        return sums

    def _epoch_steps(self, epoch: int) -> list[list[Part]]:
        config = self._config
        return split(
            shuffled(self._train.num_samples, config.seed, epoch),
            step_size=config.global_batch_size,
            ranks=self._team.size,
            rank=self._team.rank,
            micro_batches=config.setting.gradient_accumulation,
            seed=config.seed * PRIME + epoch,
        )

    def _count_and_weigh(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        part = self._train.part
        assert part is not None
        self._counter.add(loss, batch, part.num_samples)
        return loss * sample_weight(part.num_samples, part.step_samples, self._team.size)
