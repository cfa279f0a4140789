"""What is timed in steps of their own, on a clock that only what is planted moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from raybench.worker.steps import profiling

TIMES = {"scatter": 0.001, "replicate": 0.004, "gather": 0.002}


def test_the_parts_of_dataparallel_are_timed_with_every_device_waited_for(monkeypatch):
    clock, waits = [0.0], list[Any]()

    class Module(nn.Module):
        """Takes its parts as DataParallel does; what is in flight is seen by the one that waits."""

        def part(self, name: str) -> str:
            clock[0] += TIMES[name]
            return name

        def scatter(self) -> str:
            return self.part("scatter")

        def replicate(self) -> str:
            return self.part("replicate")

        def gather(self) -> str:
            return self.part("gather")

        def forward(self) -> list[str]:
            clock[0] += 0.1  # the passes of the devices are no part
            return [self.scatter(), self.replicate(), self.gather()]

    module = Module()
    monkeypatch.setattr(profiling, "perf_counter", lambda: clock[0])
    models: Any = SimpleNamespace(
        wrapped=SimpleNamespace(module=module, step=lambda: [module(), module()]),  # two micro-batches
        device=SimpleNamespace(synchronize=waits.append),
        dp_devices=[0, 1],
    )
    team: Any = SimpleNamespace(leads=True, agreed=lambda make: make(), from_leader=lambda item: item)
    found = profiling.data_parallel_seconds(models, team, 0.01, 10.0)["data_parallel_s"]
    assert {name: round(seconds, 9) for name, seconds in found.items()} == {
        name: 2 * seconds for name, seconds in TIMES.items()
    }
    assert waits == [[0, 1]] * (2 * 2 * 3 * profiling.DP_STEPS)
    assert vars(module).keys().isdisjoint(TIMES)  # torch's own again
