"""Does raybench's step time agree with the same model under torchrun?

The two run alternately on the same devices: a trial in raybench's worker group, then a torchrun of
``plain_ddp.py`` while the group sleeps, and so on. The ratio of each pair and its trimmed mean are printed.

    python benchmarks/torchrun_agreement.py --pairs 10 --batch-size 128
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from raybench import machine
from raybench.analysis import step_time
from raybench.analysis.statistics import geometric
from raybench.launch.cluster import Cluster
from raybench.launch.worker_group import WorkerGroupRunner
from raybench.record import TrialRequest
from raybench.spec import MeasureSpec, MLPSpec, OptimizerSpec, Setting
from raybench.testing import to_record

BLOCKS = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="steps of a block, in both")
    options = parser.parse_args()
    cuda = bool(machine.gpu_names())
    device = "cuda" if cuda else "cpu"
    spec = MLPSpec(
        name="mlp", input_dim=options.width, hidden_dim=options.width, output_dim=options.width // 2
    )
    with TemporaryDirectory() as folder:
        cluster = Cluster(device=device, cpus_per_worker=1)
        runner = WorkerGroupRunner(cluster, device=device, cpus_per_worker=1, storage=Path(folder))
        try:
            runner.start(options.world_size, {})
            ratios = []
            for pair in range(options.pairs):
                # alternate also who goes first
                if pair % 2:
                    theirs, ours = torchrun(spec, options), raybench(runner, spec, options, device)
                else:
                    ours, theirs = raybench(runner, spec, options, device), torchrun(spec, options)
                ratios.append(ours / theirs)
                print(
                    f"pair {pair + 1}: raybench {ours * 1e3:.2f} ms, torchrun {theirs * 1e3:.2f} ms, "
                    f"ratio {ours / theirs:.3f}",
                    flush=True,
                )
        finally:
            runner.close()
    found = geometric(ratios)
    print(
        f"raybench / torchrun: median {statistics.median(ratios):.3f}, "
        f"trimmed mean {found.value:.3f} [{found.low:.3f}, {found.high:.3f}], n={found.n}"
    )


def raybench(runner: WorkerGroupRunner, spec: MLPSpec, options: argparse.Namespace, device: str) -> float:
    """Median over rounds of the slowest rank's step time, in s."""
    request = TrialRequest(
        role="scaling",
        workload=spec,
        optimizer=OptimizerSpec(),
        setting=Setting(batch_size=options.batch_size),
        world_size=options.world_size,
        variants=("plain", "synced"),
        measure=MeasureSpec(steps=options.steps, min_rounds=BLOCKS),
        device="cuda" if device == "cuda" else "cpu",
    )
    outcome = runner.run(request, lambda progress: None)
    record = to_record(request, outcome)
    assert outcome.measurement is not None, outcome.reason
    assert step_time(record).value > 0
    blocks = [round_.block("synced") for round_ in outcome.measurement.rounds]
    return statistics.median(max(block.step_time_s) for block in blocks if block is not None)


def torchrun(spec: MLPSpec, options: argparse.Namespace) -> float:
    """Median over blocks of rank 0's step time, in s."""
    sizes = [spec.input_dim, spec.hidden_dim, spec.output_dim, spec.num_layers]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={options.world_size}", str(Path(__file__).parent / "plain_ddp.py")]
    command += [str(number) for number in (*sizes, options.batch_size, BLOCKS, options.steps)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return float(json.loads(line)["step_time_s"])


if __name__ == "__main__":
    main()
