"""A probe: does this batch fit in memory? A few steps of what would be trained, and what they took."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter

import torch

from raybench.records.measurements import ProbeResult
from raybench.records.messages import Progress
from raybench.records.requests import ProbeRequest
from raybench.worker.cache import Kept
from raybench.worker.communicators import Team
from raybench.worker.devices import probe as probing
from raybench.worker.model_memory import limits_of_ranks
from raybench.worker.outcome import OnProgress, RankResult
from raybench.worker.steps.rank_report import all_known
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variant_run import as_measured
from raybench.worker.steps.warmup import WarmUp, warm_up
from raybench.worker.strategies.models import Bench

WARMUP_STEPS = 1  # before a window of steps whose memory counts: it does not grow later


@dataclass(frozen=True)
class _RankMemory:
    """What one rank took, in bytes; None where it is not told."""

    peak: int | None  # as torch counts it
    device: int | None  # as the device counts it
    fixed: int | None  # whatever the batch


class ProbeTrial:
    """Everything that one rank holds while it probes one batch."""

    def __init__(self, request: ProbeRequest, team: Team, device: torch.device, kept: Kept) -> None:
        self._request, self._team, self._device, self._kept = request, team, device, kept
        self._probe = probing.DeviceProbe(device)
        self._models = TrialModels(request.config, team, device, kept)

    def run(self, on_progress: OnProgress) -> RankResult:
        """The memory that every rank took, the same result on every rank.

        On CPUs the process counts, whatever it holds; so what earlier trials freed is given back first.
        """
        began = perf_counter()
        on_progress(Progress("set up"))
        if not self._kept.has_model:  # DDP forms cycles, which may hold the last trial's large model
            gc.collect()
        probing.give_back_memory(self._device)
        self._team.barrier()  # before anyone looks at what is left
        limits = limits_of_ranks(self._team, self._kept, self._probe, anew=True)  # what is left just now
        self._models.set_up(lambda bench: bench.bare.step())
        bench = self._models.main
        fixed = self._fixed_memory(bench)
        measured = as_measured(bench, self._team)
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        self._probe.reset_peak(bench.devices)
        warm_up(self._team, [measured], WarmUp(WARMUP_STEPS, self._request.timeout_s), self._device)
        memory = _RankMemory(self._probe.peak_memory_bytes(), self._probe.device_memory_bytes(), fixed)
        warmup_s = perf_counter() - set_up
        ranks: list[_RankMemory] = self._team.gather(memory)
        result = ProbeResult(
            setup_s=set_up - began,
            warmup_s=warmup_s,
            peak_memory_bytes=all_known([rank.peak for rank in ranks]),
            device_memory_bytes=all_known([rank.device for rank in ranks]),
            fixed_memory_bytes=all_known([rank.fixed for rank in ranks]),
            memory_limit_bytes=limits,
        )
        return RankResult("complete", result=result)

    def release(self) -> None:
        """Drop the models before their process group goes."""
        self._models.release()

    def _fixed_memory(self, bench: Bench) -> int | None:
        """What a step takes on a CPU whatever its batch: what the first one left, gradients and buckets."""
        room = self._probe.memory_room() if self._device.type == "cpu" else None
        if room is None:
            return None
        trained = (tensor for tensor in bench.bare.module.parameters() if tensor.requires_grad)
        gradients = sum(tensor.nbytes for tensor in trained)
        has_buckets = self._team.size > 1 and not self._request.config.setting.gradient_as_bucket_view
        return room.taken_bytes + gradients * (2 if has_buckets else 1)
