"""A training trial on one rank: whole epochs with evaluation, checkpoints and an exact resume."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from raybench.errors import CODE_FAILS
from raybench.records.messages import Keep, OnProgress, Outcome, Progress
from raybench.records.requests import TrainingRequest
from raybench.records.results import Epoch, Pruned, TrainingResult
from raybench.worker.communicators import Alone, Team
from raybench.worker.devices.device import Device, MemoryPeak
from raybench.worker.failures import is_out_of_memory
from raybench.worker.group_cache import GroupCache
from raybench.worker.memory import all_known, check_model_fits, memory_limits_of_ranks
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.checkpoints import Checkpoints, SavedTraining, keep_model
from raybench.worker.training.epoch_batches import MOST_SEEDS, PRIME, state_preserved
from raybench.worker.training.gradient_noise import GradientNoise
from raybench.worker.training.passes import (
    LearningRates,
    Passes,
    correct_predictions,
    mean_loss,
    training_data,
)
from raybench.workloads import build
from raybench.workloads.protocol import metric_of
from raybench.workloads.schedule import schedule_of


class TrainingTrial:
    """Everything that one rank holds while it trains."""

    def __init__(
        self,
        request: TrainingRequest,
        team: Team,
        device: Device,
        cache: GroupCache,
        checkpoints: Checkpoints | None,
        results: Path | None,
        keep: Keep = lambda kept, open_: None,
    ) -> None:
        """``checkpoints`` and the ``results`` directory: on the leader, where it can write.

        ``keep`` is told on the leader when all epochs are done, before the model is written.
        """
        self._keep = keep
        from raybench.records.store import MODELS  # brings what reads records: other trials do without

        config, spec = request.config, request.training
        self._request, self._spec, self._team, self._device = request, spec, team, device
        # dp has one process for all devices: the leader trains as if it were one large device
        self._at_work = Alone(team) if config.setting.strategy == "dp" else team
        kept = checkpoints if spec.checkpoint else None
        self._saved = SavedTraining(request, self._at_work, device, kept)
        self._model_name = f"{MODELS}/{request.trial_id}"
        self._model_place = results / self._model_name if results else None
        self._peaks: list[MemoryPeak] = []  # after each epoch
        self._driven_peaks: list[list[int]] = []  # of the devices that dp drives
        self._workload = build(config.workload, config.data, config.seed)
        self._data = training_data(config, self._workload, device)
        self._passes = Passes(request, self._at_work, device, self._workload, self._data)
        check_model_fits(config, self._workload, team, cache)
        self._models: StrategyModels | None = self._make_models(cache)
        self._noise = GradientNoise(request, self._at_work, self._workload, self._data.train, self._models)

    @classmethod
    def made_on_all_ranks(
        cls,
        request: TrainingRequest,
        team: Team,
        device: Device,
        cache: GroupCache,
        checkpoints: Checkpoints | None,
        results: Path | None = None,
        *,
        keep: Keep = lambda kept, open_: None,
    ) -> TrainingTrial:
        """The trial of this rank; raises on every rank where it cannot be made on one. A collective call."""
        memory_limits_of_ranks(team, cache, device)
        return team.agreed(lambda: cls(request, team, device, cache, checkpoints, results, keep))

    def run(self, on_progress: OnProgress) -> Outcome:
        """All epochs that are not in a checkpoint yet; the result is the same on every rank that trains."""
        began = perf_counter()
        on_progress(Progress("set up"))
        stepper = self._prepare()
        if self._at_work is self._team:
            return Outcome("complete", result=self._train(stepper, began, on_progress))
        return self._leader_trains(stepper, began, on_progress)

    def _leader_trains(self, stepper: Stepper, began: float, on_progress: OnProgress) -> Outcome:
        """The others sleep until the leader is through, or has failed: then all of them know why."""
        result, failure = None, None
        if self._team.leads:
            try:
                result = self._train(stepper, began, on_progress)
            except CODE_FAILS as error:
                failure = error
        self._team.agree(failure)
        return Outcome("complete", result=result)

    def _train(self, stepper: Stepper, began: float, on_progress: OnProgress) -> TrainingResult:
        steps = math.ceil(self._data.train.num_samples / self._request.config.global_batch_size)
        own = schedule_of(self._workload, stepper.optimizer, self._spec.epochs, steps)
        rates = LearningRates(self._request, stepper.optimizer, own)
        epochs = self._saved.resume(stepper)
        setup_s, resumed_after = perf_counter() - began, len(epochs)
        self._device.reset_peak(self._driven)
        detach = self._passes.attach(stepper)
        last = resumed_after if self._stopped_by(epochs) else self._spec.epochs
        first_s = perf_counter()
        for number in range(resumed_after + 1, last + 1):
            on_progress(Progress("train", f"epoch {number}/{self._spec.epochs}"))
            epoch = self._epoch(stepper, rates, number)
            epochs.append(epoch)
            if self._spec.checkpoint:
                seconds = self._saved.save(stepper, epochs, number * epoch.steps)
                epochs[-1] = epoch.model_copy(update={"checkpoint_s": seconds})
            mean_s = (perf_counter() - first_s) / (number - resumed_after)
            times = {"epoch_s": epoch.elapsed_s, "left_s": mean_s * (self._spec.epochs - number)}
            on_progress(Progress("epoch", epoch.words(self._spec.epochs), times))
            if self._stopped_by(epochs) is not None:
                break
        detach()
        result = self._result(epochs, stepper, rates, setup_s, resumed_after)
        if not self._spec.save_model:
            return result
        if result.stopped_by is not None:
            missing = {**result.missing, "model": f"training was stopped after epoch {len(epochs)}"}
            return result.model_copy(update={"missing": missing})
        return self._with_model(result, stepper)

    def _result(
        self,
        epochs: Sequence[Epoch],
        stepper: Stepper,
        rates: LearningRates,
        setup_s: float,
        resumed_after: int,
    ) -> TrainingResult:
        """The same on every rank that trains. A collective call.

        Under dp only the leader does: of the other devices it knows what torch counts.
        """
        config, team, missing = self._request.config, self._at_work, self._missing()
        own = TrainingRankReport.of(self._peaks, self._driven_peaks, self._passes.utilization())
        reports: list[TrainingRankReport] = team.gather(own)
        strategy, sleeping = config.setting.strategy, config.world_size - team.size
        difference = None
        if strategy in ONE_COPY:
            if config.world_size > 1:
                missing["weights_difference"] = ONE_COPY[strategy]
        elif team.size > 1:
            difference = _weights_difference(stepper, team)
            if not math.isfinite(difference):
                difference, missing["weights_difference"] = None, "a weight is not finite"
        return TrainingResult(
            epochs=tuple(epochs),
            global_batch_size=config.global_batch_size,
            reference_batch=self._request.reference_batch,
            peak_learning_rate=rates.peak,
            setup_s=setup_s,
            resumed_after=resumed_after,
            stopped_by=self._stopped_by(epochs),
            peak_memory_bytes=reports[0].driven or all_known(rank.memory.torch for rank in reports),
            device_memory_bytes=None if sleeping else all_known(rank.memory.device for rank in reports),
            device_utilization=(*(rank.utilization for rank in reports), *(None,) * sleeping),
            weights_difference=difference,
            missing=missing,
        )

    def _stopped_by(self, epochs: Sequence[Epoch]) -> Pruned | None:
        """The same on every rank, as the epochs are."""
        if self._request.pruner == "none":
            return None
        from raybench.plan.pruning import pruned_after  # brings Optuna: other trials do without

        return pruned_after(self._request, epochs)

    def _with_model(self, result: TrainingResult, stepper: Stepper) -> TrainingResult:
        """``result`` with where the trained model is; ``missing`` says why there is none.

        The leader hands over the epochs first: a whole model may need more memory than its shards.
        """
        assert self._models is not None
        if self._at_work.leads:
            self._keep(Outcome("complete", result=result), ("model",))
        failure = keep_model(stepper, self._models, self._at_work, self._model_place)
        if failure is None:
            return result.model_copy(update={"model": self._model_name})
        reason = f"it could not be written: {failure}"
        return result.model_copy(update={"missing": {**result.missing, "model": reason}})

    def release(self) -> None:
        """Drop the model before its process group goes."""
        if self._models is not None:
            self._models.release()
        self._models = None

    def _make_models(self, cache: GroupCache) -> StrategyModels:
        """The model, and one pass of the bare one alone: what fails here fails before any collective.

        FSDP trains what one device has no memory for.
        """
        config = self._request.config
        models = StrategyModels(
            self._workload,
            cache.model(self._workload, config.workload.model_dump_json(), config.seed),
            config.optimizer,
            config.setting,
            self._data.train,
            self._device,
            threads=config.cpus_per_worker,
            batches_of_all=self._data.train,
        )
        models.activate()
        try:
            with state_preserved(models.bare.module, self._device):
                models.bare.pass_without_step(self._first_batch())
            self._device.synchronize()
        except Exception as error:
            if not (models.is_sharded and is_out_of_memory(error)):
                raise
            models.drop_bare()
        return models

    @property
    def _driven(self) -> list[int]:
        """The devices that dp drives from this process."""
        return self._models.dp_devices if self._models is not None else []

    def _first_batch(self) -> Any:
        return self._data.train.read(self._passes.first_part())

    def _prepare(self) -> Stepper:
        """What is trained, its buckets in their final order, its generators seeded.

        The order in which a ring adds up gradients depends on the buckets: were they ordered in the first
        step, a resumed trial would differ in the last bits.
        """
        assert self._models is not None
        if self._team.size == 1:
            stepper = self._models.bare
        else:
            stepper = self._models.wrap(self._team)
            if self._at_work is self._team:
                with state_preserved(stepper.module, self._device):
                    stepper.pass_without_step(self._first_batch())
        seed = self._request.config.seed * PRIME + self._team.rank  # each rank drops other units
        torch.manual_seed(seed % MOST_SEEDS)
        return stepper

    def _epoch(self, stepper: Stepper, rates: LearningRates, number: int) -> Epoch:
        """Train, evaluate, look at the noise; the same record on every rank."""
        sums, num_steps = self._passes.train(stepper, rates, number)
        self._broadcast_buffers(stepper)
        epoch = Epoch(
            epoch=number,
            steps=num_steps,
            skipped_steps=sums[0].skipped_steps,
            samples=(*(of_rank.samples for of_rank in sums), *(0,) * (self._team.size - len(sums))),
            learning_rate=sums[0].learning_rate,
            train_loss=mean_loss(sums),
            train_correct=correct_predictions(sums),
            train_s=max(of_rank.seconds for of_rank in sums),
        )
        if self._spec.is_evaluated(number):
            epoch = self._evaluated(epoch, stepper)
        self._peaks.append(self._device.memory_peak())
        self._driven_peaks.append(self._device.peaks_of(self._driven))
        epoch = self._with_noise(epoch, stepper)
        # what raybench looks at in addition is not the training's, and the next epoch must not pay for it
        self._device.reset_peak(self._driven, at_once=True)
        return epoch

    def _evaluated(self, epoch: Epoch, stepper: Stepper) -> Epoch:
        sums = self._passes.evaluate(stepper)
        update = {
            "test_loss": mean_loss(sums),
            "test_correct": correct_predictions(sums),
            "test_samples": sum(of_rank.samples for of_rank in sums),
            "evaluation_s": max(of_rank.seconds for of_rank in sums),
        }
        return epoch.model_copy(update=update)

    def _with_noise(self, epoch: Epoch, stepper: Stepper) -> Epoch:
        if not self._spec.noise_scale:
            return epoch
        began = perf_counter()
        norms = self._noise.after(stepper, epoch.epoch, epoch.steps)
        seconds = perf_counter() - began
        if not norms:
            return epoch
        slowest_s = float(max(self._at_work.gather(seconds)))
        return epoch.model_copy(update={"noise": norms, "noise_s": slowest_s})

    def _broadcast_buffers(self, stepper: Stepper) -> None:
        """The leader's running means and variances for all: what is evaluated is one model."""
        buffers = [buffer.data for buffer in stepper.module.buffers()]
        if self._at_work.size > 1 and buffers:
            self._at_work.broadcast(buffers)

    def _missing(self) -> dict[str, str]:
        """What could not be had, and why."""
        missing = {}
        if metric_of(self._workload) is None:
            missing["accuracy"] = "the workload has no metric(output, batch)"
        if self._noise.missing:
            missing["noise_scale"] = self._noise.missing
        return missing


