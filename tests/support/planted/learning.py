"""How well a planted model learns: epochs with losses, accuracies and times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raybench.records.requests import Configuration, TrainingRequest
from raybench.records.results import Epoch, TrainingResult
from tests.support.planted.hardware import StepCosts, truth
from tests.support.planted.noise import Noise


@dataclass(frozen=True)
class FakeLearning:
    """How well a model learns: accuracy rises to ``accuracy`` as 1 - e^(-epoch).

    ``per_device`` is what each further device adds to it, ``spread`` the standard deviation over seeds,
    which one device and several share (``paired``, 0 to 1, of it).
    """

    accuracy: float = 0.8
    per_device: float = 0.0
    spread: float = 0.002
    paired: float = 0.9
    num_train: int = 1000
    num_test: int = 10_000

    def train(
        self, request: TrainingRequest, costs: StepCosts, noise: Noise, random: np.random.Generator
    ) -> TrainingResult:
        """All epochs of ``request``; a step takes what ``truth`` says."""
        from raybench.plan.pruning import pruned_after  # brings Optuna

        config = request.config
        final = self._final_accuracy(config, random)
        epochs, stopped_by = list[Epoch](), None
        for number in range(1, request.training.epochs + 1):
            epochs.append(self._epoch(number, request, final * (1 - math.exp(-number)), costs, noise, random))
            stopped_by = pruned_after(request, epochs)
            if stopped_by is not None:
                break
        return TrainingResult(
            epochs=tuple(epochs),
            stopped_by=stopped_by,
            device_memory_bytes=(costs.memory_bytes,) * config.world_size,
            device_utilization=(0.9,) * config.world_size,
        )

    def _final_accuracy(self, config: Configuration, random: np.random.Generator) -> float:
        """What the accuracy rises to with this seed: a part of the spread is the seed's own."""
        common = np.random.default_rng(config.seed).standard_normal() * math.sqrt(self.paired)
        own = random.standard_normal() * math.sqrt(1 - self.paired)
        return float(self.accuracy + self.per_device * (config.world_size - 1) + self.spread * (common + own))

    def _epoch(
        self,
        number: int,
        request: TrainingRequest,
        accuracy: float,
        costs: StepCosts,
        noise: Noise,
        random: np.random.Generator,
    ) -> Epoch:
        config = request.config
        step_s = truth(costs, config)["step_time_s"]
        steps = -(-self.num_train // config.global_batch_size)
        return Epoch(
            epoch=number,
            steps=steps,
            samples=self._shares(config.world_size),
            learning_rate=config.optimizer.learning_rate,
            train_loss=1 - accuracy,
            train_correct=round(accuracy * self.num_train),
            train_s=(steps * step_s + costs.restart_s) * math.exp(noise.block * random.standard_normal()),
            test_loss=1 - accuracy,
            test_correct=round(accuracy * self.num_test),
            test_samples=self.num_test,
            evaluation_s=0.2 * steps * step_s,
        )

    def _shares(self, world_size: int) -> tuple[int, ...]:
        return tuple(
            self.num_train // world_size + (r < self.num_train % world_size) for r in range(world_size)
        )
