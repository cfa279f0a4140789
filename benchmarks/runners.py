"""Do both runners measure the same, and what does a trial cost in each?

Four configurations are measured by a worker group that is started for them, by a worker group of its own for
each trial, and by Ray Tune with a TorchTrainer inside each trial, in turn, many times. Starts of one program
differ by more than the rounds of one start: a ratio is made of each repetition, the interval is over those.

What a trial costs is the time from its submission to its outcome, less warm-up and rounds.

    python -m benchmarks.runners --repetitions 6
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from raybench.analysis.scaling import scaling
from raybench.analysis.stats.statistics import geometric
from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.launch.tune_runner import TuneRunner
from raybench.machine import gpus
from raybench.machine.host import DeviceKind, WorkerNeeds
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import MLPSpec

WIDTH = 768
CONFIGURATIONS = {
    "batch 32": Setting(batch_size=32),
    "batch 256": Setting(batch_size=256),
    "batch 64, 1 MiB buckets": Setting(batch_size=64, bucket_cap_mb=1),
    "batch 128, bf16 on the wire": Setting(batch_size=128, gradient_compression="bf16"),
}
Runner = WorkerGroupRunner | TuneRunner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--max-seconds", type=float, default=10.0, help="of a trial's rounds")
    options = parser.parse_args()
    device: DeviceKind = "cuda" if gpus.gpu_names() else "cpu"
    ways: dict[str, Callable[[], dict[str, TrialRecord]]] = {
        "group": lambda: measured(WorkerGroupRunner, options, device, costs["group"], anew=False),
        "own group": lambda: measured(WorkerGroupRunner, options, device, costs["own group"], anew=True),
        "tune": lambda: measured(TuneRunner, options, device, costs["tune"], anew=False),
    }
    costs: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[dict[str, TrialRecord]]] = {name: [] for name in ways}
    names = list(ways)
    for repetition in range(options.repetitions):
        for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
            found[name].append(ways[name]())
            print(f"repetition {repetition + 1}: {name} done", flush=True)
    print("\n| configuration | step time, tune / group | efficiency, tune / group | n |")
    print("| --- | --- | --- | --- |")
    for words in CONFIGURATIONS:
        pairs = [
            (scaling(theirs[words]), scaling(ours[words]))
            for theirs, ours in zip(found["tune"], found["group"], strict=True)
        ]
        step = geometric([t.step_time_s.value / g.step_time_s.value for t, g in pairs])
        efficiencies = [(t.efficiency, g.efficiency) for t, g in pairs]
        efficiency = geometric([t.value / g.value for t, g in efficiencies if t and g])
        cells = [f"{each.value:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in (step, efficiency)]
        print(f"| {words} | {' | '.join(cells)} | {step.n} |")
    print("\n| a trial in | costs beside warm-up and rounds, s: median (least to most) | n |")
    print("| --- | --- | --- |")
    for name, seconds in costs.items():
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(f"| {name} | {statistics.median(seconds):.2f} ({spread}) | {len(seconds)} |")


def measured(
    kind: type[Runner], options: argparse.Namespace, device: DeviceKind, costs: list[float], *, anew: bool
) -> dict[str, TrialRecord]:
    """A record of each configuration; ``anew``: a worker group for each, whose start is part of its cost."""
    found = dict[str, TrialRecord]()
    with running(kind, device) as runner:
        runner.start(options.world_size, {})
        for words, setting in CONFIGURATIONS.items():
            request = asked(setting, options, device)
            began = time.perf_counter()
            if anew:
                runner.start(options.world_size, {}, anew=True)
            outcome = runner.run(request, lambda progress: None)
            elapsed_s = time.perf_counter() - began
            assert isinstance(outcome.result, StepsResult), outcome.reason
            costs.append(elapsed_s - outcome.result.warmup_s - outcome.result.measure_s)
            found[words] = outcome.to_record(request, study="runners", started_at="")
    return found


def asked(setting: Setting, options: argparse.Namespace, device: DeviceKind) -> StepsRequest:
    """The question that all are asked."""
    spec = MLPSpec(name="mlp", input_dim=WIDTH, hidden_dim=WIDTH, output_dim=WIDTH // 2)
    config = Configuration(
        workload=spec,
        optimizer=OptimizerSpec(),
        setting=setting,
        world_size=options.world_size,
        device="cuda" if device == "cuda" else "cpu",
    )
    measure = MeasureSpec(max_seconds=options.max_seconds)
    return StepsRequest(role="search", config=config, variants=("plain", "ddp"), measure=measure)


@contextmanager
def running(kind: type[Runner], device: DeviceKind) -> Iterator[Runner]:
    """A runner on a cluster of its own."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster, needs = Cluster(), WorkerNeeds(device, 1)
        cluster.prepare(needs, tell=lambda words: None)
        runner = kind(cluster, needs=needs, storage=Path(folder))
        try:
            yield runner
        finally:
            runner.close()


if __name__ == "__main__":
    main()
