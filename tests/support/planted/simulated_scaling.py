"""Training on clusters that are not there: step times by several laws, for predictions to be held against.

None of them is the model that predicts. ``Buckets`` lets every bucket of every device happen; the others
are laws that were published for the same curves. A study is drawn with ``draw``: its law, its sizes and its
noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np

from raybench.analysis.simulate.steps import Measurement, Question, Shape
from raybench.analysis.stats.statistics import NORMAL_95, Estimate

LawName = Literal["ring", "tree", "hierarchical", "adaptdl", "ernest", "usl"]
LAWS: tuple[LawName, ...] = get_args(LawName)
STEPS = 24  # of a simulated block
OUTLIERS, OUTLIER = 0.02, 1.5  # how many measurements something disturbs, and by how much


class Law(Protocol):
    """What a step truly takes."""

    def step_time_s(self, shape: Shape, batch_size: int) -> float:
        """The mean step, in s, as often as it is asked for the same."""


@dataclass(frozen=True)
class Buckets:
    """Gradients travel in buckets, one after the other, while backward makes the next ones."""

    algorithm: Literal["ring", "tree", "hierarchical"]
    fixed_s: float
    sample_s: float
    bucket_bytes: tuple[float, ...]
    local: tuple[float, float]  # latency in s, s for each byte
    far: tuple[float, float]
    contention: float  # relative, of a full node of 8
    speeds: float  # relative standard deviation over devices
    jitter: float  # over steps
    backward: float = 0.65  # of a step's compute
    seed: int = 0

    def step_time_s(self, shape: Shape, batch_size: int) -> float:
        """The mean over steps of the slowest device."""
        rng = np.random.default_rng((self.seed, *shape.workers, batch_size))
        n, most = shape.world_size, max(shape.workers)
        own = np.random.default_rng((self.seed, 1)).lognormal(0, self.speeds, 1024)[:n]
        compute = (self.fixed_s + self.sample_s * batch_size) * (1 + self.contention * (most - 1) / 7)
        times = compute * own * rng.lognormal(0, self.jitter, (STEPS, n))
        slowest = times.max(axis=1)  # a collective waits for the last
        if n == 1:
            return float(slowest.mean())
        shares = np.cumsum(self.bucket_bytes) / sum(self.bucket_bytes)
        free = np.zeros(STEPS)
        for share, num_bytes in zip(shares, self.bucket_bytes, strict=True):
            ready = slowest * (1 - self.backward + self.backward * share * 0.95)
            free = np.maximum(free, ready) + self.all_reduce_s(shape, num_bytes)
        return float(np.maximum(slowest, free).mean())

    def all_reduce_s(self, shape: Shape, num_bytes: float) -> float:
        """One message, by the textbook's counts of steps and bytes."""
        n, m, w = shape.world_size, shape.nodes, max(shape.workers)
        (local_s, local_byte_s), (far_s, far_byte_s) = self.local, self.far
        if self.algorithm == "hierarchical":
            inner = 2 * (w - 1) * (local_s + num_bytes / w * local_byte_s)
            return inner + 2 * (m - 1) * (far_s + num_bytes / m * far_byte_s)
        slowest = max(local_byte_s, far_byte_s) if m > 1 else local_byte_s
        if self.algorithm == "tree":
            latency_s = 2 * np.log2(w) * local_s + 2 * np.log2(m) * far_s
            return float(latency_s + 2 * num_bytes * slowest * (n - 1) / n)
        step_s = max(local_s, far_s) if m > 1 else local_s
        return 2 * (n - 1) * (step_s + num_bytes / n * slowest)


@dataclass(frozen=True)
class AdaptDL:
    """Qiao et al. (2021), "Pollux", OSDI, equations 9 to 11."""

    gradient: tuple[float, float]  # s, s for each sample
    local: tuple[float, float]  # s, s for each device beyond two
    far: tuple[float, float]
    gamma: float

    def step_time_s(self, shape: Shape, batch_size: int) -> float:
        """The norm of gradients and synchronisation."""
        gradient_s = self.gradient[0] + self.gradient[1] * batch_size
        if shape.world_size == 1:
            return gradient_s
        fixed_s, each_s = self.far if shape.nodes > 1 else self.local
        sync_s = fixed_s + each_s * (shape.world_size - 2)
        return float((gradient_s**self.gamma + sync_s**self.gamma) ** (1 / self.gamma))


