"""A training trial on one rank: whole epochs with evaluation, checkpoints and an exact resume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from time import perf_counter

import torch

from raybench.records.messages import Keep, OnProgress, Outcome, Progress
from raybench.records.requests import TrainingRequest
from raybench.records.results import Epoch, Pruned, TrainingResult
from raybench.worker.communicators import Alone, default_group
from raybench.worker.devices.device import MemoryPeak
from raybench.worker.failures import AgreedFailure, is_out_of_memory
from raybench.worker.group_cache import GroupCache, RankContext
from raybench.worker.memory import all_known, check_model_fits
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.checkpoints import SavedTraining, keep_model
from raybench.worker.training.epoch_batches import MOST_SEEDS, PRIME, state_preserved
from raybench.worker.training.passes import LearningRates, Passes, correct_predictions, mean_loss
from raybench.workloads import build
from raybench.workloads.schedule import schedule_of


class TrainingTrial:
    """Everything that one rank holds while it trains."""

    @default_group(None)
    def __init__(
        self, request: TrainingRequest, context: RankContext, results: Path | None, keep: Keep
    ) -> None:
        """``results``: the directory, on the leader, where it can write.

        ``keep`` is called on the leader when all epochs are done, before the model is written.
        """
        from raybench.records.store import CHECKPOINTS, MODELS  # bring what reads records

        team, device, self._keep = context.team, context.device, keep
        config, spec = request.config, request.training
        self._request, self._spec, self._team, self._device = request, spec, team, device
        # dp has one process for all devices: the leader trains as if it were one large device
        self._at_work = Alone(team) if config.setting.strategy == "dp" else team
        folder = results / CHECKPOINTS / request.trial_id if spec.checkpoint and results else None
        self._saved = SavedTraining(self._at_work, device, folder)
        self._model_name = f"{MODELS}/{request.trial_id}"
        self._model_place = results / self._model_name if results else None
        self._memory = MemoryPeak(None, None)  # since the first epoch, at the end of the last
        self._driven_memory: tuple[int, ...] = ()  # of the devices that dp drives
        self._workload = build(config.workload, config.data, config.seed)
        self._passes = Passes(request, self._at_work, device, self._workload)
        check_model_fits(config, self._workload, context)
        self._models = self._make_models(context.cache)

    def run(self, on_progress: OnProgress, held: ExitStack) -> Outcome:
        """All epochs that are not in a checkpoint yet; the result is the same on every rank that trains.

        ``held``: closed before the process group goes.
        """
        held.callback(self._models.release)
        on_progress(Progress("set up"))
        stepper = self._prepare()
        if self._at_work is self._team:
            return Outcome("complete", result=self._train(stepper, on_progress))
        # the others sleep until the leader is through, or has failed: then all of them know why
        result = self._team.agreed(lambda: self._train(stepper, on_progress) if self._team.leads else None)
        return Outcome("complete", result=result)

    def _train(self, stepper: Stepper, on_progress: OnProgress) -> TrainingResult:
        steps = math.ceil(self._passes.train_batches.num_samples / self._request.config.global_batch_size)
        with default_group(stepper.group):
            own = schedule_of(self._workload, stepper.optimizer, self._spec.epochs, steps)
        rates = LearningRates(self._request, stepper.optimizer, own)
        epochs = self._saved.resume(stepper)
        resumed_after = len(epochs)
        self._device.reset_peak(self._models.dp_devices)
        detach = self._passes.attach(stepper)
        first_s = perf_counter()
        for number in range(resumed_after + 1, self._spec.epochs + 1):
            if self._stopped_by(epochs) is not None:
                break
            on_progress(Progress("train", f"epoch {number}/{self._spec.epochs}"))
            epoch = self._epoch(stepper, rates, number)
            epochs.append(epoch)
            if self._spec.checkpoint:
                self._saved.save(stepper, epochs)
            mean_s = (perf_counter() - first_s) / (number - resumed_after)
            times = {"epoch_s": epoch.elapsed_s, "left_s": mean_s * (self._spec.epochs - number)}
            on_progress(Progress("epoch", epoch.words(self._spec.epochs), times))
        detach()
        result = self._result(epochs, resumed_after)
        return self._with_model(result, stepper) if self._spec.save_model else result

    def _result(self, epochs: Sequence[Epoch], resumed_after: int) -> TrainingResult:
        """The same on every rank that trains. A collective call.

        Under dp only the leader does: of the other devices it knows what torch counts.
        """
        config, team, missing = self._request.config, self._at_work, dict[str, str]()
        if getattr(self._workload, "metric", None) is None:
            missing["accuracy"] = "the workload has no metric(output, batch)"
        own = (
            self._memory.torch,
            self._memory.device,
            self._driven_memory,
            fmean(self._passes.utilization) if self._passes.utilization else None,
        )
        torchs, devices, driven, utilization = zip(*team.gather(own), strict=True)
        sleeping = config.world_size - team.size
        return TrainingResult(
            epochs=tuple(epochs),
            resumed_after=resumed_after,
            stopped_by=self._stopped_by(epochs),
            peak_memory_bytes=driven[0] or all_known(torchs),
            device_memory_bytes=None if sleeping else all_known(devices),
            device_utilization=(*utilization, *(None,) * sleeping),
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
        if result.stopped_by is not None:
            reason = f"training was stopped after epoch {len(result.epochs)}"
        else:
            if self._at_work.leads:
                self._keep(Outcome("complete", result=result), ("model",))
            try:
                keep_model(stepper, self._models, self._at_work, self._model_place)
                return result.model_copy(update={"model": self._model_name})
            except AgreedFailure as failure:  # what is trained is not lost for it
                reason = f"it could not be written: {failure}"
        return result.model_copy(update={"missing": {**result.missing, "model": reason}})

    def _make_models(self, cache: GroupCache) -> StrategyModels:
        """The model, and one pass of the bare one alone: what fails here fails before any collective.

        FSDP trains what one device has no memory for.
        """
        config = self._request.config
        model, train = cache.model(self._workload, config), self._passes.train_batches
        models = StrategyModels(config, self._workload, model, train, self._device, batches_of_all=train)
        models.activate()
        try:
            with state_preserved(models.bare.module, self._device):
                models.bare.pass_without_step(self._passes.first_batch())
            self._device.synchronize()
        except Exception as error:
            if not (models.is_sharded and is_out_of_memory(error)):
                raise
            models.drop_bare()
        return models

    def _prepare(self) -> Stepper:
        """What is trained, its buckets in their final order, its generators seeded.

        The order in which a ring adds up gradients depends on the buckets: were they ordered in the first
        step, a resumed trial would differ in the last bits.
        """
        if self._team.size == 1:
            stepper = self._models.bare
        else:
            stepper = self._models.wrap(self._team)
            if self._at_work is self._team:
                with state_preserved(stepper.module, self._device):
                    stepper.pass_without_step(self._passes.first_batch())
        seed = self._request.config.seed * PRIME + self._team.rank  # each rank drops other units
        torch.manual_seed(seed % MOST_SEEDS)
        return stepper

    def _epoch(self, stepper: Stepper, rates: LearningRates, number: int) -> Epoch:
        """Train and evaluate; the same record on every rank."""
        sums, num_steps = self._passes.train(stepper, rates, number)
        buffers = [buffer.data for buffer in stepper.module.buffers()]
        if self._at_work.size > 1 and buffers:
            self._at_work.broadcast(buffers)  # running means and variances: what is evaluated is one model
        evaluated = self._passes.evaluate(stepper)
        self._memory = self._device.memory_peak()
        self._driven_memory = tuple(self._device.peaks_of(self._models.dp_devices))
        return Epoch(
            epoch=number,
            steps=num_steps,
            skipped_steps=sums[0].skipped_steps,
            samples=(*(of_rank.samples for of_rank in sums), *(0,) * (self._team.size - len(sums))),
            learning_rate=sums[0].learning_rate,
            train_loss=mean_loss(sums),
            train_correct=correct_predictions(sums),
            train_s=max(of_rank.seconds for of_rank in sums),
            test_loss=mean_loss(evaluated),
            test_correct=correct_predictions(evaluated),
            test_samples=sum(of_rank.samples for of_rank in evaluated),
            evaluation_s=max(of_rank.seconds for of_rank in evaluated),
        )
