"""How does the time between rounds, and between trials, grow with the number of ranks?

Ranks of gloo on this machine whose computing is a wait, so that many share few cores. What is told is the
leader's time: in a round outside its blocks of steps (reports travel to the leader, its answer comes back),
and in a trial outside set-up, warm-up and rounds.

    python -m benchmarks.rounds_by_ranks --ranks 2 8 32
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from raybench.analysis.stats.statistics import trimmed_mean
from raybench.records.requests import Configuration, StepsRequest
from raybench.records.results import StepsResult
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.spec.workloads import FactorySpec
from raybench.worker.communicators import Communicators
from raybench.worker.devices import open_device
from raybench.worker.group_cache import GroupCache
from raybench.worker.steps.rounds import MeasuringLoop
from raybench.worker.trial import run_trial

WAIT_S = 0.02
TRIALS, ROUNDS, STEPS = 6, 15, 5


class Waiting:
    """A step is a wait; one small gradient travels."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(8, 8)

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.ones(size, 8)

    def loss(self, model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(WAIT_S)
        loss: torch.Tensor = model(batch).mean()
        return loss


def build() -> Waiting:
    return Waiting()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 32])
    options = parser.parse_args()
    print(f"steps of {1e3 * WAIT_S:g} ms, {TRIALS} trials of {ROUNDS} rounds of one variant")
    for ranks in options.ranks:
        rounds, trials = measured(ranks)
        for words, times_s in (("between rounds", rounds), ("between trials", trials)):
            found = trimmed_mean([1e3 * each for each in times_s])
            spread = f"[{found.low:.2f}, {found.high:.2f}], n={found.n}"
            print(f"{ranks} ranks, {words}: {found.value:.2f} ms {spread}")


def measured(ranks: int) -> tuple[list[float], list[float]]:
    """Seconds outside blocks, of each round, and outside set-up, warm-up and rounds, of each trial."""
    with socket.socket() as free, TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        result = Path(folder) / "found"
        mp.spawn(_rank, args=(ranks, port, str(result)), nprocs=ranks)  # type: ignore[attr-defined]
        found: tuple[list[float], list[float]] = torch.load(result)
        return found


def _rank(rank: int, ranks: int, port: int, result: str) -> None:
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    communicators, cache, device = Communicators("gloo"), GroupCache(), open_device(torch.device("cpu"))
    outside = _OutsideBlocks()
    trials = list[float]()
    for number in range(TRIALS):
        began = time.perf_counter()
        found = run_trial(
            _request(ranks, number), tuple(range(ranks)), communicators, device, cache, lambda progress: None
        )
        wall_s = time.perf_counter() - began
        if rank == 0:
            assert found is not None
            assert isinstance(found.result, StepsResult), found.reason
            each = found.result
            if number:  # the first one makes the team's communicators
                trials.append(wall_s - each.setup_s - each.warmup_s - each.measure_s)
    if rank == 0:
        torch.save((outside.seconds, trials), result)
    dist.barrier()
    dist.destroy_process_group()


def _request(ranks: int, number: int) -> StepsRequest:
    config = Configuration(
        workload=FactorySpec(factory="benchmarks.rounds_by_ranks:build"),
        optimizer=OptimizerSpec(),
        setting=Setting(batch_size=4),
        world_size=ranks,
        seed=number,
    )
    measure = MeasureSpec(steps=STEPS, min_rounds=ROUNDS, warmup_steps=2, max_seconds=120.0)
    return StepsRequest(role="search", config=config, variants=("ddp",), measure=measure)


class _OutsideBlocks:
    """Seconds of each round that pass outside its blocks, where the measuring loop tells them apart."""

    def __init__(self) -> None:
        self.seconds = list[float]()
        self._in_blocks = 0.0
        block, round_ = MeasuringLoop._block, MeasuringLoop._round

        def timed_block(loop: MeasuringLoop, *arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return block(loop, *arguments)
            finally:
                self._in_blocks += time.perf_counter() - began

        def timed_round(loop: MeasuringLoop, *arguments: Any) -> Any:
            began, self._in_blocks = time.perf_counter(), 0.0
            found = round_(loop, *arguments)
            self.seconds.append(time.perf_counter() - began - self._in_blocks)
            return found

        MeasuringLoop._block = timed_block  # type: ignore[method-assign, assignment]
        MeasuringLoop._round = timed_round  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main()
