"""What does the stopwatch cost a script? The same script under torchrun and under raybench, in turn.

Both beside one and the same Ray, each start in new processes: under torchrun the script times its own steps.
The ratio is taken within each pair of neighbouring starts. The script sleeps for a part of each step (a
device that is busy) and computes for the rest.

    python -m benchmarks.script_overhead --starts 10 --world-size 2
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from raybench.analysis.stats.rounds import slowest_rank_s
from raybench.analysis.stats.statistics import geometric
from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.machine.host import WorkerNeeds
from raybench.records.requests import Configuration, StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import ScriptSpec

SCRIPT = """
import sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sleep_s, steps, width = float(sys.argv[1]) / 1e3, int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch, times, began = torch.randn(64, width), [], time.perf_counter()
for _ in range(steps):
    time.sleep(sleep_s)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    now = time.perf_counter()
    times.append(now - began)
    began = now
blocks = torch.tensor(times[len(times) // 4 :]).unfold(0, 20, 20).mean(1)
dist.all_reduce(blocks, dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print("step", blocks.median().item())
dist.destroy_process_group()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=10, help="of each")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="of each step")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=400, help="of each start")
    options = parser.parse_args()
    ratios, own = list[float](), list[float]()
    with TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        needs, cluster = WorkerNeeds("cpu", 1), Cluster()
        cluster.prepare(needs, tell=lambda words: None)
        runner = WorkerGroupRunner(cluster, needs=needs, storage=Path(folder))
        try:
            runner.start(options.world_size, {})
            for start in range(options.starts):
                turns = (bare, timed) if start % 2 else (timed, bare)
                found = {turn: turn(script, options, runner) for turn in turns}
                ratios.append(found[timed] / found[bare])
                own.append(found[bare])
                print(
                    f"start {start}: torchrun {found[bare] * 1e3:.2f} ms, ratio {ratios[-1]:.3f}", flush=True
                )
        finally:
            runner.close()
    estimate = geometric(ratios)
    spread = statistics.stdev(own) / statistics.fmean(own)
    print(f"timed over bare: {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}], n={len(ratios)}")
    print(f"starts of torchrun differ by {spread:.1%} (standard deviation)")


def bare(script: Path, options: argparse.Namespace, runner: WorkerGroupRunner) -> float:
    """The step as the script itself times it under torchrun, in s, on the slowest rank."""
    words = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={options.world_size}"]
    given = [str(options.sleep_ms), str(options.steps), str(options.width)]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}  # as the workers have it
    done = subprocess.run(
        [*words, str(script), *given], capture_output=True, text=True, check=True, env=variables
    )
    return float(next(line for line in done.stdout.splitlines() if line.startswith("step")).split()[1])


def timed(script: Path, options: argparse.Namespace, runner: WorkerGroupRunner) -> float:
    """The step as raybench times it in as many steps, in s."""
    args = f"{options.sleep_ms} 1000000 {options.width}"
    rounds = 10
    request = StepsRequest(
        role="scaling",
        config=Configuration(
            workload=ScriptSpec(script=str(script), args=args, samples_per_step=64),
            optimizer=OptimizerSpec(),
            setting=Setting(batch_size=64).at(options.world_size),
            world_size=options.world_size,
            seed=int(time.time()),
        ),
        variants=("plain",) if options.world_size == 1 else ("local", "ddp"),
        measure=MeasureSpec(steps=options.steps // (2 * rounds), min_rounds=rounds, half_width=0.5),
    )
    outcome = runner.run(request, lambda progress: None)
    assert isinstance(outcome.result, StepsResult), outcome.reason
    blocks = (block for each in outcome.result.rounds for block in each.blocks)
    return statistics.median(slowest_rank_s(block) for block in blocks if block.variant in ("plain", "ddp"))


if __name__ == "__main__":
    main()
