"""Sweeps of collectives over planted links, without a process."""

from __future__ import annotations

from typing import Any

from raybench.analysis.collectives import SweepResults, analyse_sweep
from raybench.driver.sweep import SweepPlan, SweepSession, make_sweep_plan
from raybench.machine.host import Resources
from raybench.records.messages import Progress
from raybench.records.record import TrialRecord
from raybench.spec.sweep import Sweep
from tests.support.planted import FakeLink, FakeRunner, Noise
from tests.unit.runs import MemoryStore

KIB, MIB = 2**10, 2**20
STEADY = Noise(block=0.01)


class Told:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []  # world size and part
        self.left_s: list[float] = []
        self.rounds: list[int] = []  # of a place, when a part of it was done

    def part(self, request: Any, *, done: int, total: int, left_s: float) -> None:
        self.parts.append((request.config.world_size, request.part))
        self.left_s.append(left_s)

    def progress(self, progress: Progress) -> None:
        pass

    def part_done(self, records: Any) -> None:
        self.rounds.append(sum(len(each.collectives.rounds) for each in records if each.collectives))


def planned(num_devices: int = 4, num_nodes: int = 1, **fields: Any) -> SweepPlan:
    given = {"world_sizes": (2,)} | fields
    return make_sweep_plan(Sweep.model_validate(given), Resources("cpu", num_devices, "a CPU", num_nodes))


def session(
    plan: SweepPlan, runner: FakeRunner | None = None, store: MemoryStore | None = None, **fields: Any
) -> SweepSession:
    runner = runner or FakeRunner(noise=STEADY, num_devices=plan.num_devices)
    return SweepSession(plan, runner, store or MemoryStore(), fields.pop("watcher", Told()), **fields)


def swept(
    link: FakeLink | None = None, noise: Noise = STEADY, *, seed: int = 0, **fields: Any
) -> tuple[list[TrialRecord], SweepResults]:
    """The records of a whole sweep, and what they say."""
    plan = planned(**fields)
    run = session(plan, FakeRunner(noise=noise, seed=seed, link=link, num_devices=plan.num_devices))
    run.run()
    records = list(run.store.latest().values())
    return records, analyse_sweep(plan.sweep, records)
