"""A trial runner with planted times: planning, search, storage, analysis and reports without a process.

``FakeHardware`` says what a step truly costs, ``Noise`` what hides it, ``FakeRunner`` measures the two as
the real worker does: shuffled rounds of blocks until the stopping rule ends them. It never sleeps; its
clock is simulated. ``truth`` gives back what a good analysis must find.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from raybench.machine.host import DeviceKind, Resources
from raybench.records.messages import BlockStepTimes, GroupInfo, Member, OnProgress, Outcome, Progress
from raybench.records.record import State, TrialRecord, TrialResult
from raybench.records.requests import Configuration, ProbeRequest, StepsRequest, TrainingRequest, TrialRequest
from raybench.records.results import ProbeResult
from tests.support.planted.hardware import CostModel, FakeHardware, truth
from tests.support.planted.learning import FakeLearning
from tests.support.planted.noise import Noise
from tests.support.planted.simulated_collectives import FakeLink, simulate_sweep
from tests.support.planted.simulated_steps import OUTSIDE_TORCH_BYTES, SimulatedSteps

PROBE_STEPS = 5
STARTED_AT = "2026-01-01T00:00:00+00:00"

FailureModel = Callable[[TrialRequest], "tuple[State, str] | None"]


class FakeRunner:
    """A ``TrialRunner`` on simulated devices; ``requests`` holds what it was asked, in order."""

    def __init__(
        self,
        costs: CostModel | None = None,
        noise: Noise | None = None,
        *,
        seed: int = 0,
        num_devices: int = 8,
        device: DeviceKind = "cpu",
        memory_limit_bytes: int | None = None,
        fail: FailureModel | None = None,
        max_block_steps: int = 20,
        learning: FakeLearning | None = None,
        link: FakeLink | None = None,
    ) -> None:
        self.costs = costs or FakeHardware().costs
        self.noise = noise or Noise()
        self.random = np.random.default_rng(seed)
        self.memory_limit_bytes = memory_limit_bytes
        self.fail = fail
        self.max_block_steps = max_block_steps
        self.learning = learning or FakeLearning()
        self.link = link or FakeLink()
        self.requests: list[TrialRequest] = []
        self.num_starts = 0
        self.num_closes = 0
        self._resources = Resources(device, num_devices, f"fake {device}")
        self._group: GroupInfo | None = None
        self._group_of: tuple[int, dict[str, str]] | None = None
        self.slowness = 1.0  # of this start of the workers, where the noise has some

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """A group of ``world_size`` simulated workers on one node."""
        if anew or self._group is None or self._group_of != (world_size, environment):
            self.num_starts += 1
            self.slowness = self._drawn_slowness()
            name = self._resources.device_name
            members = tuple(Member(rank, "node0", "localhost", 0, name) for rank in range(world_size))
            self._group = GroupInfo(members, self.num_starts)
            self._group_of = (world_size, dict(environment))
        return self._group

    def _drawn_slowness(self) -> float:
        if not self.noise.start:
            return 1.0
        return math.exp(self.noise.start * self.random.standard_normal())

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        """Measure ``request`` in simulated time; failures are outcomes."""
        self.requests.append(request)
        on_progress(Progress("set up"))
        size, variables = request.config.world_size, request.config.environment
        number, others = self._group_of or (0, variables)
        if number < size or others != variables:
            self.start(max(number, size), variables)
        assert self._group is not None
        failure = self._failure(request)
        if failure is not None:
            return Outcome(failure[0], wall_time_s=0.1, reason=failure[1], group=self._group.number)
        ranks = self._group.ranks_for(request.config.world_size, request.config.placement)
        if request.kind == "collectives":
            swept, seconds = simulate_sweep(request, self.link, self.noise, self.random)
            return self._complete(swept, ranks, seconds)
        if request.kind == "training":
            return self._train(request, ranks, on_progress)
        if request.kind == "probe":
            return self._probe(request, ranks)
        on_progress(Progress("measure"))
        return self._measure(request, ranks)

    def _measure(self, request: StepsRequest, ranks: tuple[int, ...]) -> Outcome:
        """Rounds of blocks, in simulated time."""
        trial = SimulatedSteps(
            request,
            ranks,
            self.costs,
            self.noise,
            self.random,
            max_block_steps=self.max_block_steps,
            slowness=self.slowness,
        )
        trial.measure()
        is_real = request.config.workload.input == "real"
        result = trial.result(
            memory_limit_bytes=self.memory_limit_bytes,
            epoch_samples=self.learning.num_train if is_real else None,
        )
        return self._complete(result, ranks, trial.clock_s, tuple(trial.step_times))

    def _probe(self, request: ProbeRequest, ranks: tuple[int, ...]) -> Outcome:
        """The memory of the batch, in the time of a few steps."""
        size, costs = len(ranks), self.costs(request.config, request.config.setting)
        limit = self.memory_limit_bytes
        result = ProbeResult(
            peak_memory_bytes=(costs.memory_bytes,) * size,
            device_memory_bytes=(costs.memory_bytes + OUTSIDE_TORCH_BYTES,) * size,
            memory_limit_bytes=(limit,) * size if limit else None,
        )
        return self._complete(result, ranks, PROBE_STEPS * costs.plain_s)

    def _train(self, request: TrainingRequest, ranks: tuple[int, ...], on_progress: OnProgress) -> Outcome:
        """Epochs in simulated time, as ``learning`` has them."""
        costs = self.costs(request.config, request.config.setting)
        result = self.learning.train(request, costs, self.noise, self.random)
        for epoch in result.epochs:
            left_s = epoch.elapsed_s * (request.training.epochs - epoch.epoch)
            times = {"epoch_s": epoch.elapsed_s, "left_s": left_s}
            on_progress(Progress("epoch", epoch.words(request.training.epochs), times))
        return self._complete(result, ranks, sum(epoch.elapsed_s for epoch in result.epochs))

    def _complete(
        self,
        result: TrialResult,
        ranks: tuple[int, ...],
        busy_s: float,
        step_times: tuple[BlockStepTimes, ...] = (),
    ) -> Outcome:
        """The outcome of a trial that took ``busy_s`` beside the second of setting up."""
        assert self._group is not None
        return Outcome(
            "complete",
            wall_time_s=busy_s + 1.0,
            result=result,
            step_times=step_times,
            ranks=ranks,
            nodes=self._group.nodes_of(ranks),
            device_name=self._resources.device_name,
            group=self._group.number,
        )

    def close(self) -> None:
        """Count the call."""
        self.num_closes += 1
        self._group = self._group_of = None

    def abandon(self) -> None:
        """Count it as a close."""
        self.close()

    def _failure(self, request: TrialRequest) -> tuple[State, str] | None:
        planted = self.fail(request) if self.fail else None
        if planted is not None or self.memory_limit_bytes is None or request.kind == "collectives":
            return planted
        wanted = self.costs(request.config, request.config.setting).memory_bytes
        if wanted <= self.memory_limit_bytes:
            return None
        return "oom", f"out of memory: {wanted:,} bytes wanted of {self.memory_limit_bytes:,}"

    def truth(self, config: Configuration) -> dict[str, float]:
        """The planted waterfall of ``config`` in s, by the names of ``summary.csv``, with ``step_time_s``.

        ``small_batch_s`` is there in strong scaling only; ``efficiency`` and ``replay_s`` come with it.
        """
        return truth(self.costs(config, config.setting), config)


def to_record(request: TrialRequest, outcome: Outcome, study: str = "fake") -> TrialRecord:
    """The record of an outcome, as the driver writes it."""
    return outcome.to_record(request, study=study, started_at=STARTED_AT)


def run_all(
    runner: FakeRunner, requests: Iterable[TrialRequest], study: str = "fake"
) -> tuple[list[TrialRecord], dict[str, tuple[BlockStepTimes, ...]]]:
    """The records of ``requests`` in order, and the step times of each by trial id."""
    records, samples = [], {}
    for request in requests:
        outcome = runner.run(request, lambda progress: None)
        records.append(to_record(request, outcome, study))
        samples[request.trial_id] = outcome.step_times
    return records, samples
