"""The measuring loop: shuffled rounds of blocks, until the interval is as narrow as asked."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from raybench.analysis.estimates.stopping import decide
from raybench.errors import InvalidTrialError
from raybench.records.measurements import Block, Round, StopReason
from raybench.records.messages import Samples
from raybench.records.requests import Variant
from raybench.spec.study import MeasureSpec
from raybench.worker.communicators import Team
from raybench.worker.devices.probe import DeviceProbe, synchronize
from raybench.worker.devices.stopwatch import stopwatch
from raybench.worker.steps.variant_run import VariantRun

BLOCK_SECONDS = {"cpu": 0.15, "cuda": 0.3}  # a GPU's clock ramps
MIN_STEPS, MIN_STEPS_IN_HASTE, MAX_STEPS = 5, 3, 500
DISCARD_SECONDS, MAX_DISCARD = 0.02, 5
PLAIN_SHARE = 0.20  # of the device time at most, from more than eight devices on
MANY_DEVICES = 8

Array = NDArray[np.float64]


@dataclass
class LoopResult:
    """What the rounds brought, the same on every rank but for ``energy_joules``."""

    rounds: list[Round] = field(default_factory=list)
    samples: list[Samples] = field(default_factory=list)
    stopped_by: StopReason = "max_seconds"
    seconds: float = 0.0
    loss: float | None = None
    energy_joules: float | None = None  # of this rank's device, over all timed steps of synced
    synced_steps: int = 0


class Loop:
    """Runs the rounds of one trial on this rank."""

    def __init__(
        self,
        team: Team,
        runs: Sequence[VariantRun],
        measure: MeasureSpec,
        device: torch.device,
        probe: DeviceProbe,
        *,
        seed: int,
        step_seconds: dict[Variant, float],
        on_round: Callable[[int, float | None], None] = lambda number, half_width: None,
    ) -> None:
        self._team, self._runs, self._measure = team, list(runs), measure
        self._device, self._probe, self._on_round = device, probe, on_round
        self._watch = stopwatch(device)
        self._random = random.Random(seed)  # the same order of blocks on every rank
        self._began = 0.0
        # each rank's own first steps made its weights; the bare lanes share those of synced
        self._stale = {run.variant for run in runs if run.drifting is not None}
        self._steps = {run.variant: self._block_steps(run, step_seconds) for run in runs}
        self._discard = {run.variant: self._discarded(run, step_seconds) for run in runs}
        variants = [run.variant for run in runs]
        self._measured: Variant = "synced" if "synced" in variants else "plain"
        self.result = LoopResult()

    def run(self) -> LoopResult:
        """Rounds until the interval is narrow enough or the time is spent."""
        self._began = perf_counter()
        rounds = self.result.rounds
        while True:
            round_, elapsed_s = self._round()
            rounds.append(round_)
            decision = decide(rounds, self._measure, self._device.type, elapsed_s)
            self._on_round(len(rounds), decision.half_width)
            if decision.stop:
                self.result.stopped_by, self.result.seconds = decision.stop, perf_counter() - self._began
                return self.result

    def _round(self) -> tuple[Round, float]:
        """One block of each variant; the elapsed time comes from the leader, so that all ranks stop alike."""
        number, at_s = len(self.result.rounds), perf_counter() - self._began
        order = self._random.sample(self._runs, len(self._runs))
        mine: dict[Variant, Array] = {}
        for run in order:
            times = self._block(run, number)
            if times is not None:
                mine[run.variant] = times
        finite, elapsed = self._losses_are_finite(order), perf_counter() - self._began
        reports = self._team.gather((mine, finite, elapsed, self._probe.clock_mhz(), self._probe.throttled()))
        if not all(report[1] for report in reports):
            raise InvalidTrialError("the loss is not finite")
        blocks = tuple(self._collect(run.variant, number, [report[0] for report in reports]) for run in order)
        return (
            Round(
                blocks=blocks,
                at_s=at_s,
                load_average=_load_average(),
                clock_mhz=tuple(report[3] for report in reports),
                throttled=tuple(report[4] for report in reports),
            ),
            reports[0][2],
        )

    def _block(self, run: VariantRun, number: int) -> Array | None:
        """Step times of this rank in s, or None where it sat still."""
        if run.drifting is not None and run.variant in self._stale and self._team.size > 1:
            self._team.same_weights(run.drifting())
            self._stale.discard(run.variant)
        if run.changes_weights:
            self._stale.add("synced")
        run.activate()
        synchronize(self._device)
        self._team.barrier()
        if run.alone and number % self._team.size != self._team.rank:
            return None
        if run.led and not self._team.leads:
            return None
        energy = self._probe.energy_joules() if run.variant == "synced" else None
        steps, discard = self._steps[run.variant], self._discard[run.variant]
        self._watch.start()
        for _ in range(discard + steps):
            run.step()
            self._watch.lap()
        if run.free and self._team.size > 1:
            self._keep_company(run)
        times = self._watch.read()[discard : discard + steps]
        self._count_energy(run, energy, discard + steps)
        return times

    def _keep_company(self, run: VariantRun) -> None:
        """Go on, untimed, until all are through: the last steps of the slowest must not run alone."""
        everyone_through = self._team.arrived()
        while not everyone_through():
            run.step()

    def _count_energy(self, run: VariantRun, before: float | None, steps: int) -> None:
        after = self._probe.energy_joules() if before is not None else None
        if before is not None and after is not None:
            self.result.energy_joules = (self.result.energy_joules or 0.0) + after - before
            self.result.synced_steps += steps

    def _losses_are_finite(self, order: Sequence[VariantRun]) -> bool:
        finite = True
        for run in order:
            loss = run.loss()
            if loss is not None:
                value = float(loss)
                finite &= math.isfinite(value)
                if run.variant == self._measured:
                    self.result.loss = value
        return finite

    def _collect(self, variant: Variant, number: int, reports: Sequence[dict[Variant, Array]]) -> Block:
        worked = [
            (rank, report[variant])
            for rank, report in zip(self._team.ranks, reports, strict=True)
            if variant in report
        ]
        ranks = tuple(rank for rank, _ in worked)
        times = np.stack([times for _, times in worked])
        self.result.samples.append(Samples(variant, number, ranks, times))
        return Block(
            variant=variant,
            ranks=ranks,
            step_time_s=tuple(float(mean) for mean in times.mean(axis=1)),
            slowest_s=float(times.max(axis=0).mean()),
            num_steps=times.shape[1],
        )

    def _block_steps(self, run: VariantRun, step_seconds: dict[Variant, float]) -> int:
        if self._measure.steps is not None:
            return self._measure.steps
        seconds = BLOCK_SECONDS[self._device.type]
        if self._team.size > MANY_DEVICES and not run.alone:
            others = sum(1 for other in self._runs if not other.alone)
            seconds = max(seconds, seconds * (1 / PLAIN_SHARE - 1) / others)
        # little time: shorter blocks, rather than too few rounds or a trial of several times its time
        share = self._measure.max_seconds / (self._measure.min_rounds * len(self._runs))
        slowest = max(step_seconds[other.variant] for other in self._runs)
        least = MIN_STEPS_IN_HASTE if MIN_STEPS * slowest > share else MIN_STEPS
        return min(max(math.ceil(min(seconds, share) / step_seconds[run.variant]), least), MAX_STEPS)

    def _discarded(self, run: VariantRun, step_seconds: dict[Variant, float]) -> int:
        steps = math.ceil(DISCARD_SECONDS / step_seconds[run.variant])
        return max(1, min(steps, MAX_DISCARD)) + run.warm


def _load_average() -> float | None:
    """Runnable processes of this host, mean over a minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