@dataclass(frozen=True)
class Ernest:
    """Venkataraman et al. (2016), "Ernest", NSDI: a serial part, samples, a tree, each participant."""

    fixed_s: float
    sample_s: float
    tree_s: float
    each_s: float

    def step_time_s(self, shape: Shape, batch_size: int) -> float:
        """The sum of the four."""
        n = shape.world_size
        return float(
            self.fixed_s + self.sample_s * batch_size + self.tree_s * np.log2(n) + self.each_s * (n - 1)
        )


@dataclass(frozen=True)
class Universal:
    """Gunther (2007), "Guerrilla capacity planning": throughput falls by contention and by coherency."""

    fixed_s: float
    sample_s: float
    contention: float
    coherency: float

    def step_time_s(self, shape: Shape, batch_size: int) -> float:
        """One device's step times what its share of the throughput has lost."""
        n = shape.world_size
        lost = 1 + self.contention * (n - 1) + self.coherency * n * (n - 1)
        return (self.fixed_s + self.sample_s * batch_size) * lost


def measured_step(
    shape: Shape, batch_size: int, step_s: float, log_error: float = 0.0, **fields: Any
) -> Measurement:
    """A measurement of a batch per device; ``fields`` of its question, and ``compute_s``."""
    compute_s, factor = fields.pop("compute_s", None), math.exp(NORMAL_95 * log_error)
    return Measurement(
        question=Question(shape, batch_size, **fields),
        step_time_s=Estimate(step_s, step_s / factor, step_s * factor, 1),
        compute_s=compute_s,
    )


@dataclass(frozen=True)
class SimulatedStudy:
    """A law with its noise: what is measured, and what another measurement would bring."""

    law: Law
    repeat: float  # standard deviation of a measurement's logarithm
    placed: float  # of a shape's logarithm: what one start has and another has not
    seed: int

    def measure(self, question: Question) -> Measurement:
        """One measurement of a shape and batch: always the same one."""
        workers = question.shape.workers
        start = np.random.default_rng((self.seed, 2, *workers)).normal(0, self.placed)
        rng = np.random.default_rng((self.seed, 3, question.batch_size, *workers))
        disturbed = OUTLIER if rng.random() < OUTLIERS else 1.0
        step_s = self.law.step_time_s(question.shape, question.batch_size)
        noise = float(np.exp(start * (len(workers) > 1) + rng.normal(0, self.repeat)))
        return measured_step(question.shape, question.batch_size, step_s * noise * disturbed)


def draw(law: LawName, seed: int, unit_batch: int = 32) -> SimulatedStudy:
    """A training on some cluster: every size drawn from what is in use."""
    rng = np.random.default_rng((seed, LAWS.index(law)))

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    step_s = between(0.02, 1.0)  # one device, at the unit batch
    fixed = rng.uniform(0.05, 0.6)
    fixed_s, sample_s = step_s * fixed, step_s * (1 - fixed) / unit_batch
    repeat, placed = rng.uniform(0.02, 0.07), rng.uniform(0.0, 0.06)
    study_law: Law
    if law == "adaptdl":
        far = step_s * between(0.1, 2.0), step_s * between(0.001, 0.03)
        local = far[0] * between(0.05, 0.6), far[1] * between(0.1, 1.0)
        study_law = AdaptDL((fixed_s, sample_s), local, far, rng.uniform(1.0, 6.0))
    elif law == "ernest":
        study_law = Ernest(fixed_s, sample_s, step_s * between(0.01, 0.2), step_s * between(0.0003, 0.01))
    elif law == "usl":
        study_law = Universal(fixed_s, sample_s, between(0.001, 0.05), between(1e-6, 1e-4))
    else:
        num_bytes = between(5e6, 1.5e9)
        count = int(np.clip(num_bytes / 26e6, 2, 40))
        local = between(3e-6, 60e-6), 1 / between(3e9, 100e9)
        far = between(8e-6, 150e-6), 1 / between(0.5e9, 12e9)
        sizes = (num_bytes / count,) * count
        spread, jitter = between(0.005, 0.05), between(0.005, 0.05)
        concurrent = rng.uniform(0, 0.15)
        study_law = Buckets(law, fixed_s, sample_s, sizes, local, far, concurrent, spread, jitter, seed=seed)
    return SimulatedStudy(study_law, repeat, placed, seed)
