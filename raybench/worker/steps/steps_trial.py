"""A trial of steps on one rank: set up, warm up, measure in rounds, then the auxiliary measurements.

Those are energy, phases, the device's peak, loss parity, traces; measured one by
one, and none of them may cost the rounds. One that fails equally on every rank is a reason in ``missing``.
One that fails on a single rank breaks the team, as it would in the rounds; by then the leader has handed over
what there is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from raybench.errors import InvalidTrialError
from raybench.machine.host import quota_periods, quota_used_up
from raybench.records.messages import BlockStepTimes, Keep, OnProgress, Outcome, Progress, RankFile
from raybench.records.requests import AS_IF, Configuration, ProbeRequest, StepsRequest
from raybench.records.results import Beside, ProbeResult, StepsResult
from raybench.worker.communicators import Team, default_group
from raybench.worker.devices.device import Device, MemoryPeak
from raybench.worker.failures import AgreedFailure, drop_frames
from raybench.worker.group_cache import RankContext
from raybench.worker.memory import all_known, memory_limits_of_ranks
from raybench.worker.steps.meters import use_of_trial
from raybench.worker.steps.parity import loss_parity
from raybench.worker.steps.profiling import (
    data_parallel_seconds,
    gradient_timeline,
    phases_of_trial,
    traces,
)
from raybench.worker.steps.rounds import LoopResult, MeasuringLoop
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variants import VariantRun, Variants, measured_run, warm_up
from raybench.worker.strategies.ddp import bucket_bytes, gradient_bytes
from raybench.worker.strategies.models import StrategyModels, make_optimizer
from raybench.worker.strategies.stepper import AUTOCAST
from raybench.workloads.batch_counts import samples_of, tokens_of
from raybench.workloads.protocol import left_out_of

# measures on every rank: the field of a StepsResult that has the part's name, or a dict of several
Part = Callable[[], Any]
PEAK_REPEATS = 7  # at least, of matrix products
UPDATES, AHEAD_S = 7, 0.05  # of an optimizer, and for how long its device waits for them


class StepsTrial:
    """Everything that one rank holds while it measures one trial of steps."""

    def __init__(
        self, request: StepsRequest, context: RankContext, keep: Keep = lambda kept, open_: None
    ) -> None:
        """``keep`` gets the rounds on the leader, before each auxiliary measurement."""
        self._request, self._context, self._keep = request, context, keep
        self._team, self._device, self._cache = context.team, context.device, context.cache

    def run(self, on_progress: OnProgress, held: ExitStack, files: list[RankFile]) -> Outcome:
        """The measurement, the same on every rank but for what only the leader can know.

        ``held`` drops the models when it is closed, before their process group goes; ``files`` gets traces.
        """
        began, self._files = perf_counter(), files
        on_progress(Progress("set up"))
        limits = memory_limits_of_ranks(self._context)
        config, anchor = self._request.config, self._request.anchor
        self._models = TrialModels(config, self._context, self._count_or_step, anchor)
        held.callback(self._models.release)
        variants = Variants(self._request, self._models, self._team, self._device, held)
        measured = measured_run(self._models.measured, self._team, anchor)
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        of_warm_up = self._warm_up(variants, measured)
        warmed_up, num_compiled = perf_counter(), self._models.num_compiled()
        self._refuse_if_nothing_compiled(num_compiled)
        periods = quota_periods()
        loop = MeasuringLoop(self._request, self._team, self._device, variants, on_progress).run()
        on_progress(Progress("collect"))
        self._refuse_if_compiled_again(num_compiled)
        of_rounds = self._of_rounds_on_ranks(quota_used_up(periods), loop)
        result = None
        if self._team.leads:
            result = StepsResult(
                rounds=tuple(loop.rounds),
                stopped_by=loop.stopped_by,
                hosts=loop.hosts,
                host_cores=loop.host_cores,
                **of_rounds,
                **of_warm_up,
                **self._of_model(),
                memory_limit_bytes=limits,
                missing=dict(variants.missing),
                held=variants.held,
                collective_bytes=variants.collective_bytes,
                pass_collectives=variants.pass_collectives,
                setup_s=set_up - began,
                warmup_s=warmed_up - set_up,
                measure_s=loop.seconds,
            )
        self._models.drop_anchor()
        variants.runs.clear()  # with what only the rounds ran
        result = self._with_auxiliary(result, variants, tuple(loop.step_times))
        return Outcome("complete", result=result, step_times=tuple(loop.step_times))

    def _count_or_step(self, models: StrategyModels) -> None:
        """A step of the bare model, its operations counted once for each batch of a group's trials."""
        key, counted, compiled = flops_key(self._request.config), self._cache.flops, models.setting.compile
        known = key in counted
        if not known:
            # operations cannot be counted inside compiled code
            with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
                with FlopCounterMode(display=False) as counter:
                    models.bare.step()
                counted[key] = float(counter.get_total_flops())
        if known or compiled:
            models.bare.step()

    def _warm_up(self, variants: Variants, measured: VariantRun) -> dict[str, Any]:
        """Warm up all variants; fields that the ranks know together then, no tokens where a rank counts none.

        The peak of memory is read when only what is measured has warmed up: of torch's allocator, without
        what the other variants use (under FSDP without a plain copy; under DDP with the plain variant's
        optimizer state, which is the same). On CPUs the process counts, whatever it holds. The devices that
        dp drives have peaks in place of the ranks' own.
        """
        devices = self._models.measured.dp_devices
        self._device.reset_peak(devices)
        variants.add(measured)
        memory, driven = self._device.memory_peak(), self._device.peaks_of(devices)
        variants.add_others()
        # before the rounds: a batch that cannot be read or counted must not cost them
        own = (memory.torch, memory.device, driven, *self._team.agreed(self._count))
        torchs, in_all, drivens, samples, tokens = zip(*self._team.gather(own), strict=True)
        accumulation, known = self._request.config.setting.gradient_accumulation, all_known(tokens)
        return {
            "samples_per_step": float(sum(samples) * accumulation),
            "tokens_per_step": None if known is None else float(sum(known) * accumulation),
            "peak_memory_bytes": all_known(drivens[0] or torchs),
            "device_memory_bytes": all_known(in_all),
        }

    def _count(self) -> tuple[int, float | None]:
        """Samples and tokens of a micro-batch of this rank."""
        workload, batch = self._models.measured.workload, self._models.measured.batches.next()
        samples = samples_of(workload, batch, self._request.config.batch_size)
        return samples, tokens_of(workload, batch, samples)

    def _refuse_if_nothing_compiled(self, num_compiled: int) -> None:
        # equal on all ranks: they run one program
        if self._request.config.setting.compile and not num_compiled:
            raise InvalidTrialError(
                "compile: torch compiled nothing of this model (2.11 leaves a bare nn.Sequential as it is)"
            )

    def _refuse_if_compiled_again(self, num_compiled: int) -> None:
        if any(self._team.gather(self._models.num_compiled() - num_compiled)):
            raise InvalidTrialError(
                "compile: torch compiled again within the rounds: shapes of batches or the graph change"
            )

    def _of_rounds_on_ranks(self, quota: float | None, loop: LoopResult) -> dict[str, Any]:
        """Fields with a value of each rank, when the rounds are done."""
        own = {
            "quota_used_up": quota,
            "nccl_networks": self._device.networks(),
            "pcie_links": loop.pcie_link,
            "numa_nodes": self._device.numa_node(),
            "allocator_retries": loop.allocator_retries,
        }
        ranks = self._team.gather(own)
        return {name: tuple(each[name] for each in ranks) for name in own}

    def _of_model(self) -> dict[str, Any]:
        """Fields that are known of model, batch and DDP."""
        config, models = self._request.config, self._models.measured
        module = None if models.wrapped is None else models.wrapped.module
        trained = (each for each in models.copies.model.parameters() if each.requires_grad)
        return {
            "batch_size": config.batch_size,
            "global_batch_size": config.global_batch_size,
            "epoch_samples": self._models.epoch_samples,
            "num_parameters": sum(each.numel() for each in trained) or None,
            "left_out": left_out_of(models.workload),
            "flops_per_step": self._cache.flops.get(flops_key(config)),
            "bucket_bytes": bucket_bytes(module),
            "gradient_bytes": gradient_bytes(module, config.setting.gradient_compression),
        }

    def _with_auxiliary(
        self, result: StepsResult | None, variants: Variants, step_times: tuple[BlockStepTimes, ...]
    ) -> StepsResult | None:
        """The leader's ``result`` with every part that is requested and can be had. A collective call.

        The leader hands over what there is before each part. Other ranks measure the parts too, and have no
        result.
        """
        parts = self._parts(variants)
        if result is not None and not parts:
            self._keep(Outcome("complete", result=result, step_times=step_times), ())
        for done, (name, measure) in enumerate(parts.items()):
            if result is not None:
                # step times may be large, and do not change: they come with the first
                kept = Outcome("complete", result=result, step_times=() if done else step_times)
                self._keep(kept, tuple(parts)[done:])
            found, missing = self._tried(name, measure)
            if result is not None:
                result = result.model_copy(update={**found, "missing": {**result.missing, **missing}})
        return result

    def _tried(self, name: Beside, measure: Part) -> tuple[dict[str, Any], dict[Beside, str]]:
        """What a part brings, or why it cannot be had."""
        self._models.measured.activate()
        try:
            found = measure()
            return found if isinstance(found, dict) else {name: found}, {}
        except (AgreedFailure, InvalidTrialError) as failure:
            drop_frames(failure)
            self._device.release_memory()  # what was tried must not fill it for the next part
            return {}, {name: str(failure)}

    def _parts(self, variants: Variants) -> dict[Beside, Part]:
        """Those that are requested, in the order in which they are measured."""
        request, models, team, step_s = self._request, self._models.measured, self._team, variants.step_s
        config, seconds = request.config, request.measure.max_seconds
        slowest_s = max(each for name, each in step_s.items() if name not in AS_IF)
        parts: dict[Beside, Part] = {}
        if request.measures_beside_rounds and self._device.tells_utilization:  # first: it is still warm
            parts["device_use"] = partial(use_of_trial, models, team, step_s, seconds)
            parts["host_waits"] = self._host_waits
        # where DDP looks for unused parameters it keeps its first buckets, in another order
        if models.twin is not None and not models.is_sharded and not config.setting.find_unused_parameters:
            parts["gradient_timeline"] = partial(gradient_timeline, models, team, step_s, seconds)
        if request.measures_beside_rounds:
            has_plain = "plain" not in variants.missing
            parts["phases"] = partial(phases_of_trial, models, team, has_plain, slowest_s, seconds)
            is_dp = models.setting.strategy == "dp"  # which takes the samples of all at once
            if is_dp:
                parts["data_parallel"] = partial(data_parallel_seconds, models, team, slowest_s, seconds)
            parts["matrix_peak"] = self._matrix_peak
            if not is_dp and models.setting.optimizer_kernels != "fused":
                parts["optimizer"] = self._updates
            if models.wrapped is not None and team.size > 1 and not is_dp:
                plain_s, communicates = step_s.get("plain"), bool(variants.pass_collectives)
                given = config, models, team, self._cache, plain_s, seconds
                parts["parity"] = partial(loss_parity, *given, communicates=communicates)
        if request.measure.profile:  # the last: on a GPU the profiler stays, and slows what follows
            parts["profile"] = partial(self._profile, slowest_s, seconds)
        return parts

    def _host_waits(self) -> dict[str, dict[str, int] | None]:
        """Of the leader's step, which all take."""
        models = self._models.measured
        stepper = models.measured_stepper(self._team)
        own = None if stepper is None else self._device.host_waits(stepper.step)
        return {"host_waits": self._team.from_leader(own)}

    def _matrix_peak(self) -> dict[str, float | None]:
        """In FLOP/s, measured on the leader while the others wait, once for each precision of a group."""
        precision, peaks = self._request.config.setting.precision, self._cache.matrix_peaks
        key = f"{precision} {torch.get_num_threads()}"

        def measure() -> float | None:
            if key not in peaks and self._team.leads:
                peaks[key] = matrix_peak_flops_per_s(self._device, precision)
            return peaks.get(key)

        return {"matrix_peak_flops_per_s": self._team.agreed(measure)}

    def _updates(self) -> dict[str, float]:
        """The optimizer's update as it is and fused; nothing where it cannot be, or memory is short.

        As many on every rank, as one that shards its state communicates; behind a pause, so that a
        GPU has its work ahead, as in a step.
        """
        models, team, of_study = self._models.measured, self._team, self._request.config.optimizer
        stepper, device = models.measured_stepper(team), self._device
        if stepper is None or any(getattr(each, "sparse", False) for each in stepper.module.modules()):
            return {}  # no fused update takes sparse gradients
        models.renew_optimizers()  # what those have kept of their steps makes room

        def seconds(kernels: str) -> float:
            optimizer = make_optimizer(models.workload, of_study, stepper.module, kernels, stepper.group)
            trained = [each for each in stepper.module.parameters() if each.requires_grad]
            try:
                for each in trained:
                    each.grad = torch.zeros_like(each)
                with default_group(stepper.group):
                    optimizer.step()  # which makes its state
                    device.tune_pause()
                    device.pause(AHEAD_S)
                    stopwatch = device.stopwatch()
                    stopwatch.start()
                    for _ in range(UPDATES):
                        optimizer.step()
                        stopwatch.lap()
                return float(median(stopwatch.read()))
            finally:
                for each in trained:
                    each.grad = None

        own = models.setting.optimizer_kernels
        with suppress(AgreedFailure):
            return team.agreed(lambda: {"fused_update_s": seconds("fused"), "update_s": seconds(own)})
        return {}

    def _profile(self, step_s: float, max_seconds: float) -> dict[str, Any]:
        self._files += traces(self._models.measured, self._team, step_s, max_seconds)
        return {}


