"""Warm-up: until DDP has rebuilt its buckets and the step time is steady."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from raybench.records.requests import Variant
from raybench.spec.study import MeasureSpec
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.steps.variant_run import VariantRun

REBUILT_AFTER = 3  # steps: DDP rebuilds its buckets before the second, the third is as all that follow
WINDOW_STEPS = 3
STEADY = 0.05  # relative change between two windows
MAX_SHARE = 0.25  # of the trial's time, for each variant


@dataclass(frozen=True)
class WarmUp:
    """How long to warm up."""

    fixed_steps: int | None  # None: until steady
    max_seconds: float  # of the trial: a variant's warm-up takes a share of it at most

    @classmethod
    def of(cls, measure: MeasureSpec) -> WarmUp:
        """As a study's ``[measure]`` asks for it."""
        return cls(measure.warmup_steps, measure.max_seconds)


def warm_up(
    team: Team, runs: Sequence[VariantRun], asked: WarmUp, device: Device
) -> tuple[int, dict[Variant, float]]:
    """Steps of what is measured, and the step time of each variant in s (the slowest rank's).

    Synchronised variants go first, with a fully synchronised step: ``static_graph`` asserts otherwise.
    """
    total, step_s = 0, dict[Variant, float]()
    for run in sorted(runs, key=lambda run: run.changes_weights):
        run.activate()
        team.barrier()
        # what is measured is warmed until steady; the others have its caches, and follow
        until_steady = run.variant in ("synced", "versus") or team.size == 1
        steps, step_s[run.variant] = _warm(team, run, asked, device, until_steady)
        total += steps if run.variant in ("synced", "plain") and until_steady else 0
    return total, step_s


def _warm(
    team: Team, run: VariantRun, asked: WarmUp, device: Device, until_steady: bool
) -> tuple[int, float]:
    """Steps taken, and the step time of the last window in s, on the slowest rank."""
    began, before = perf_counter(), 0.0
    fixed = asked.fixed_steps
    steps = REBUILT_AFTER if fixed is None else max(fixed, 1)
    _time_steps(run, steps, device)
    while True:
        times = _time_steps(run, WINDOW_STEPS, device)
        steps += WINDOW_STEPS if fixed is None else 0
        # every rank's view, so that all go on or stop alike
        views = team.gather((median(times), perf_counter() - began))
        now, elapsed = max(view[0] for view in views), max(view[1] for view in views)
        steady = before > 0 and abs(now / before - 1) <= STEADY
        if not until_steady or fixed is not None or steady or elapsed > MAX_SHARE * asked.max_seconds:
            return steps, now
        before = now


def _time_steps(run: VariantRun, count: int, device: Device) -> list[float]:
    times = []
    for _ in range(count):
        began = perf_counter()
        run.step()
        device.synchronize()
        times.append(perf_counter() - began)
    return times
