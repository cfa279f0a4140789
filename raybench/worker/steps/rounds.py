"""The measuring loop: shuffled rounds of blocks, until the stopping rule ends them."""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.stats.stopping import Decision, decide
from raybench.errors import InvalidTrialError
from raybench.records.messages import BlockStepTimes, OnProgress, Progress
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import Block, PCIeLink, Round, StopReason
from raybench.spec.placement import alternating
from raybench.spec.study import MeasureSpec
from raybench.worker.batches import drop_ready, whole_turns
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, Moment
from raybench.worker.steps.meters import STEPS_AHEAD, BlockMeters, CoreMeter, CoresUsed, OtherLoad, RoundLook
from raybench.worker.steps.variants import VariantRun, Variants

MIN_STEPS, MIN_STEPS_IN_HASTE, MAX_STEPS = 5, 3, 500
DISCARD_SECONDS, MAX_DISCARD = 0.02, 5
PLAIN_SHARE = 0.20  # of the device time at most, from more than eight devices on
MANY_DEVICES = 8


@dataclass(frozen=True)
class BlockSize:
    """Steps of a block."""

    discarded: int  # first
    timed: int


def block_sizes(
    runs: Sequence[VariantRun],
    measure: MeasureSpec,
    num_devices: int,
    block_seconds: float,
    step_s: Mapping[Variant, float],
) -> dict[Variant, BlockSize]:
    """Of each of ``runs``; ``block_seconds`` is what the device needs, ``step_s`` from the warm-up."""
    slowest_s = max(step_s[run.variant] for run in runs)
    on_all = sum(not run.one_rank for run in runs)
    sizes = {}
    for run in runs:
        own_s, batches, seconds = step_s[run.variant], run.batches, block_seconds
        if num_devices > MANY_DEVICES and not run.one_rank:
            seconds *= max(1.0, (1 / PLAIN_SHARE - 1) / on_all)
        discarded, timed = discarded_steps(own_s), timed_steps(own_s, slowest_s, measure, len(runs), seconds)
        if batches is not None:
            # after a pause the loaders of all ranks read ahead: of this one, and of those that now wait
            discarded += math.ceil(batches.prefetched / run.batches_per_step)
            if measure.steps is None:
                timed = whole_turns(timed, batches, run.batches_per_step)
        sizes[run.variant] = BlockSize(discarded, timed)
    return sizes


def timed_steps(
    step_s: float, slowest_s: float, measure: MeasureSpec, num_blocks: int, seconds: float
) -> int:
    """Steps of a block: those of ``measure``, or ``seconds`` at least, of ``num_blocks`` in a round.

    ``slowest_s``: a step of the slowest of them.
    """
    if measure.steps is not None:
        return measure.steps
    # little time: shorter blocks, rather than too few rounds or a trial of several times its time
    share = measure.max_seconds / (measure.min_rounds * num_blocks)
    least = MIN_STEPS_IN_HASTE if MIN_STEPS * slowest_s > share else MIN_STEPS
    return min(max(math.ceil(min(seconds, share) / step_s), least), MAX_STEPS)


def discarded_steps(step_s: float) -> int:
    """The first steps of a block, which are thrown away."""
    return max(1, min(math.ceil(DISCARD_SECONDS / step_s), MAX_DISCARD))


StepTimes = NDArray[np.float64]  # in s, shape ``(steps,)``


def round_progress(number: int, half_width: float | None) -> Progress:
    """That so many rounds are done, and the half-width that they have reached."""
    width = "" if half_width is None else f"±{100 * half_width:.1f}%"
    return Progress("measure", f"round {number} {width}".strip())