ONE_COPY = {  # strategies of which no weight is held twice
    "fsdp": "each rank holds its own shard, no weight is held twice",
    "dp": "the leader holds the weights, the other devices get them in every step",
}


@dataclass(frozen=True)
class TrainingRankReport:
    """What one rank knows of itself when all epochs are done."""

    memory: MemoryPeak
    driven: tuple[int, ...]  # peaks of the devices that dp drives from this process, as torch counts them
    utilization: float | None

    @classmethod
    def of(
        cls, peaks: Sequence[MemoryPeak], driven: Sequence[Sequence[int]], utilization: float | None
    ) -> TrainingRankReport:
        """From the peaks of every epoch."""
        highest = MemoryPeak(_highest(peak.torch for peak in peaks), _highest(peak.device for peak in peaks))
        return cls(highest, tuple(max(each) for each in zip(*driven, strict=True)), utilization)


def _weights_difference(stepper: Stepper, team: Team) -> float:
    """The largest difference of one weight between two ranks; not finite where a weight is not."""
    differences = [0.0]
    for parameter in stepper.module.parameters():
        high, low = parameter.detach().clone(), parameter.detach().clone()
        dist.all_reduce(high, dist.ReduceOp.MAX, group=team.data)
        dist.all_reduce(low, dist.ReduceOp.MIN, group=team.data)
        if high.numel():
            differences.append(float((high - low).abs().max()))
    return sum(differences) if any(map(math.isnan, differences)) else max(differences)


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
