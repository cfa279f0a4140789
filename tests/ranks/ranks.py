"""Runs a function on several gloo ranks of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import torch.distributed as dist

from tests.support import budget

# Ranks are forked from a process that has imported what they need, and has begun nothing: each would take
# three seconds of a core to import it itself.
IMPORTED = ("torch._dynamo", "raybench.worker.trials")
RANKS = multiprocessing.get_context("forkserver")
RANKS.set_forkserver_preload(list(IMPORTED))


def run_ranks(
    function: Callable[..., Any], world_size: int, *arguments: Any, timeout_s: float = 200
) -> list[Any]:
    """What ``function(*arguments)`` returns on each of ``world_size`` ranks, in order."""
    budget.took(budget.RANKS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with TemporaryDirectory() as folder:
        processes = [
            RANKS.Process(
                target=_rank,
                args=(function, rank, world_size, port, folder, dict(os.environ), arguments),
            )
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout_s)
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            process.kill()
        assert not alive, f"{len(alive)} ranks still ran after {timeout_s} s"
        results = []
        for rank in range(world_size):
            file = Path(folder) / str(rank)
            assert file.exists(), f"rank {rank} died with exit code {processes[rank].exitcode}"
            kind, value = pickle.loads(file.read_bytes())
            assert kind == "ok", f"rank {rank}:\n{value}"
            results.append(value)
        return results


def until_it_agrees(check: Callable[[], None], measure_again: Callable[[], None], attempts: int = 3) -> None:
    """Call ``check``; where it does not agree other processes may have disturbed what was measured."""
    for attempt in range(attempts):
        try:
            check()
            return
        except AssertionError as error:
            if attempt == attempts - 1:
                raise
            print(f"measured again: {error}")
        wait_for_a_quiet_machine()
        measure_again()


def results_that_agree(folder: Path, measure: Callable[[str], None], check: Callable[[Path], None]) -> Path:
    """The results directory in ``folder`` that ``measure`` wrote under the name that it is given.

    Where that does not pass ``check`` other processes may have disturbed the study: it is run once more.
    """
    names = ["first"]
    measure(names[-1])

    def measure_again() -> None:
        names.append("second")
        measure(names[-1])

    until_it_agrees(lambda: check(folder / names[-1]), measure_again, attempts=2)
    return folder / names[-1]


def wait_for_a_quiet_machine() -> None:
    """At most 20 s: whoever used the cores may have finished."""
    for _ in range(20):
        if psutil.cpu_percent(interval=1.0) < 40:
            return


def _rank(
    function: Callable[..., Any],
    rank: int,
    world_size: int,
    port: int,
    folder: str,
    environment: dict[str, str],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.clear()  # of the process that it is forked from, which may be older
    os.environ.update(
        environment,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
    )
    dist.init_process_group("gloo")
    try:
        answer = ("ok", function(*arguments))
    except BaseException:
        answer = ("error", traceback.format_exc())
    (Path(folder) / str(rank)).write_bytes(pickle.dumps(answer))
    if answer[0] == "ok":
        dist.destroy_process_group()