def flops_key(config: Configuration) -> str:
    """What the operations of a step depend on."""
    setting = config.setting
    twice = setting.activation_checkpointing  # what is computed again is counted again
    model = config.workload.model_dump_json()
    return f"{model} {config.batch_size} {setting.gradient_accumulation} {twice}"


def matrix_peak_flops_per_s(device: Device, precision: str) -> float:
    """The best of several square matrix products on this device alone, 2 n³ operations each."""
    side = device.matrix_side
    dtype = AUTOCAST.get(precision, torch.float32)
    left = torch.randn(side, side, device=device.torch_device).to(dtype)
    right = torch.randn(side, side, device=device.torch_device).to(dtype)
    device.synchronize()
    marks = [perf_counter()]
    # as long as a block: the first products only bring the clock up
    while len(marks) <= PEAK_REPEATS or marks[-1] - marks[0] < device.block_seconds:
        torch.matmul(left, right)
        device.synchronize()
        marks.append(perf_counter())
    return 2 * side**3 / min(after - before for before, after in pairwise(marks))


WARMUP_STEPS = 1  # of a probe, before a window of steps whose memory counts: it does not grow later


def probe(request: ProbeRequest, context: RankContext, on_progress: OnProgress, held: ExitStack) -> Outcome:
    """Whether a batch fits, by a few steps: the memory that every rank took, the same result on every rank.

    On CPUs the process counts, whatever it holds; so what earlier trials freed is given back first. ``held``
    drops the models when it is closed.
    """
    team, device = context.team, context.device
    on_progress(Progress("set up"))
    device.release_memory()
    team.barrier()  # before anyone looks at what is left
    limits = memory_limits_of_ranks(context, again=True)
    made = TrialModels(request.config, context, lambda models: models.bare.step())
    held.callback(made.release)
    models = made.measured
    fixed = _fixed_memory(models, team)
    measured = measured_run(models, team)
    on_progress(Progress("warm up"))
    device.reset_peak(models.dp_devices)
    warm_up(team, device, [measured], WARMUP_STEPS, request.timeout_s)
    peaks: list[MemoryPeak] = team.gather(device.memory_peak())
    result = ProbeResult(
        peak_memory_bytes=all_known(each.torch for each in peaks),
        device_memory_bytes=all_known(each.device for each in peaks),
        fixed_memory_bytes=all_known(team.gather(fixed)),
        memory_limit_bytes=limits,
    )
    return Outcome("complete", result=result)


def _fixed_memory(models: StrategyModels, team: Team) -> int | None:
    """What a step takes whatever its batch: what the first one left, gradients and buckets.

    Only on devices on which a batch that does not fit must not be tried.
    """
    memory = models.device.available_memory() if models.device.overcommits else None
    if memory is None:
        return None
    has_buckets = team.size > 1 and not models.setting.gradient_as_bucket_view
    return memory.taken_bytes + models.copies.gradient_bytes * (2 if has_buckets else 1)
