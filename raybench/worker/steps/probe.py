"""A probe: does this batch fit in memory? A few steps of what would be trained, and what they took."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from raybench.records.messages import OnProgress, Outcome, Progress
from raybench.records.requests import ProbeRequest
from raybench.records.results import ProbeResult
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, MemoryPeak
from raybench.worker.group_cache import GroupCache
from raybench.worker.memory import all_known, memory_limits_of_ranks
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variants import WarmUp, measured_run, warm_up
from raybench.worker.strategies.models import StrategyModels

WARMUP_STEPS = 1  # before a window of steps whose memory counts: it does not grow later


@dataclass(frozen=True)
class _RankMemory:
    """What one rank took."""

    peak: MemoryPeak
    fixed_bytes: int | None  # whatever the batch; None: not told


class ProbeTrial:
    """Everything that one rank holds while it probes one batch."""

    def __init__(self, request: ProbeRequest, team: Team, device: Device, cache: GroupCache) -> None:
        self._request, self._team, self._device, self._cache = request, team, device, cache
        self._models = TrialModels(request.config, team, device, cache)

    def run(self, on_progress: OnProgress) -> Outcome:
        """The memory that every rank took, the same result on every rank.

        On CPUs the process counts, whatever it holds; so what earlier trials freed is given back first.
        """
        began = perf_counter()
        on_progress(Progress("set up"))
        self._device.release_memory()
        self._team.barrier()  # before anyone looks at what is left
        limits = memory_limits_of_ranks(self._team, self._cache, self._device, again=True)
        self._models.set_up(lambda models: models.bare.step())
        models = self._models.measured
        fixed = self._fixed_memory(models)
        measured = measured_run(models, self._team)
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        self._device.reset_peak(models.dp_devices)
        warm_up(self._team, [measured], WarmUp(WARMUP_STEPS, self._request.timeout_s), self._device)
        memory = _RankMemory(self._device.memory_peak(), fixed)
        warmup_s = perf_counter() - set_up
        ranks: list[_RankMemory] = self._team.gather(memory)
        result = ProbeResult(
            setup_s=set_up - began,
            warmup_s=warmup_s,
            peak_memory_bytes=all_known([rank.peak.torch for rank in ranks]),
            device_memory_bytes=all_known([rank.peak.device for rank in ranks]),
            fixed_memory_bytes=all_known([rank.fixed_bytes for rank in ranks]),
            memory_limit_bytes=limits,
        )
        return Outcome("complete", result=result)

    def release(self) -> None:
        """Drop the models before their process group goes."""
        self._models.release()

    def _fixed_memory(self, models: StrategyModels) -> int | None:
        """What a step takes whatever its batch: what the first one left, gradients and buckets.

        Only on devices on which a batch that does not fit must not be tried.
        """
        memory = self._device.available_memory() if self._device.overcommits else None
        if memory is None:
            return None
        has_buckets = self._team.size > 1 and not self._request.config.setting.gradient_as_bucket_view
        return memory.taken_bytes + models.copies.gradient_bytes * (2 if has_buckets else 1)
