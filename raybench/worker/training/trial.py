"""A training trial on one rank: whole epochs with evaluation, checkpoints and an exact resume."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import torch
import torch.distributed as dist

from raybench.errors import InvalidTrialError
from raybench.records.messages import Progress
from raybench.records.requests import TrainingRequest
from raybench.records.trainings import Epoch, TrainingResult
from raybench.worker.batches import on_device
from raybench.worker.cache import Kept
from raybench.worker.communicators import Team
from raybench.worker.devices.probe import DeviceProbe, synchronize
from raybench.worker.failures import is_out_of_memory
from raybench.worker.model_memory import limits_of_ranks, refuse_without_room
from raybench.worker.outcome import OnProgress, RankResult
from raybench.worker.steps.rank_report import all_known
from raybench.worker.strategies.models import Bench
from raybench.worker.strategies.stepper import AUTOCAST, Lane, sample_weight
from raybench.worker.training.checkpoints import Checkpoints
from raybench.worker.training.counting import Counter, Sums
from raybench.worker.training.epochs import PRIME, EpochBatches, Part, shuffled, split
from raybench.worker.training.gradient_noise import NoiseProbe, undisturbed
from raybench.worker.training.saved_state import SavedTraining
from raybench.workloads import build
from raybench.workloads.protocol import metric_of

UTILIZATION_EVERY_S = 1.0  # the driver's own sample period is between 1/6 s and 1 s


@dataclass(frozen=True)
class RankFacts:
    """What each rank knows of itself when all epochs are done."""

    peak_memory_bytes: int | None
    device_memory_bytes: int | None
    utilization: float | None


class TrainingTrial:
    """Everything that one rank holds while it trains."""

    def __init__(
        self,
        request: TrainingRequest,
        team: Team,
        device: torch.device,
        kept: Kept,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._request, self._spec, self._team, self._device = request, request.training, team, device
        self._probe = DeviceProbe(device)
        self._saved = SavedTraining(request, team, device, checkpoints if self._spec.checkpoint else None)
        self._missing: dict[str, str] = {}
        self._epochs: list[Epoch] = []
        self._utilization: list[float] = []
        self._peaks: list[tuple[int | None, int | None]] = []  # after each epoch, as torch and device count
        self._refuse()
        self._workload = build(request.config.workload, request.config.data)
        self._counter = Counter(self._workload, device)
        if metric_of(self._workload) is None:
            self._missing["accuracy"] = "the workload has no metric(output, batch)"
        self._train, self._test = self._batches("train"), self._batches("test")
        self._steps_per_epoch = math.ceil(self._train.num_samples / request.config.global_batch_size)
        refuse_without_room(request.config, self._workload, team, kept)
        self._bench: Bench | None = self._make_bench(kept)
        self._noise = NoiseProbe(request, team, self._workload, self._train, self._bench)

    @classmethod
    def made_on_all_ranks(
        cls,
        request: TrainingRequest,
        team: Team,
        device: torch.device,
        kept: Kept,
        checkpoints: Checkpoints | None,
    ) -> TrainingTrial:
        """The trial of this rank; raises on every rank where it cannot be made on one. A collective call."""
        limits_of_ranks(team, kept, DeviceProbe(device))
        return team.agreed(lambda: cls(request, team, device, kept, checkpoints))

    def _refuse(self) -> None:
        """Raise ``InvalidTrialError`` for what cannot be trained."""
        if self._request.config.setting.strategy == "dp":
            raise InvalidTrialError("training is on ranks of their own: dp has one process for all devices")

    def _batches(self, split_name: str) -> EpochBatches:
        dataset = self._workload.dataset(split_name)  # type: ignore[attr-defined]
        if not len(dataset):
            raise InvalidTrialError(f"the data set has no {split_name} samples")
        layout = self._request.config.setting.channels_last
        return EpochBatches(
            self._workload,
            dataset,
            self._request.config.setting,
            self._device,
            lambda batch: on_device(batch, self._device, layout),
        )

    def _make_bench(self, kept: Kept) -> Bench:
        """The model, and one pass of the bare one alone: what fails here fails before any collective.

        FSDP trains what one device has no memory for.
        """
        request = self._request
        model = kept.model(self._workload, request.config.workload.model_dump_json(), request.config.seed)
        bench = Bench(
            self._workload,
            model,
            request.config.optimizer,
            request.config.setting,
            self._train,
            self._device,
            threads=request.config.cpus_per_worker,
        )
        bench.activate()
        try:
            with undisturbed(bench.bare.module, self._device):
                bench.bare.settle(self._train.read(self._epoch_steps(1)[0][0]))
            synchronize(self._device)
        except Exception as error:
            if not (bench.shards and is_out_of_memory(error)):
                raise
            bench.drop_bare()
        return bench

    def run(self, on_progress: OnProgress) -> RankResult:
        """All epochs that are not in a checkpoint yet; the result is the same on every rank."""
        began = perf_counter()
        on_progress(Progress("set up"))
        lane = self._prepare()
        self._epochs = self._saved.resume(lane)
        set_up, resumed_after = perf_counter() - began, len(self._epochs)
        self._probe.reset_peak()
        stop_watching = self._counter.watch(lane.module)
        lane.judge = self._judge
        for number in range(resumed_after + 1, self._spec.epochs + 1):
            on_progress(Progress("train", f"epoch {number}/{self._spec.epochs}"))
            epoch = self._epoch(lane, number)
            self._epochs.append(epoch)
            if self._spec.checkpoint:
                seconds = self._saved.save(lane, self._epochs, number * self._steps_per_epoch)
                self._epochs[-1] = epoch.model_copy(update={"checkpoint_s": seconds})
            on_progress(Progress("epoch", epoch.words(self._spec.epochs)))
        stop_watching()
        return RankResult("complete", result=self._result(lane, set_up, resumed_after))

    def release(self) -> None:
        """Drop the model before its process group goes."""
        if self._bench is not None:
            self._bench.release()
        self._bench = None

    def _prepare(self) -> Lane:
        """The lane that trains, its buckets in their final order, its generators seeded.

        The order in which a ring adds up gradients depends on the buckets: were they ordered in the first
        step, a resumed trial would differ in the last bits.
        """
        assert self._bench is not None
        if self._team.size == 1:
            lane = self._bench.bare
        else:
            lane = self._bench.wrap(self._team)
            with undisturbed(lane.module, self._device):
                lane.settle(self._train.read(self._epoch_steps(1)[0][0]))
        torch.manual_seed(self._request.config.seed * PRIME + self._team.rank)  # each rank drops other units
        self._rates = [float(group["lr"]) for group in lane.optimizer.param_groups]
        return lane

    def _epoch_steps(self, number: int) -> list[list[Part]]:
        request = self._request
        return split(
            shuffled(self._train.num_samples, request.config.seed, number),
            step_size=request.config.global_batch_size,
            ranks=self._team.size,
            rank=self._team.rank,
            micro_batches=request.config.setting.gradient_accumulation,
            seed=request.config.seed * PRIME + number,
        )

    def _judge(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        """The loss so weighted that the mean of the ranks' gradients is that of the step's samples."""
        part = self._train.part
        assert part is not None
        self._counter.add(loss, batch, part.num_samples)
        return loss * sample_weight(part.num_samples, part.step_samples, self._team.size)

    def _epoch(self, lane: Lane, number: int) -> Epoch:
        """Train, evaluate, look at the noise; the same record on every rank."""
        trained, num_steps = self._train_epoch(lane, number)
        reports: list[Sums] = self._team.gather(trained)
        self._same_buffers(lane)
        epoch = Epoch(
            epoch=number,
            steps=num_steps,
            samples=tuple(report.samples for report in reports),
            learning_rate=trained.learning_rate,
            train_loss=self._mean_loss(reports),
            train_correct=self._correct(reports),
            train_s=max(report.seconds for report in reports),
        )
        if self._spec.is_evaluated(number):
            epoch = epoch.model_copy(update=self._evaluation(lane))
        self._peaks.append((self._probe.peak_memory_bytes(), self._probe.device_memory_bytes()))
        began = perf_counter()
        noise = self._noise.after(lane, number, self._steps_per_epoch) if self._spec.noise_scale else ()
        self._probe.reset_peak()  # what raybench looks at beside is not the training's
        return epoch.model_copy(
            update={"noise": noise, "noise_s": self._slowest(perf_counter() - began) if noise else 0.0}
        )

    def _train_epoch(self, lane: Lane, number: int) -> tuple[Sums, int]:
        steps = self._epoch_steps(number)
        self._team.barrier()
        began, worked = perf_counter(), process_time()
        looked, rate = began, 0.0
        self._train.begin(steps)
        for index in range(len(steps)):
            rate = self._set_rate(lane, (number - 1) * self._steps_per_epoch + index)
            lane.step()
            if self._device.type == "cuda" and perf_counter() - looked >= UTILIZATION_EVERY_S:
                looked = perf_counter()
                self._note_utilization(self._probe.utilization())
        synchronize(self._device)
        seconds = perf_counter() - began
        if self._device.type == "cpu":
            cores = self._request.config.cpus_per_worker
            self._note_utilization((process_time() - worked) / (seconds * cores))
        return self._counter.take(seconds, rate), len(steps)

    def _note_utilization(self, share: float | None) -> None:
        if share is not None:
            self._utilization.append(share)

    def _set_rate(self, lane: Lane, step: int) -> float:
        """Set the learning rates of a step; the first group's comes back."""
        factor = self._rate_factor() * self._spec.schedule_factor(step, self._steps_per_epoch)
        for group, rate in zip(lane.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        return self._rates[0] * factor

    def _rate_factor(self) -> float:
        request = self._request
        return self._spec.learning_rate_factor(request.config.global_batch_size, request.reference_batch)

    def _same_buffers(self, lane: Lane) -> None:
        """The leader's running means and variances for all: what is evaluated is one model."""
        buffers = [buffer.data for buffer in lane.module.buffers()]
        if self._team.size > 1 and buffers:
            self._team.same_weights(buffers)

    def _evaluation(self, lane: Lane) -> dict[str, Any]:
        """Loss and correct predictions over the test samples, each counted once."""
        size = self._spec.test_batch_size or self._request.config.batch_size
        steps = split(
            range(self._test.num_samples),
            step_size=size * self._team.size,
            ranks=self._team.size,
            rank=self._team.rank,
            micro_batches=1,
            seed=0,
        )
        module = lane.inner
        module.eval()
        stop_watching = self._counter.watch(module)
        self._team.barrier()
        began = perf_counter()
        self._test.begin(steps)
        kind = AUTOCAST.get(self._request.config.setting.precision) if lane.autocast else None
        with torch.no_grad(), torch.autocast(self._device.type, dtype=kind, enabled=kind is not None):
            for _ in steps:
                batch, part = self._test.next(), self._test.part
                assert part is not None
                self._counter.add(self._workload.loss(module, batch), batch, part.num_samples)
        synchronize(self._device)
        reports = self._team.gather(self._counter.take(perf_counter() - began))
        stop_watching()
        module.train()
        return {
            "test_loss": self._mean_loss(reports),
            "test_correct": self._correct(reports),
            "test_samples": sum(report.samples for report in reports),
            "evaluation_s": max(report.seconds for report in reports),
        }

    def _mean_loss(self, reports: Sequence[Sums]) -> float:
        loss = sum(report.loss for report in reports) / sum(report.samples for report in reports)
        if not math.isfinite(loss):
            raise InvalidTrialError("the loss is not finite")
        return loss

    def _correct(self, reports: Sequence[Sums]) -> int | None:
        return None if "accuracy" in self._missing else sum(report.correct for report in reports)

    def _slowest(self, seconds: float) -> float:
        return float(max(self._team.gather(seconds)))

    def _result(self, lane: Lane, setup_s: float, resumed_after: int) -> TrainingResult:
        used = sum(self._utilization) / len(self._utilization) if self._utilization else None
        torch_peak, device_peak = (_highest(peaks[place] for peaks in self._peaks) for place in (0, 1))
        mine = RankFacts(torch_peak, device_peak, used)
        facts: list[RankFacts] = self._team.gather(mine)
        difference = self._weights_difference(lane)
        if self._noise.missing:
            self._missing["noise_scale"] = self._noise.missing
        return TrainingResult(
            epochs=tuple(self._epochs),
            global_batch_size=self._request.config.global_batch_size,
            reference_batch=self._request.reference_batch,
            peak_learning_rate=self._rates[0] * self._rate_factor(),
            setup_s=setup_s,
            resumed_after=resumed_after,
            peak_memory_bytes=all_known([rank.peak_memory_bytes for rank in facts]),
            device_memory_bytes=all_known([rank.device_memory_bytes for rank in facts]),
            device_utilization=tuple(rank.utilization for rank in facts),
            weights_difference=difference,
            missing=self._missing,
        )

    def _weights_difference(self, lane: Lane) -> float | None:
        """The largest difference of one weight between two ranks; None where there is nothing to compare."""
        if self._team.size == 1:
            return None
        if self._request.config.setting.strategy == "fsdp":
            self._missing["weights_difference"] = "each rank holds its own shard, no weight is held twice"
            return None
        largest = 0.0
        for parameter in lane.module.parameters():
            high, low = parameter.detach().clone(), parameter.detach().clone()
            dist.all_reduce(high, dist.ReduceOp.MAX, group=self._team.data)
            dist.all_reduce(low, dist.ReduceOp.MIN, group=self._team.data)
            largest = max(largest, float((high - low).abs().max())) if high.numel() else largest
        return largest


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
