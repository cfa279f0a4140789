"""Does raybench's step time agree with the same model under torchrun?

A torchrun of ``plain_ddp.py`` and raybench's worker group stand side by side on the same devices and work in
turn, seconds apart, while the other sleeps: one pair. Both are started anew many times, since two starts of
one program differ by more than the pairs of one start do: the 95% interval is over the starts' medians.

Whoever uses torchrun has no Ray beside it: Ray's processes, which take a tenth of a core on their own, are
stopped (SIGSTOP) in torchrun's turns, unless ``--beside-ray``.

    python -m benchmarks.torchrun_agreement --starts 10 --pairs 6 --batch-size 128
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from raybench.analysis.stats.statistics import geometric
from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.machine import gpus
from raybench.machine.host import DeviceKind, WorkerNeeds
from raybench.records.requests import Configuration, StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import MLPSpec

BLOCKS = 5
SETTLE_S = 2.0  # what Ray's processes catch up on when they run again must not fall into the next turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=10, help="of torchrun and of the worker group")
    parser.add_argument("--pairs", type=int, default=6, help="for each start")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--beside-ray", action="store_true", help="torchrun's turns with Ray at work")
    parser.add_argument("--steps", type=int, default=10, help="of a block, in both")
    options = parser.parse_args()
    device: DeviceKind = "cuda" if gpus.gpu_names() else "cpu"
    ratios, medians = list[float](), list[float]()
    with TemporaryDirectory() as folder:
        needs, cluster = WorkerNeeds(device, 1), Cluster()
        cluster.prepare(needs, tell=lambda words: None)
        runner = WorkerGroupRunner(cluster, needs=needs, storage=Path(folder))
        try:
            for start in range(options.starts):
                # another variable makes another group: new processes on both sides
                runner.start(options.world_size, {"RAYBENCH_START": str(start)})
                found = pairs(runner, options, device)
                ratios += found
                medians.append(statistics.median(found))
                print(f"start {start + 1}: median ratio {medians[-1]:.3f}", flush=True)
        finally:
            runner.close()
    estimate = geometric(medians)
    print(
        f"raybench / torchrun: median {statistics.median(ratios):.3f} of {len(ratios)} pairs; "
        f"of the starts {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}], n={estimate.n}"
    )


def pairs(runner: WorkerGroupRunner, options: argparse.Namespace, device: str) -> list[float]:
    """Ratios of step times, one for each pair; who goes first alternates."""
    spec = MLPSpec(
        name="mlp", input_dim=options.width, hidden_dim=options.width, output_dim=options.width // 2
    )
    config = Configuration(
        workload=spec,
        optimizer=OptimizerSpec(),
        setting=Setting(batch_size=options.batch_size),
        world_size=options.world_size,
        device="cuda" if device == "cuda" else "cpu",
    )
    request = StepsRequest(
        role="search",
        config=config,
        variants=("plain", "ddp"),
        measure=MeasureSpec(steps=options.steps, min_rounds=BLOCKS),
    )
    ratios, of_ray = [], psutil.Process().children(recursive=True)
    with TemporaryDirectory() as folder, torchrun(spec, options, Path(folder)):

        def their_turn(number: int) -> float:
            with nullcontext() if options.beside_ray else stopped(of_ray):
                return turn(Path(folder), number)

        for number in range(options.pairs):
            if number % 2:
                theirs, ours = their_turn(number), trial(runner, request)
            else:
                ours, theirs = trial(runner, request), their_turn(number)
            ratios.append(ours / theirs)
    return ratios


@contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """Inside, ``processes`` do not run."""
    for process in processes:
        if process.is_running():
            process.suspend()
    try:
        yield
    finally:
        for process in processes:
            if process.is_running():
                process.resume()
        time.sleep(SETTLE_S)


def trial(runner: WorkerGroupRunner, request: StepsRequest) -> float:
    """Median over rounds of the slowest rank's step time, in s."""
    outcome = runner.run(request, lambda progress: None)
    assert isinstance(outcome.result, StepsResult), outcome.reason
    blocks = [round_.block("ddp") for round_ in outcome.result.rounds]
    return statistics.median(max(block.step_time_s) for block in blocks if block is not None)


def turn(folder: Path, number: int) -> float:
    """Median over blocks of the step time under torchrun, in s."""
    (folder / f"go-{number}").touch()
    done = folder / f"done-{number}"
    while not done.exists():
        time.sleep(0.05)
    return float(done.read_text())


@contextmanager
def torchrun(spec: MLPSpec, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """``plain_ddp.py`` on as many ranks, waiting for its turns."""
    sizes = [spec.input_dim, spec.hidden_dim, spec.output_dim, spec.num_layers, options.batch_size]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={options.world_size}", str(Path(__file__).parent / "plain_ddp.py")]
    command += [str(number) for number in (*sizes, BLOCKS, options.steps)] + [str(folder)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        yield
    finally:
        (folder / "stop").touch()
        process.wait(60)


if __name__ == "__main__":
    main()
