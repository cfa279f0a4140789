"""What steps truly cost on a planted machine, and what a good analysis must find of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raybench.records.requests import Configuration, Variant
from raybench.spec.knobs import Setting


@dataclass(frozen=True)
class StepCosts:
    """What one optimizer step truly costs, in s, free of noise.

    ``offset_s`` (one for each rank) and ``jitter_s`` (one rank at a time, another in every step) belong to
    the devices, so they are in every variant that computes; the others wait for them in ``ddp`` only.
    """

    plain_s: float
    base_s: float | None = None  # one device at the global batch (strong scaling)
    contention_s: float = 0.0
    wrapper_s: float = 0.0
    exposed_s: float = 0.0
    replay_s: float = 1e-5  # no transfer takes no time
    offset_s: tuple[float, ...] = ()
    jitter_s: float = 0.0
    restart_s: float = 0.0  # of the loader of real input, in each epoch that is trained
    memory_bytes: int = 1 << 30
    gradient_bytes: int = 8 << 20
    num_buckets: int = 1
    # of each gradient, in the order in which they are ready: then buckets are DDP's; empty: nobody tells
    parameter_bytes: tuple[int, ...] = ()
    data_s: float = 0.0  # of ``plain_s``, until the batch is there
    utilization: float | None = None  # of each device, 0 to 1; None: nobody tells
    other_cores: float | None = None  # that others take of the one host; None: nobody tells
    host_cores: int = 0  # 0: nobody tells
    throttled: bool = False  # the devices say that they hold their clocks down
    of_result: dict[str, Any] = field(
        default_factory=dict
    )  # what ranks tell besides, as fields of the result
    missing: dict[Variant, str] = field(default_factory=dict)

    def offsets(self, world_size: int) -> NDArray[np.float64]:
        """The constant offset of each rank in s, shape ``(world_size,)``."""
        given = np.asarray(self.offset_s[:world_size], dtype=np.float64)
        return np.pad(given, (0, world_size - len(given)))

    def skew_s(self, world_size: int) -> float:
        """The slowest rank's mean excess over the mean rank, in s."""
        offsets = self.offsets(world_size)
        slowest = np.mean([(offsets + self.jitter_s * one).max() for one in np.eye(world_size)])
        return float(slowest - self.mean_delay_s(world_size))

    def mean_delay_s(self, world_size: int) -> float:
        """What offsets and jitter add to the mean rank's step, in s."""
        return float(self.offsets(world_size).mean() + self.jitter_s / world_size)


CostModel = Callable[[Configuration, Setting], StepCosts]


@dataclass(frozen=True)
class FakeHardware:
    """A machine with one kind of device and one link; ``costs`` is its ``CostModel``.

    A step is ``fixed_s`` plus ``sample_s`` for each sample, after ``data_s`` until the batch is there. Two
    thirds of the computing are the backward pass, behind which ``overlap`` of the all-reduces can hide, all
    but the last bucket's share. ``extra`` holds whatever else ``StepCosts`` has.
    """

    fixed_s: float = 0.002
    sample_s: float = 0.0002
    speed: dict[str, float] = field(default_factory=lambda: {"bf16": 1.25, "fp16": 1.2, "tf32": 1.15})
    contention: float = 0.03  # relative, for each further device
    wrapper_s: float = 0.0008
    gradient_bytes: int = 16 << 20
    bandwidth_bytes_per_s: float = 2.0e9
    latency_s: float = 0.0004  # of one all-reduce
    overlap: float = 0.8
    offset_s: tuple[float, ...] = ()
    jitter_s: float = 0.0
    memory_fixed_bytes: int = 1 << 30
    memory_sample_bytes: int = 1 << 20
    data_s: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def costs(self, config: Configuration, setting: Setting) -> StepCosts:
        """The true costs of a step of ``config`` under ``setting``."""
        n = config.world_size
        batch = config.micro_batch(setting) * setting.gradient_accumulation
        compute_s = self._compute_s(batch, setting)
        plain_s = compute_s + self.data_s
        travelling = self.gradient_bytes // (2 if setting.gradient_compression != "none" else 1)
        bucket_mb = 25.0 if isinstance(setting.bucket_cap_mb, str) else float(setting.bucket_cap_mb)
        num_buckets = max(1, math.ceil(travelling / (bucket_mb * 2**20)))
        replay_s = travelling * 2 * (n - 1) / n / self.bandwidth_bytes_per_s + self.latency_s * num_buckets
        could_hide_s = replay_s * (num_buckets - 1) / num_buckets
        hidden_s = min(self.overlap * compute_s * 2 / 3, could_hide_s)
        return StepCosts(
            plain_s=plain_s,
            base_s=self._compute_s(batch * n, setting) + self.data_s if config.scaling == "strong" else None,
            contention_s=compute_s * self.contention * (n - 1),
            wrapper_s=self.wrapper_s,
            exposed_s=replay_s - hidden_s,
            replay_s=replay_s,
            offset_s=self.offset_s,
            jitter_s=self.jitter_s,
            memory_bytes=self.memory_fixed_bytes + self.memory_sample_bytes * config.micro_batch(setting),
            gradient_bytes=travelling,
            num_buckets=num_buckets,
            data_s=self.data_s,
            **self.extra,
        )

    def _compute_s(self, samples: int, setting: Setting) -> float:
        return self.fixed_s + samples * self.sample_s / self.speed.get(setting.precision, 1.0)


def truth(costs: StepCosts, config: Configuration) -> dict[str, float]:
    """The waterfall in s that ``costs`` amount to at a configuration's world size, and what follows."""
    n = config.world_size
    delay_s, skew_s = costs.mean_delay_s(n), costs.skew_s(n)
    plain_s = costs.plain_s + delay_s
    parts = {"ideal_s": plain_s}
    if config.scaling == "strong":
        assert costs.base_s is not None
        parts["ideal_s"] = (costs.base_s + delay_s) / n
        parts["small_batch_s"] = plain_s - parts["ideal_s"]
    parts |= {
        "contention_s": costs.contention_s,
        "wrapper_s": costs.wrapper_s,
        "skew_s": skew_s,
        "exposed_communication_s": costs.exposed_s,
    }
    step_time_s = sum(parts.values()) if n > 1 else plain_s
    efficiency = parts["ideal_s"] / step_time_s if n > 1 else 1.0
    return parts | {"step_time_s": step_time_s, "efficiency": efficiency, "replay_s": costs.replay_s}
