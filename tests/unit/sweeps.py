"""Sweeps of collectives over planted links, without a process."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from raybench.analysis.collectives import SweepResults, analyse_sweep
from raybench.driver.session import run_sweep
from raybench.launch.runner import TrialRunner
from raybench.machine.host import Resources
from raybench.plan.sweep_plan import SweepPlan, make_sweep_plan
from raybench.records.record import State, TrialRecord
from raybench.records.requests import Place
from raybench.spec.sweep import Sweep
from tests.support.planted import FakeLink, FakeRunner, Noise
from tests.unit.runs import MemoryStore, Watched

KIB, MIB = 2**10, 2**20
STEADY = Noise(block=0.01)


def planned(num_devices: int = 4, num_nodes: int = 1, **fields: Any) -> SweepPlan:
    given = {"world_sizes": (2,)} | fields
    return make_sweep_plan(Sweep.model_validate(given), Resources("cpu", num_devices, "a CPU", num_nodes))


def run(
    plan: SweepPlan,
    runner: TrialRunner | None = None,
    store: MemoryStore | None = None,
    told: Watched | None = None,
    retry: Collection[State] = (),
) -> list[tuple[Place, str]]:
    """Run a sweep; what has no room, and why."""
    runner = runner or FakeRunner(noise=STEADY, num_devices=plan.num_devices)
    return run_sweep(plan, runner, store or MemoryStore(), told or Watched(), retry)


def swept(
    link: FakeLink | None = None, noise: Noise = STEADY, *, seed: int = 0, **fields: Any
) -> tuple[list[TrialRecord], SweepResults]:
    """The records of a whole sweep, and what they say."""
    plan, store = planned(**fields), MemoryStore()
    run(plan, FakeRunner(noise=noise, seed=seed, link=link, num_devices=plan.num_devices), store)
    records = list(store.latest().values())
    return records, analyse_sweep(plan.sweep, records)
