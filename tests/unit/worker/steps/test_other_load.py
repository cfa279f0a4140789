"""What others take of the cores, by the counters of ranks that share hosts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from raybench.machine import host
from raybench.worker.steps.meters import CoresUsed, OtherLoad


class Gathered:
    """A team whose ranks have said where they are."""

    def __init__(self, *places: tuple[str, int]) -> None:
        self.places = list(places)

    def gather(self, _: Any) -> list[tuple[str, int]]:
        return self.places


def test_what_the_ranks_of_a_host_do_not_use_is_others() -> None:
    load = OtherLoad(Gathered(("a", 8), ("b", 4), ("a", 8)))  # type: ignore[arg-type]
    assert load.hosts == (0, 1, 0)
    assert load.host_cores == (8, 4, 8)
    used = [CoresUsed(3.5, 1.0), CoresUsed(1.5, 0.75), CoresUsed(3.5, 2.0)]
    assert load.of_round(used) == (0.5, 0.75, 0.5)
    # readings of ranks lie some ticks apart: nobody gives cores back
    assert load.of_round([CoresUsed(2.9, 1.0), used[1], CoresUsed(2.9, 2.0)]) == (0.0, 0.75, 0.0)
    assert load.of_round([CoresUsed(None, 1.0), used[1], CoresUsed(None, 2.0)]) == (None, 0.75, None)


def test_cores_that_this_process_may_use_are_busy_whoever_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux counts guests in user time too; what a hypervisor gave to others is gone for this machine."""
    core = SimpleNamespace(
        user=10.0, nice=1.0, system=4.0, idle=500.0, iowait=50.0, irq=0.5, softirq=0.25, steal=2.0, guest=3.0
    )
    other = SimpleNamespace(**{**vars(core), "user": 1000.0})
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [core, other, core])
    monkeypatch.setattr(host, "allowed_cores", lambda: (0, 2))
    assert host.busy_core_seconds() == 2 * 17.75
    monkeypatch.setattr(host, "allowed_cores", lambda: (0, 3))
    assert host.busy_core_seconds() is None
