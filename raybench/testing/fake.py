"""A trial runner with planted times: planning, search, storage, analysis and reports without a process.

``FakeHardware`` says what a step truly costs, ``Noise`` what hides it, ``FakeRunner`` measures the two as
the real worker does: shuffled rounds of blocks until the stopping rule ends them. It never sleeps; its
clock is simulated. ``truth`` gives back what a good analysis must find.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.estimates.stopping import decide
from raybench.machine.resources import Resources
from raybench.records.measurements import (
    Block,
    Phase,
    PhaseBlock,
    ProbeResult,
    Round,
    StepsResult,
    StopReason,
)
from raybench.records.messages import GroupInfo, Member, Outcome, Progress, Samples
from raybench.records.record import State, TrialRecord
from raybench.records.requests import (
    Configuration,
    ProbeRequest,
    StepsRequest,
    TrainingRequest,
    TrialRequest,
    Variant,
)
from raybench.records.trainings import Epoch, GradientNorms, TrainingResult
from raybench.spec.knobs import Setting

MIN_BLOCK_STEPS = 5
MIN_BLOCK_S = 0.15
PROBE_STEPS = 5
OUTSIDE_TORCH_BYTES = 256 << 20
STARTED_AT = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class StepCosts:
    """What one optimizer step truly costs, in s, free of noise.

    ``offset_s`` (one for each rank) and ``jitter_s`` (one rank at a time, another in every step) belong to
    the devices, so they are in every variant that computes; the others wait for them in ``synced`` only.
    """

    plain_s: float
    base_s: float | None = None  # one device at the global batch (strong scaling)
    contention_s: float = 0.0
    wrapper_s: float = 0.0
    exposed_s: float = 0.0
    replay_s: float = 1e-5  # no transfer takes no time
    offset_s: tuple[float, ...] = ()
    jitter_s: float = 0.0
    memory_bytes: int = 1 << 30
    gradient_bytes: int = 8 << 20
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
FailureModel = Callable[[TrialRequest], "tuple[State, str] | None"]


@dataclass(frozen=True)
class FakeHardware:
    """A machine with one kind of device and one link; ``costs`` is its ``CostModel``.

    A step is ``fixed_s`` plus ``sample_s`` for each sample. Two thirds of the computing are the backward
    pass, behind which ``overlap`` of the all-reduces can hide, all but the last bucket's share.
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

    def costs(self, config: Configuration, setting: Setting) -> StepCosts:
        """The true costs of a step of ``config`` under ``setting``."""
        n = config.world_size
        batch = config.micro_batch(setting) * setting.gradient_accumulation
        plain_s = self._compute_s(batch, setting)
        travelling = self.gradient_bytes // (2 if setting.gradient_compression != "none" else 1)
        bucket_mb = 25.0 if isinstance(setting.bucket_cap_mb, str) else float(setting.bucket_cap_mb)
        num_buckets = max(1, math.ceil(travelling / (bucket_mb * 2**20)))
        replay_s = travelling * 2 * (n - 1) / n / self.bandwidth_bytes_per_s + self.latency_s * num_buckets
        could_hide_s = replay_s * (num_buckets - 1) / num_buckets
        hidden_s = min(self.overlap * plain_s * 2 / 3, could_hide_s)
        return StepCosts(
            plain_s=plain_s,
            base_s=self._compute_s(batch * n, setting) if config.scaling == "strong" else None,
            contention_s=plain_s * self.contention * (n - 1),
            wrapper_s=self.wrapper_s,
            exposed_s=replay_s - hidden_s,
            replay_s=replay_s,
            offset_s=self.offset_s,
            jitter_s=self.jitter_s,
            memory_bytes=self.memory_fixed_bytes + self.memory_sample_bytes * config.micro_batch(setting),
            gradient_bytes=travelling,
        )

    def _compute_s(self, samples: int, setting: Setting) -> float:
        return self.fixed_s + samples * self.sample_s / self.speed.get(setting.precision, 1.0)


