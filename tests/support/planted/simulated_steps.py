"""A trial of steps in simulated time: rounds of noisy blocks, until the worker's stopping rule ends them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.reference import bucket_sizes
from raybench.analysis.stats.stopping import decide
from raybench.records.messages import BlockStepTimes
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import (
    Block,
    GradientTimeline,
    Phase,
    PhaseBlock,
    Round,
    StepsResult,
    StopReason,
)
from tests.support.planted.hardware import CostModel, StepCosts
from tests.support.planted.noise import Noise

MIN_BLOCK_STEPS = 5
MIN_BLOCK_S = 0.15
OUTSIDE_TORCH_BYTES = 256 << 20
ELEMENT_BYTES = 4  # of fp32


class SimulatedSteps:
    """One trial of steps on simulated devices, measured as the worker does."""

    def __init__(
        self,
        request: StepsRequest,
        ranks: tuple[int, ...],
        model: CostModel,
        noise: Noise,
        random: np.random.Generator,
        *,
        max_block_steps: int,
        slowness: float = 1.0,  # of this start of the workers, where all devices work at once
    ) -> None:
        self._request, self._ranks, self._noise, self._random = request, ranks, noise, random
        self._costs = model(request.config, request.config.setting)
        self._anchor_costs = model(request.config, request.anchor) if request.anchor else self._costs
        self._missing = dict(self._costs.missing)
        if request.anchor_failure is not None:
            self._missing["anchor"] = request.anchor_failure
        self._variants = [name for name in request.variants if name not in self._missing]
        self._max_block_steps, self._slowness = max_block_steps, slowness
        self._factors = noise.of_trial(self._variants, random)
        self._off = dict[str, float]()  # of each variant's last block
        self._rounds: list[Round] = []
        self._stopped_by: StopReason | None = None
        self.step_times: list[BlockStepTimes] = []
        self.clock_s = 0.0

    def measure(self) -> None:
        """Rounds until the stopping rule ends them, by the simulated clock."""
        request = self._request
        while self._stopped_by is None:
            self._round()
            self._stopped_by = decide(self._rounds, request.measure, request.config.device, self.clock_s).stop

    def _round(self) -> None:
        index, at_s = len(self._rounds), self.clock_s
        order = self._random.permutation(len(self._variants))
        blocks = {self._variants[i]: self._block(self._variants[i], index) for i in order}
        costs, n = self._costs, len(self._ranks)
        self._rounds.append(
            Round(
                blocks=tuple(blocks.values()),
                at_s=at_s,
                other_cores=() if costs.other_cores is None else (costs.other_cores,) * n,
                throttled=(True,) * n if costs.throttled else (),
            )
        )

    def _block(self, variant: Variant, index: int) -> Block:
        alone = variant in ("plain", "base")
        turn = (self._request.visit * self._request.measure.min_rounds + index) % len(self._ranks)
        ranks = (self._ranks[turn],) if alone else self._ranks
        steps = self._steps(variant, turn if alone else None)
        self.clock_s += float(steps.max(axis=0).sum())
        self.step_times.append(BlockStepTimes(variant, index, ranks, steps))
        return Block(
            variant=variant,
            ranks=ranks,
            step_time_s=tuple(steps.mean(axis=1).tolist()),
            slowest_s=float(steps.max(axis=0).mean()),
            num_steps=steps.shape[1],
        )

    def _steps(self, variant: Variant, alone: int | None) -> NDArray[np.float64]:
        """Noisy step times in s, one row for each rank at work, one column for each step."""
        random, noise = self._random, self._noise
        costs = self._anchor_costs if variant == "anchor" else self._costs
        num_steps = self._num_steps()
        true_s = self._true_s(variant, costs, num_steps)
        if alone is not None:
            true_s = true_s[alone : alone + 1]
        if alone is None or len(self._ranks) == 1:
            true_s = true_s * self._slowness
        self._off[variant] = noise.next_block(self._off.get(variant), random)
        factor = noise.of_block(self.clock_s, random, self._off[variant]) * self._factors[variant]
        return true_s * factor * np.exp(noise.step * random.standard_normal(num_steps))

    def _true_s(self, variant: Variant, costs: StepCosts, num_steps: int) -> NDArray[np.float64]:
        """Step times in s without noise, shape ``(world_size, num_steps)``."""
        n = self._request.config.world_size
        if variant == "replay":
            return np.full((n, num_steps), costs.replay_s)
        delay_s = np.repeat(costs.offsets(n)[:, None], num_steps, axis=1)
        if costs.jitter_s:
            delay_s[self._random.integers(n, size=num_steps), np.arange(num_steps)] += costs.jitter_s
        if variant in ("plain", "base") or n == 1:
            alone_s = costs.base_s if variant == "base" else costs.plain_s
            assert alone_s is not None
            return alone_s + delay_s
        concurrent_s = costs.plain_s + costs.contention_s
        if variant == "concurrent":
            return concurrent_s + delay_s
        if variant == "local":
            return concurrent_s + costs.wrapper_s + delay_s
        together_s = concurrent_s + costs.wrapper_s + costs.exposed_s + delay_s.max(axis=0)
        return np.broadcast_to(together_s, (n, num_steps))

    def _num_steps(self) -> int:
        asked = self._request.measure.steps
        wanted = asked or max(MIN_BLOCK_STEPS, math.ceil(MIN_BLOCK_S / self._costs.plain_s))
        return wanted if asked else min(wanted, self._max_block_steps)

    def _phases(self) -> tuple[PhaseBlock, ...]:
        """Five blocks of each variant; in ``local`` wrapper and contention slow all but the wait for data."""
        costs = self._costs
        blocks = [_phase_block("plain", costs.plain_s, costs.data_s)]
        if "local" in self._variants:
            local_s = costs.plain_s + costs.contention_s + costs.wrapper_s
            blocks.append(_phase_block("local", local_s, costs.data_s))
        return tuple(blocks * 5)

    def _bucket_bytes(self) -> tuple[int, ...]:
        """By DDP's rule, where the gradients are known."""
        costs = self._costs
        if costs.parameter_bytes:
            return bucket_sizes(costs.parameter_bytes, self._request.config.setting.bucket_cap_mb)
        return (costs.gradient_bytes // costs.num_buckets,) * costs.num_buckets

    def _timeline(self) -> GradientTimeline | None:
        """Of ``local``: gradients that are ready one after the other."""
        sizes, costs = self._costs.parameter_bytes, self._costs
        if not sizes or "local" not in self._variants:
            return None
        forward_s, backward_s = 0.3 * costs.plain_s, 0.6 * costs.plain_s
        return GradientTimeline(
            parameter_bytes=sizes,
            element_bytes=ELEMENT_BYTES,
            ready_s=tuple((backward_s * (index + 1) / len(sizes)) for index in range(len(sizes))),
            before_s=forward_s,
            backward_s=backward_s,
            after_s=0.1 * costs.plain_s,
            num_steps=5,
        )

    def result(self, *, memory_limit_bytes: int | None, epoch_samples: int | None) -> StepsResult:
        """All that the worker would return.

        ``epoch_samples``: of the training set; None for synthetic input.
        """
        request, costs, n = self._request, self._costs, self._request.config.world_size
        assert self._stopped_by is not None
        return StepsResult(
            rounds=tuple(self._rounds),
            stopped_by=self._stopped_by,
            batch_size=request.config.batch_size,
            global_batch_size=request.config.global_batch_size,
            samples_per_step=request.config.global_batch_size,
            epoch_samples=epoch_samples,
            setup_s=0.5,
            warmup_s=0.5,
            measure_s=self.clock_s,
            gradient_bytes=costs.gradient_bytes if n > 1 else None,
            bucket_bytes=self._bucket_bytes() if n > 1 else (),
            num_parameters=sum(costs.parameter_bytes) // ELEMENT_BYTES or None,
            gradient_timeline=self._timeline(),
            device_utilization=None if costs.utilization is None else (costs.utilization,) * n,
            **costs.of_result,
            hosts=(0,) * n if costs.host_cores else (),
            host_cores=(costs.host_cores,) * n if costs.host_cores else (),
            missing={name: why for name, why in self._missing.items() if name in request.variants},
            phases=self._phases() if request.measures_beside_rounds else (),
            peak_memory_bytes=(costs.memory_bytes,) * n,
            device_memory_bytes=(costs.memory_bytes + OUTSIDE_TORCH_BYTES,) * n,
            memory_limit_bytes=(memory_limit_bytes,) * n if memory_limit_bytes else None,
        )


def _phase_block(variant: Literal["plain", "local"], step_s: float, data_s: float) -> PhaseBlock:
    shares: dict[Phase, float] = {"forward": 0.3, "backward": 0.6, "optimizer": 0.08, "other": 0.02}
    seconds: dict[Phase, float] = {name: share * (step_s - data_s) for name, share in shares.items()}
    return PhaseBlock(variant=variant, seconds={"data": data_s} | seconds, num_steps=5)
