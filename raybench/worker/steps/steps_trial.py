"""A trial of steps on one rank: set up, warm up, measure in rounds, then the auxiliary measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from raybench.errors import InvalidTrialError
from raybench.machine.host import quota_periods, quota_used_up
from raybench.records.messages import Keep, OnProgress, Outcome, Progress
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import Beside, PCIeLink, StepsResult
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, MemoryPeak
from raybench.worker.group_cache import GroupCache
from raybench.worker.memory import all_known, allocator_retries, memory_limits_of_ranks
from raybench.worker.steps import flops
from raybench.worker.steps.auxiliary import AuxiliaryMeasurements
from raybench.worker.steps.rounds import LoopResult, MeasuringLoop, round_progress
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variants import VariantRun, Variants, WarmUp, warm_up
from raybench.worker.strategies.ddp import ddp_report
from raybench.worker.strategies.models import StrategyModels
from raybench.workloads.batch_counts import samples_of, tokens_of
from raybench.workloads.protocol import left_out_of


@dataclass(frozen=True)
class StepsRankReport:
    """What one rank knows of itself when the rounds are done."""

    memory: MemoryPeak
    quota_used_up: float | None
    networks: str | None
    pcie_link: PCIeLink | None
    num_recompiled: int  # graphs, within the rounds
    retries: int  # of torch's allocator, within the rounds
    samples: int  # of a micro-batch
    tokens: float | None


@dataclass(frozen=True)
class _Warm:
    """What is measured, ready for the rounds."""

    runs: list[VariantRun]
    step_s: dict[Variant, float]  # of each variant, on the slowest rank
    num_steps: int  # of what is measured
    memory: MemoryPeak  # of this rank
    leader_peaks: list[int]  # of dp's devices, as torch counts them
    retries: int  # of torch's allocator until then
    samples: int  # of a micro-batch of this rank
    tokens: float | None


class StepsTrial:
    """Everything that one rank holds while it measures one trial of steps."""

    def __init__(
        self,
        request: StepsRequest,
        team: Team,
        device: Device,
        cache: GroupCache,
        keep: Keep = lambda kept, open_: None,
    ) -> None:
        """``keep`` gets the rounds on the leader, before each auxiliary measurement."""
        self._request, self._team, self._device = request, team, device
        self._cache, self._keep = cache, keep
        self._variants: Variants | None = None
        self._models = TrialModels(request.config, team, device, cache, anchor=request.anchor)

    def run(self, on_progress: OnProgress) -> Outcome:
        """The measurement, the same on every rank but for what only the leader can know."""
        began = perf_counter()
        on_progress(Progress("set up"))
        limits = memory_limits_of_ranks(self._team, self._cache, self._device)
        stepped_alone_s = self._models.set_up(self._first_step)
        variants = self._variants = Variants(self._request, self._models, self._team, self._device)
        measured = variants.measured()
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        warm = self._warm_up(variants, measured)
        warmed_up, num_compiled = perf_counter(), self._models.num_compiled()
        self._refuse_if_nothing_compiled(num_compiled)
        periods = quota_periods()
        loop = self._measure(warm, on_progress)
        on_progress(Progress("collect"))
        reports = self._reports(warm, loop, num_compiled, quota_used_up(periods))
        result = None
        if self._team.leads:
            result = StepsResult(
                **self._of_rounds(loop),
                **self._of_ranks(reports, warm.leader_peaks),
                **self._of_model(),
                memory_limit_bytes=limits,
                missing=dict(variants.missing),
                held=variants.held,
                setup_s=set_up - began - stepped_alone_s,
                warmup_s=warmed_up - set_up + stepped_alone_s,
                warmup_steps=warm.num_steps,
            )
        self._models.drop_anchor()
        auxiliary = AuxiliaryMeasurements(
            self._request, self._models, self._team, self._device, self._cache, variants, warm.step_s
        )
        del warm  # what only the rounds ran
        step_times = tuple(loop.step_times)

        def keep(kept: StepsResult, open_: tuple[Beside, ...]) -> None:
            nonlocal step_times
            self._keep(Outcome("complete", result=kept, step_times=step_times), open_)
            step_times = ()  # they may be large, and do not change

        result = auxiliary.added_to(result, keep)
        return Outcome("complete", result=result, step_times=tuple(loop.step_times), files=auxiliary.files)

    def release(self) -> None:
        """Drop the models before their process group goes."""
        if self._variants is not None:
            self._variants.close()
        self._models.release()

    def _first_step(self, models: StrategyModels) -> None:
        flops.count_or_step(models, self._request.config, self._cache)

    def _warm_up(self, variants: Variants, measured: VariantRun) -> _Warm:
        """Warm up all variants.

        The peak of memory is read when only what is measured has warmed up: of torch's allocator, without
        what the other variants use (under FSDP without a plain copy; under DDP with the plain variant's
        optimizer state, which is the same). On CPUs the process counts, whatever it holds.
        """
        requested, devices = WarmUp.of(self._request.measure), self._models.measured.dp_devices
        self._device.reset_peak(devices)
        num_steps, step_s = warm_up(self._team, [measured], requested, self._device)
        memory = self._device.memory_peak()
        peaks = self._team.gather(self._device.peaks_of(devices))
        others = variants.others()
        step_s |= warm_up(self._team, others, requested, self._device)[1]
        runs = variants.with_as_if(variants.with_twin([*others, measured], step_s), step_s)
        runs = variants.with_replay(runs, step_s)
        runs = variants.with_anchor(runs, step_s)
        # before the rounds: a batch that cannot be read or counted must not cost them
        samples, tokens = self._team.agreed(self._count)
        return _Warm(runs, step_s, num_steps, memory, peaks[0], allocator_retries(), samples, tokens)

    def _count(self) -> tuple[int, float | None]:
        """Samples and tokens of a micro-batch of this rank."""
        workload, batch = self._models.workload, self._models.measured.batches.next()
        samples = samples_of(workload, batch, self._request.config.batch_size)
        return samples, tokens_of(workload, batch, samples)

    def _refuse_if_nothing_compiled(self, num_compiled: int) -> None:
        # equal on all ranks: they run one program
        compiles = self._request.config.setting.compile
        if compiles and num_compiled == self._models.compiled_before:
            raise InvalidTrialError(
                "compile: torch compiled nothing of this model (2.11 leaves a bare nn.Sequential as it is)"
            )

    def _measure(self, warm: _Warm, on_progress: OnProgress) -> LoopResult:
        return MeasuringLoop(
            self._team,
            warm.runs,
            self._request.measure,
            self._device,
            seed=self._request.config.seed,
            step_s=warm.step_s,
            has_loaders=self._models.has_loaders,
            names_programs=self._request.measures_beside_rounds,
            on_round=lambda number, half_width: on_progress(round_progress(number, half_width)),
        ).run()

    def _reports(
        self, warm: _Warm, loop: LoopResult, num_compiled: int, used_up: float | None
    ) -> list[StepsRankReport]:
        """Of every rank. Raises ``InvalidTrialError`` where the rounds were disturbed by a compilation."""
        report = StepsRankReport(
            memory=warm.memory,
            quota_used_up=used_up,
            networks=self._device.networks(),
            pcie_link=self._device.pcie_link(),
            num_recompiled=self._models.num_compiled() - num_compiled,
            retries=allocator_retries() - warm.retries,
            samples=warm.samples,
            tokens=warm.tokens,
        )
        reports: list[StepsRankReport] = self._team.gather(report)
        if any(report.num_recompiled for report in reports):
            raise InvalidTrialError(
                "compile: torch compiled again within the rounds: shapes of batches or the graph change"
            )
        return reports

    def _of_rounds(self, loop: LoopResult) -> dict[str, Any]:
        """Fields of the result that the rounds brought."""
        return {
            "rounds": tuple(loop.rounds),
            "stopped_by": loop.stopped_by,
            "measure_s": loop.seconds,
            "loss": loop.loss,
            "hosts": loop.hosts,
            "host_cores": loop.host_cores,
            "other_programs": loop.other_programs,
        }

    def _of_ranks(self, reports: Sequence[StepsRankReport], leader_peaks: Sequence[int]) -> dict[str, Any]:
        """Fields that the ranks know together; dp's devices have peaks in place of the ranks' own.

        No tokens where a rank counts none.
        """
        config, anchor = self._request.config, self._request.anchor
        accumulation = config.setting.gradient_accumulation
        samples = sum(report.samples for report in reports)
        tokens = all_known([report.tokens for report in reports])
        anchor_samples = None
        if anchor is not None and self._models.anchor is not None:
            larger = config.micro_batch(anchor) / config.batch_size
            anchor_samples = samples * larger * anchor.gradient_accumulation
        return {
            "samples_per_step": float(samples * accumulation),
            "tokens_per_step": None if tokens is None else float(sum(tokens) * accumulation),
            "anchor_samples_per_step": anchor_samples,
            "peak_memory_bytes": all_known(leader_peaks or [report.memory.torch for report in reports]),
            "device_memory_bytes": all_known([report.memory.device for report in reports]),
            "quota_used_up": tuple(report.quota_used_up for report in reports),
            "nccl_networks": tuple(report.networks for report in reports),
            "pcie_links": tuple(report.pcie_link for report in reports),
            "allocator_retries": tuple(report.retries for report in reports),
        }

    def _of_model(self) -> dict[str, Any]:
        """Fields that are known of model, batch and DDP."""
        config, models = self._request.config, self._models.measured
        module = None if models.wrapped is None else models.wrapped.module
        ddp = ddp_report(module, config.setting.gradient_compression)
        return {
            "batch_size": config.batch_size,
            "global_batch_size": config.global_batch_size,
            "epoch_samples": self._models.epoch_samples,
            "num_parameters": models.num_parameters or None,
            "left_out": left_out_of(models.workload),
            "flops_per_step": self._cache.flops.get(flops.flops_key(config)),
            "bucket_bytes": ddp.bucket_bytes if ddp else (),
            "gradient_bytes": ddp.gradient_bytes if ddp else None,
            "ddp_logger": ddp.logger_times_s if ddp else None,
        }