@dataclass(frozen=True)
class Noise:
    """What hides the truth; every size is relative to the step time.

    Some blocks are preempted: they take ``1 + preemption_size * e`` times as long, ``e`` exponentially
    distributed with mean 1, which is the heavy tail.
    """

    block: float = 0.02  # standard deviation of a block's logarithm
    step: float = 0.01  # of a step's, common to all ranks, so that it adds no skew
    preemption: float = 0.0  # probability for a block
    preemption_size: float = 0.5
    drift_per_minute: float = 0.0


QUIET = Noise(block=0.0, step=0.0)


@dataclass(frozen=True)
class FakeLearning:
    """How well a model learns: accuracy rises to ``accuracy`` as 1 - e^(-epoch).

    ``per_device`` is what each further device adds to it, ``spread`` the standard deviation over seeds,
    which one device and several share (``paired``, 0 to 1, of it). ``variance`` and ``squared_gradient``
    are the S and |G|^2 of the gradient noise scale; norms are written without noise.
    """

    accuracy: float = 0.8
    per_device: float = 0.0
    spread: float = 0.002
    paired: float = 0.9
    num_train: int = 1000
    num_test: int = 10_000
    variance: float = 64.0
    squared_gradient: float = 1.0

    def train(
        self, request: TrainingRequest, costs: StepCosts, noise: Noise, random: np.random.Generator
    ) -> TrainingResult:
        """All epochs of ``request``; a step takes what ``truth`` says."""
        common = np.random.default_rng(request.config.seed).standard_normal() * math.sqrt(self.paired)
        own = random.standard_normal() * math.sqrt(1 - self.paired)
        final = (
            self.accuracy + self.per_device * (request.config.world_size - 1) + self.spread * (common + own)
        )
        step_s, steps = (
            truth(costs, request.config)["step_time_s"],
            -(-self.num_train // request.config.global_batch_size),
        )
        epochs = []
        for number in range(1, request.training.epochs + 1):
            share = final * (1 - math.exp(-number))
            evaluated = {
                "test_loss": 1 - share,
                "test_correct": round(share * self.num_test),
                "test_samples": self.num_test,
                "evaluation_s": 0.2 * steps * step_s,
            }
            epochs.append(
                Epoch(
                    epoch=number,
                    steps=steps,
                    samples=self._shares(request.config.world_size),
                    learning_rate=request.config.optimizer.learning_rate,
                    train_loss=1 - share,
                    train_correct=round(share * self.num_train),
                    train_s=steps * step_s * math.exp(noise.block * random.standard_normal()),
                    noise=(self._norms(request.config),) if request.training.noise_scale else (),
                    **(evaluated if request.training.is_evaluated(number) else {}),
                )
            )
        return TrainingResult(
            epochs=tuple(epochs),
            global_batch_size=request.config.global_batch_size,
            reference_batch=request.reference_batch,
            peak_learning_rate=request.config.optimizer.learning_rate,
            setup_s=1.0,
            device_memory_bytes=(costs.memory_bytes,) * request.config.world_size,
            device_utilization=(0.9,) * request.config.world_size,
            weights_difference=0.0 if request.config.world_size > 1 else None,
        )

    def _shares(self, world_size: int) -> tuple[int, ...]:
        return tuple(
            self.num_train // world_size + (r < self.num_train % world_size) for r in range(world_size)
        )

    def _norms(self, config: Configuration) -> GradientNorms:
        small = config.batch_size
        big = small * max(config.world_size, 2)
        return GradientNorms(
            small_batch=small,
            small_square=self.squared_gradient + self.variance / small,
            big_batch=big,
            big_square=self.squared_gradient + self.variance / big,
        )


class FakeRunner:
    """A ``TrialRunner`` on simulated devices; ``requests`` holds what it was asked, in order."""

    def __init__(
        self,
        costs: CostModel | None = None,
        noise: Noise | None = None,
        *,
        seed: int = 0,
        num_devices: int = 8,
        device: str = "cpu",
        memory_limit_bytes: int | None = None,
        fail: FailureModel | None = None,
        max_block_steps: int = 20,
        learning: FakeLearning | None = None,
    ) -> None:
        self.costs = costs or FakeHardware().costs
        self.noise = noise or Noise()
        self.random = np.random.default_rng(seed)
        self.memory_limit_bytes = memory_limit_bytes
        self.fail = fail
        self.max_block_steps = max_block_steps
        self.learning = learning or FakeLearning()
        self.requests: list[TrialRequest] = []
        self.num_starts = 0
        self.num_closes = 0
        self._resources = Resources(device, num_devices, f"fake {device}")
        self._group: GroupInfo | None = None
        self._group_of: tuple[int, dict[str, str]] | None = None

    def resources(self) -> Resources:
        """The simulated devices."""
        return self._resources

    def start(self, world_size: int, environment: dict[str, str]) -> GroupInfo:
        """A group of ``world_size`` simulated workers on one node."""
        if self._group is None or self._group_of != (world_size, environment):
            self.num_starts += 1
            name = self._resources.device_name
            members = tuple(Member(rank, "node0", "localhost", 0, name) for rank in range(world_size))
            self._group = GroupInfo(members, self.num_starts - 1)
            self._group_of = (world_size, dict(environment))
        return self._group

    def run(self, request: TrialRequest, on_progress: Callable[[Progress], None]) -> Outcome:
        """Measure ``request`` in simulated time; failures are outcomes."""
        self.requests.append(request)
        on_progress(Progress("set up"))
        if self._group is None or len(self._group.members) < request.config.world_size:
            self.start(request.config.world_size, request.config.environment)
        assert self._group is not None
        failure = self._failure(request)
        if failure is not None:
            return Outcome(failure[0], wall_time_s=0.1, reason=failure[1], group=self._group.number)
        ranks = self._group.ranks_for(request.config.world_size, request.config.placement)
        if request.kind == "training":
            return self._train(request, ranks, on_progress)
        if request.kind == "probe":
            return self._probe(request, ranks)
        on_progress(Progress("measure"))
        trial = _Trial(self, request, ranks)
        trial.measure()
        return Outcome(
            "complete",
            wall_time_s=trial.clock_s + 1.0,
            result=trial.result(),
            samples=tuple(trial.samples),
            ranks=ranks,
            nodes=self._group.nodes_of(ranks),
            device_name=self._resources.device_name,
            group=self._group.number,
        )

    def _probe(self, request: ProbeRequest, ranks: tuple[int, ...]) -> Outcome:
        """The memory of the batch, in the time of a few steps."""
        assert self._group is not None
        size, costs = len(ranks), self.costs(request.config, request.config.setting)
        limit = self.memory_limit_bytes
        result = ProbeResult(
            setup_s=0.5,
            warmup_s=PROBE_STEPS * costs.plain_s,
            peak_memory_bytes=(costs.memory_bytes,) * size,
            device_memory_bytes=(costs.memory_bytes + OUTSIDE_TORCH_BYTES,) * size,
            memory_limit_bytes=(limit,) * size if limit else None,
        )
        return Outcome(
            "complete",
            wall_time_s=result.warmup_s + 1.0,
            result=result,
            ranks=ranks,
            nodes=self._group.nodes_of(ranks),
            device_name=self._resources.device_name,
            group=self._group.number,
        )

    def _train(
        self, request: TrainingRequest, ranks: tuple[int, ...], on_progress: Callable[[Progress], None]
    ) -> Outcome:
        """Epochs in simulated time, as ``learning`` has them."""
        assert self._group is not None
        trained = self.learning.train(
            request, self.costs(request.config, request.config.setting), self.noise, self.random
        )
        for epoch in trained.epochs:
            on_progress(Progress("epoch", epoch.words(request.training.epochs)))
        return Outcome(
            "complete",
            wall_time_s=sum(epoch.elapsed_s for epoch in trained.epochs) + 1.0,
            result=trained,
            ranks=ranks,
            nodes=self._group.nodes_of(ranks),
            device_name=self._resources.device_name,
            group=self._group.number,
        )

    def close(self) -> None:
        """Count the call."""
        self.num_closes += 1
        self._group = None

    def abandon(self) -> None:
        """Count it as a close."""
        self.close()

    def _failure(self, request: TrialRequest) -> tuple[State, str] | None:
        planted = self.fail(request) if self.fail else None
        if planted is not None or self.memory_limit_bytes is None:
            return planted
        wanted = self.costs(request.config, request.config.setting).memory_bytes
        if wanted <= self.memory_limit_bytes:
            return None
        return "oom", f"out of memory: {wanted:,} bytes wanted of {self.memory_limit_bytes:,}"

    def truth(self, config: Configuration) -> dict[str, float]:
        """The planted waterfall of ``config`` in s, by the names of CONTRACT.md, with ``step_time_s``.

        ``small_batch_s`` is there in strong scaling only; ``efficiency`` and ``replay_s`` come with it.
        """
        return truth(self.costs(config, config.setting), config)


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


class _Trial:
    """One measurement as the worker makes it, in simulated time."""

    def __init__(self, runner: FakeRunner, request: StepsRequest, ranks: tuple[int, ...]) -> None:
        self.runner, self.request, self.ranks = runner, request, ranks
        self.costs = runner.costs(request.config, request.config.setting)
        self.versus = runner.costs(request.config, request.versus) if request.versus else self.costs
        self.variants = [name for name in request.variants if name not in self.costs.missing]
        self.rounds: list[Round] = []
        self.samples: list[Samples] = []
        self.clock_s = 0.0
        self.stopped_by: StopReason | None = None

    def measure(self) -> None:
        """Rounds until the stopping rule ends them, by the simulated clock."""
        request = self.request
        while self.stopped_by is None:
            self._round()
            self.stopped_by = decide(self.rounds, request.measure, request.config.device, self.clock_s).stop

    def _round(self) -> None:
        index, at_s = len(self.rounds), self.clock_s
        order = self.runner.random.permutation(len(self.variants))
        blocks = {self.variants[i]: self._block(self.variants[i], index) for i in order}
        self.rounds.append(Round(blocks=tuple(blocks.values()), at_s=at_s, load_average=None))

    def _block(self, variant: Variant, index: int) -> Block:
        alone = variant in ("plain", "base")
        ranks = (self.ranks[index % len(self.ranks)],) if alone else self.ranks
        steps = self._steps(variant, index % len(self.ranks) if alone else None)
        self.clock_s += float(steps.max(axis=0).sum())
        self.samples.append(Samples(variant, index, ranks, steps))
        return Block(
            variant=variant,
            ranks=ranks,
            step_time_s=tuple(steps.mean(axis=1).tolist()),
            slowest_s=float(steps.max(axis=0).mean()),
            num_steps=steps.shape[1],
        )

    def _steps(self, variant: Variant, alone: int | None) -> NDArray[np.float64]:
        """Noisy step times in s, one row for each rank at work, one column for each step."""
        random, noise, costs = self.runner.random, self.runner.noise, self.costs
        costs = self.versus if variant == "versus" else costs
        num_steps = self._num_steps()
        true_s = self._true_s(variant, costs, num_steps)
        if alone is not None:
            true_s = true_s[alone : alone + 1]
        factor = math.exp(noise.block * random.standard_normal())
        if random.random() < noise.preemption:
            factor *= 1 + noise.preemption_size * random.exponential()
        factor *= 1 + noise.drift_per_minute * self.clock_s / 60
        return true_s * factor * np.exp(noise.step * random.standard_normal(num_steps))

    def _true_s(self, variant: Variant, costs: StepCosts, num_steps: int) -> NDArray[np.float64]:
        """Step times in s without noise, shape ``(world_size, num_steps)``."""
        n = self.request.config.world_size
        if variant == "replay":
            return np.full((n, num_steps), costs.replay_s)
        delay_s = np.repeat(costs.offsets(n)[:, None], num_steps, axis=1)
        if costs.jitter_s:
            delay_s[self.runner.random.integers(n, size=num_steps), np.arange(num_steps)] += costs.jitter_s
        if variant in ("plain", "base") or n == 1:
            alone_s = costs.base_s if variant == "base" else costs.plain_s
            assert alone_s is not None
            return alone_s + delay_s
        crowd_s = costs.plain_s + costs.contention_s
        if variant == "crowd":
            return crowd_s + delay_s
        if variant == "local":
            return crowd_s + costs.wrapper_s + delay_s
        together_s = crowd_s + costs.wrapper_s + costs.exposed_s + delay_s.max(axis=0)
        return np.broadcast_to(together_s, (n, num_steps))

    def _num_steps(self) -> int:
        asked = self.request.measure.steps
        wanted = asked or max(MIN_BLOCK_STEPS, math.ceil(MIN_BLOCK_S / self.costs.plain_s))
        return wanted if asked else min(wanted, self.runner.max_block_steps)

    def _phases(self) -> tuple[PhaseBlock, ...]:
        """Five blocks of each lane; in ``local`` the wrapper and the contention slow all phases alike."""
        costs = self.costs
        blocks = [_phase_block("plain", costs.plain_s)]
        if "local" in self.variants:
            blocks.append(_phase_block("local", costs.plain_s + costs.contention_s + costs.wrapper_s))
        return tuple(blocks * 5)

    def result(self) -> StepsResult:
        """All that the worker would return."""
        request, costs, n = self.request, self.costs, self.request.config.world_size
        versus = request.versus
        assert self.stopped_by is not None
        return StepsResult(
            rounds=tuple(self.rounds),
            stopped_by=self.stopped_by,
            batch_size=request.config.batch_size,
            global_batch_size=request.config.global_batch_size,
            samples_per_step=request.config.global_batch_size,
            versus_samples_per_step=(
                request.config.micro_batch(versus) * n * versus.gradient_accumulation if versus else None
            ),
            warmup_steps=5,
            setup_s=0.5,
            warmup_s=0.5,
            measure_s=self.clock_s,
            gradient_bytes=costs.gradient_bytes if n > 1 else None,
            bucket_bytes=(costs.gradient_bytes,) if n > 1 else (),
            missing={name: why for name, why in costs.missing.items() if name in request.variants},
            phases=self._phases() if request.role == "scaling" else (),
            peak_memory_bytes=(costs.memory_bytes,) * n,
            device_memory_bytes=(costs.memory_bytes + OUTSIDE_TORCH_BYTES,) * n,
            memory_limit_bytes=(self.runner.memory_limit_bytes,) * n
            if self.runner.memory_limit_bytes
            else None,
            loss=1.0,
        )


def _phase_block(variant: Literal["plain", "local"], step_s: float) -> PhaseBlock:
    shares: dict[Phase, float] = {
        "data": 0.0,
        "forward": 0.3,
        "backward": 0.6,
        "optimizer": 0.08,
        "other": 0.02,
    }
    seconds = {name: share * step_s for name, share in shares.items()}
    return PhaseBlock(variant=variant, seconds=seconds, num_steps=5)


def to_record(
    request: TrialRequest, outcome: Outcome, study: str = "fake", suggestion: int | None = None
) -> TrialRecord:
    """The record of an outcome, as the driver writes it."""
    return outcome.to_record(request, study=study, suggestion=suggestion, started_at=STARTED_AT)


def run_all(
    runner: FakeRunner, requests: Iterable[TrialRequest], study: str = "fake"
) -> tuple[list[TrialRecord], dict[str, tuple[Samples, ...]]]:
    """The records of ``requests`` in order, and the step times of each by trial id."""
    records, samples = [], {}
    for number, request in enumerate(requests):
        outcome = runner.run(request, lambda progress: None)
        suggestion = number if request.role == "search" else None
        records.append(to_record(request, outcome, study, suggestion))
        samples[request.trial_id] = outcome.samples
    return records, samples