@dataclass
class LoopResult:
    """What the rounds brought: rounds and step times are on the leader."""

    rounds: list[Round] = field(default_factory=list)
    step_times: list[BlockStepTimes] = field(default_factory=list)
    stopped_by: StopReason = "max_seconds"
    seconds: float = 0.0
    hosts: tuple[int, ...] = ()  # a number for the host of each rank
    host_cores: tuple[int, ...] = ()  # of each rank's host
    pcie_link: PCIeLink | None = None  # of this rank's device, at work
    allocator_retries: int = 0  # of this rank's, in the timed steps of what is measured

    def add_block(self, variant: Variant, ranks: tuple[int, ...], times: StepTimes) -> Block:
        """Keep a block's step times, of shape ``(ranks, steps)``; what the round to come has of it."""
        self.step_times.append(BlockStepTimes(variant, len(self.rounds), ranks, times))
        return Block(
            variant=variant,
            ranks=ranks,
            step_time_s=tuple(float(mean) for mean in times.mean(axis=1)),
            slowest_s=float(times.max(axis=0).mean()),
            num_steps=times.shape[1],
        )


@dataclass(frozen=True)
class _RoundReport:
    """One rank's report of a round to the leader."""

    times: dict[Variant, StepTimes]  # of the blocks in which it worked
    losses_are_finite: bool
    elapsed_s: float  # since the first round began
    look: RoundLook
    cores: CoresUsed


