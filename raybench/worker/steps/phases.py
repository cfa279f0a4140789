"""Phases of a step, timed in blocks of their own: marks inside a step cost time on GPUs and on CPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from raybench.records.measurements import Phase, PhaseBlock
from raybench.worker.batches import drop_ready, whole_turns
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper

NUM_BLOCKS, MAX_STEPS, DISCARD = 5, 3, 1
MAX_SHARE = 0.25  # of the trial's time
PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")

Steppers = dict[Literal["plain", "local", "synced"], Stepper]


def phases_of_trial(
    models: StrategyModels, team: Team, *, has_plain: bool, step_s: float, max_seconds: float
) -> tuple[PhaseBlock, ...]:
    """Phases of the bare model, and of the twin or the model under its strategy. A collective call."""
    steppers: Steppers = {}
    if has_plain:
        steppers["plain"] = models.bare
    if models.twin is not None:
        steppers["local"] = models.twin
    elif models.wrapped is not None and models.setting.strategy != "dp":
        if models.setting.strategy == "ddp":
            team.broadcast(models.wrapped.tensors())
        steppers["synced"] = models.wrapped
    activate, device = models.activate, models.device
    return phase_blocks(team, steppers, activate, device, step_s=step_s, max_seconds=max_seconds)


def phase_blocks(
    team: Team,
    steppers: Steppers,
    activate: Callable[[], None],
    device: Device,
    *,
    step_s: float,
    max_seconds: float,
) -> tuple[PhaseBlock, ...]:
    """Blocks of each stepper on every rank, ``plain`` on the leader alone; means over steps and ranks."""
    affordable = MAX_SHARE * max_seconds / (NUM_BLOCKS * len(steppers) * step_s) - DISCARD
    num_steps, blocks = max(1, min(MAX_STEPS, int(affordable))), []
    for _ in range(NUM_BLOCKS):
        for variant, stepper in steppers.items():
            activate()
            team.barrier()
            steps = whole_turns(num_steps, stepper.batches, stepper.batches_per_step)
            phases = _phases_on_rank(variant, stepper, team, device, steps)
            reports = [report for report in team.gather(phases) if report is not None]
            mean = {phase: sum(report[phase] for report in reports) / len(reports) for phase in reports[0]}
            blocks.append(PhaseBlock(variant=variant, seconds=mean, num_steps=steps))
    return tuple(blocks)


def _phases_on_rank(
    variant: str, stepper: Stepper, team: Team, device: Device, num_steps: int
) -> dict[Phase, float] | None:
    """None on a rank that takes no part. Where ranks do not wait for each other, a failure is agreed on."""
    if variant == "synced":
        return _time_phases(stepper, device, num_steps)
    takes_part = variant != "plain" or team.leads
    return team.agreed(lambda: _time_phases(stepper, device, num_steps) if takes_part else None)


def _time_phases(stepper: Stepper, device: Device, num_steps: int) -> dict[Phase, float]:
    """Mean over steps, in s; "other" is what lies between one step's last mark and the next step."""
    drop_ready(stepper.batches)
    for _ in range(DISCARD):
        stepper.step()
    device.synchronize()
    stopwatch, order = device.stopwatch(), list[Phase]()

    def mark(phase: Phase) -> None:
        stopwatch.lap()
        order.append(phase)

    stopwatch.start()
    for _ in range(num_steps):
        stepper.step(mark)
        mark("other")
    totals: dict[Phase, float] = defaultdict(float)
    for phase, seconds in zip(order, stopwatch.read(), strict=True):
        totals[phase] += float(seconds)
    return {phase: totals[phase] / num_steps for phase in (*PHASES, "other")}
