"""What does a trial in a running group cost beside its warm-up and its rounds?

Runs 50 suggestions of a study through Optuna, the worker group and the store, as ``scaling`` does, and
prints the time from the end of one trial to the end of the next, less warm-up and rounds.

    python -m benchmarks.between_trials
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from raybench.analysis.stats.statistics import trimmed_mean
from raybench.driver.session import Session
from raybench.driver.stages import run_study
from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.machine import environment
from raybench.machine.host import WorkerNeeds
from raybench.plan.make_plan import make_plan
from raybench.records.messages import GroupInfo, OnProgress, Outcome
from raybench.records.requests import TrialRequest
from raybench.records.store import ResultsDirectory
from raybench.spec.load import resolve

TRIALS = 50
STUDY = {
    "name": "between_trials",
    "workload": {"name": "mlp", "input_dim": 768, "hidden_dim": 768, "output_dim": 384},
    "knobs": {
        "batch_size": [16, 32, 48, 64],
        "bucket_cap_mb": ["default", 1, 5, 25],
        "precision": ["fp32", "bf16"],
        "gradient_as_bucket_view": [False, True],
    },
    "search": {"method": "optuna", "trials": TRIALS},
    "measure": {"steps": 5, "min_rounds": 5, "warmup_steps": 3},
}


class Timed:
    """The runner, with the moment at which each trial ended."""

    def __init__(self, runner: WorkerGroupRunner) -> None:
        self._runner = runner
        self.ends: list[tuple[float, Outcome]] = []
        self.starts: list[float] = []

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        return self._runner.start(world_size, environment, anew=anew)

    def run(self, request: TrialRequest, on_progress: OnProgress) -> Outcome:
        self.starts.append(time.perf_counter())
        outcome = self._runner.run(request, on_progress)
        if request.role == "search":
            self.ends.append((time.perf_counter(), outcome))
        return outcome

    def close(self) -> None:
        self._runner.close()

    def abandon(self) -> None:
        self._runner.abandon()


class Silent:
    """Nobody watches."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


def main() -> None:
    study = resolve(STUDY)
    with TemporaryDirectory() as folder:
        cluster, needs = Cluster(), WorkerNeeds("cpu", 1)
        group = WorkerGroupRunner(cluster, needs=needs, storage=Path(folder) / "ray")
        runner = Timed(group)
        plan = make_plan(study, cluster.resources(needs))
        with ResultsDirectory.create(Path(folder) / "out", study, environment.capture()) as store:
            try:
                journal = store.path / "optuna.log"
                run_study(Session(plan=plan, runner=runner, store=store, watcher=Silent(), journal=journal))
            finally:
                runner.close()
    costs, outside, set_up = [], [], []
    for (before, _), (after, outcome), start in zip(
        runner.ends, runner.ends[1:], runner.starts[1:], strict=False
    ):
        found = outcome.result
        assert found is not None, outcome.reason
        assert found.kind == "steps"
        costs.append((after - before - found.warmup_s - found.measure_s) * 1e3)
        outside.append((start - before) * 1e3)
        set_up.append(found.setup_s * 1e3)
    estimate = trimmed_mean(costs)
    print(f"between two trials: median {statistics.median(costs):.1f} ms, ", end="")
    print(f"trimmed mean {estimate.value:.1f} ms [{estimate.low:.1f}, {estimate.high:.1f}], ", end="")
    print(f"largest {max(costs):.1f} ms, over 50 ms {sum(cost > 50 for cost in costs)} of {len(costs)}")
    print(f"  of it Optuna, store and plan: median {statistics.median(outside):.1f} ms")
    print(f"  of it making the model and its wrapper: median {statistics.median(set_up):.1f} ms")


if __name__ == "__main__":
    main()