class MeasuringLoop:
    """Runs the rounds of one trial on this rank."""

    def __init__(
        self, request: StepsRequest, team: Team, device: Device, variants: Variants, on_progress: OnProgress
    ) -> None:
        """``variants``: warmed up. A collective call."""
        self._team, self._device, self._on_progress = team, device, on_progress
        self._runs, self._step_s = list(variants.runs), variants.step_s
        self._measure = request.measure
        self._stopwatch = device.stopwatch()
        # the same order of blocks on every rank, another in each visit: what one does is not in all of them
        self._random = random.Random(request.trial_id)
        self._began = 0.0
        self._others_idled = False  # in the last block, of one device alone
        # variants whose weights differ between ranks: each rank's own first steps made them
        self._diverged = {run.variant for run in self._runs if run.replicated is not None}
        self._sizes = block_sizes(self._runs, request.measure, team.size, device.block_seconds, self._step_s)
        several = any(run.variant == "ddp" for run in self._runs)
        self._meters = BlockMeters(device, "ddp" if several else "plain")
        loaders = any(run.batches is not None and run.batches.prefetched for run in self._runs)
        self._cores = CoreMeter(has_children=loaders)
        self._other_load = OtherLoad(team)
        # of those that work alone, round by round: a visit begins where the one before it has ended
        turns, first = alternating(self._other_load.hosts), request.visit * request.measure.min_rounds
        self._turns = [turns[(first + number) % team.size] for number in range(team.size)]
        self._result = LoopResult(hosts=self._other_load.hosts, host_cores=self._other_load.host_cores)

    def run(self) -> LoopResult:
        """Rounds until the interval is narrow enough or the time is spent; the leader says when."""
        self._began = perf_counter()
        for number in itertools.count():
            decision = self._round(number)
            self._on_progress(round_progress(number + 1, decision.half_width))
            if decision.stop:
                self._result.stopped_by, self._result.seconds = decision.stop, perf_counter() - self._began
                self._result.pcie_link = self._meters.pcie_link
                self._result.allocator_retries = self._meters.allocator_retries
                break
        return self._result

    def _round(self, number: int) -> Decision:
        """One block of each variant; whether to go on, as the leader decides."""
        at_s = perf_counter() - self._began
        order = self._random.sample(self._runs, len(self._runs))
        times: dict[Variant, StepTimes] = {}
        self._cores.start()
        for run in order:
            block_times = self._block(run, number)
            run.release()
            self._others_idled = run.one_rank
            if block_times is not None:
                times[run.variant] = block_times
        finite = self._losses_are_finite(order)
        elapsed_s = perf_counter() - self._began
        look, cores = self._meters.take_round(), self._cores.used()
        report = _RoundReport(times, finite, elapsed_s, look, cores)
        reports = self._team.gather_on_leader(report)
        decision = self._team.from_leader(self._decided(at_s, order, reports) if reports else None)
        if decision is None:
            raise InvalidTrialError("the loss is not finite")
        return decision

    def _decided(
        self, at_s: float, order: Sequence[VariantRun], reports: Sequence[_RoundReport]
    ) -> Decision | None:
        """Keep the round; whether it was the last one. None where a loss is not finite."""
        if not all(report.losses_are_finite for report in reports):
            return None
        round_ = Round(
            blocks=tuple(self._collect(run.variant, reports) for run in order),
            at_s=at_s,
            other_cores=self._other_load.of_round([report.cores for report in reports]),
            clock_mhz=tuple(report.look.clock_mhz for report in reports),
            throttled=tuple(report.look.throttled for report in reports),
            temperature_c=tuple(report.look.temperature_c for report in reports),
        )
        self._result.rounds.append(round_)
        return decide(self._result.rounds, self._measure, self._device.kind, reports[0].elapsed_s)

    def _block(self, run: VariantRun, number: int) -> StepTimes | None:
        """Step times of this rank in s, or None where it did not take part."""
        if run.replicated is not None and run.variant in self._diverged and self._team.size > 1:
            # only when nobody is timed any more: on a GPU a rank that waits in a broadcast keeps it busy
            self._team.barrier()
            self._team.broadcast(run.replicated())
            self._diverged.discard(run.variant)
        if run.changes_weights:
            self._diverged.add("ddp")  # the bare models share its weights
        run.activate()
        self._device.synchronize()
        self._team.barrier()
        if run.one_rank and self._turns[number % self._team.size] != self._team.rank:
            return None
        if run.leader_only and not self._team.leads:
            return None
        if run.batches is not None:
            drop_ready(run.batches)
        discarded, timed = self._discarded(run), self._sizes[run.variant].timed
        self._stopwatch.start()
        for index in range(discarded + timed):
            if index == discarded:
                self._meters.start(run.variant)
            run.step()
            self._stopwatch.lap()
            if index == 3 * (discarded + timed) // 4:
                late = self._device.moment()
        self._meters.look(run.variant, late)
        if run.independent and self._team.size > 1:
            self._step_until_all_are_done(run)
        return self._stopwatch.read()[discarded : discarded + timed]

    def _discarded(self, run: VariantRun) -> int:
        """More of them where devices have idled whose clocks may have fallen: equally many on all ranks."""
        lead_s = self._device.clock_ramp_s if self._others_idled else 0.0
        return self._sizes[run.variant].discarded + math.ceil(lead_s / self._step_s[run.variant])

    def _step_until_all_are_done(self, run: VariantRun) -> None:
        """Go on, untimed, until all are through: the last steps of the slowest must not run alone.

        A rank is through when its device is, not when all steps are given to it.
        """
        timed, ahead = self._device.moment(), deque[Moment]()
        all_arrived: Callable[[], bool] | None = None
        while True:
            if all_arrived is None and timed.query():
                all_arrived = self._team.arrived()
            if all_arrived is not None and all_arrived():
                return
            run.step()
            ahead.append(self._device.moment())
            if len(ahead) > STEPS_AHEAD:
                ahead.popleft().synchronize()

    def _losses_are_finite(self, order: Sequence[VariantRun]) -> bool:
        losses = [run.loss() for run in order]
        return all(loss is None or math.isfinite(float(loss)) for loss in losses)

    def _collect(self, variant: Variant, reports: Sequence[_RoundReport]) -> Block:
        worked = [
            (rank, report.times[variant])
            for rank, report in zip(self._team.ranks, reports, strict=True)
            if variant in report.times
        ]
        ranks, times = zip(*worked, strict=True)
        block = self._result.add_block(variant, ranks, np.stack(times))
        clocks = [each.look.clocks_mhz for each in reports if variant in each.times]
        if any(variant in each for each in clocks):
            block = block.model_copy(update={"clock_mhz": tuple(each.get(variant) for each in clocks)})
        return block
