"""Phases of a step, timed in blocks of their own: marks inside a step cost time on GPUs and on CPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Literal

import torch

from raybench.records.measurements import Phase, PhaseBlock
from raybench.worker.communicators import Team
from raybench.worker.devices.probe import synchronize
from raybench.worker.devices.stopwatch import stopwatch
from raybench.worker.strategies.models import Bench
from raybench.worker.strategies.stepper import Lane

NUM_BLOCKS, MAX_STEPS, DISCARD = 5, 3, 1
MAX_SHARE = 0.25  # of the trial's time
PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")


Lanes = dict[Literal["plain", "local", "synced"], Lane]


def phases_of_trial(
    bench: Bench, team: Team, *, has_plain: bool, step_s: float, max_seconds: float
) -> tuple[PhaseBlock, ...]:
    """Phases of the bare model, and of the twin or the real thing. A collective call."""
    lanes: Lanes = {}
    if has_plain:
        lanes["plain"] = bench.bare
    if bench.local is not None:
        lanes["local"] = bench.local
    elif bench.real is not None and bench.setting.strategy != "dp":
        if bench.setting.strategy == "ddp":
            team.same_weights(bench.real.tensors())
        lanes["synced"] = bench.real
    return phase_blocks(team, lanes, bench.activate, bench.device, step_s=step_s, max_seconds=max_seconds)


def phase_blocks(
    team: Team,
    lanes: Lanes,
    activate: Callable[[], None],
    device: torch.device,
    *,
    step_s: float,
    max_seconds: float,
) -> tuple[PhaseBlock, ...]:
    """Blocks of each lane on every rank, ``plain`` on the leader alone; means over steps and ranks."""
    affordable = MAX_SHARE * max_seconds / (NUM_BLOCKS * len(lanes) * step_s) - DISCARD
    num_steps, blocks = max(1, min(MAX_STEPS, int(affordable))), []
    for _ in range(NUM_BLOCKS):
        for variant, lane in lanes.items():
            activate()
            team.barrier()
            alone = variant == "plain"
            mine = None if alone and not team.leads else _time_phases(lane, device, num_steps)
            reports = [report for report in team.gather(mine) if report is not None]
            mean = {phase: sum(report[phase] for report in reports) / len(reports) for phase in reports[0]}
            blocks.append(PhaseBlock(variant=variant, seconds=mean, num_steps=num_steps))
    return tuple(blocks)


def _time_phases(lane: Lane, device: torch.device, num_steps: int) -> dict[Phase, float]:
    """Mean over steps, in s; "other" is what lies between one step's last mark and the next step."""
    for _ in range(DISCARD):
        lane.step()
    synchronize(device)
    watch, order = stopwatch(device), list[Phase]()

    def mark(phase: Phase) -> None:
        watch.lap()
        order.append(phase)

    watch.start()
    for _ in range(num_steps):
        lane.step(mark)
        mark("other")
    totals: dict[Phase, float] = defaultdict(float)
    for phase, seconds in zip(order, watch.read(), strict=True):
        totals[phase] += float(seconds)
    return {phase: totals[phase] / num_steps for phase in (*PHASES, "other")}
