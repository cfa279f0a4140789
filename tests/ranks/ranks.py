"""Gloo ranks of this machine that run functions."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from tempfile import TemporaryDirectory
from typing import Any

import torch.distributed as dist

from raybench.worker.devices.device import Device
from tests.support import budget
from tests.support.forkserver import FORKSERVER

BLOCK_S = "RAYBENCH_TEST_BLOCK_S"  # a variable: the length of a block on CPUs, where a test has it shorter
USUAL_BLOCK_S = Device.block_seconds
LEFT_S = 3.0  # until ranks are ended that wait for one that has failed
ENDS_S = 10.0  # that a process may take to end


class Ranks:
    """Ranks that run one function after the other, and begin again in new processes after a failure.

    What a function leaves in its process is there for the next one: who replaces a part of the product or of
    torch puts it back. Process groups that it has made are left for it.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._processes: list[ForkServerProcess] = []
        self._pipes: list[Connection] = []

    def call(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 200) -> list[Any]:
        """What ``function(*arguments)`` returns on each rank, in order."""
        if not self._processes:
            self._start()
        try:
            message = pickle.dumps((dict(os.environ), list(sys.path), pickle.dumps((function, arguments))))
            for pipe in self._pipes:
                pipe.send_bytes(message)
            return self._answers(timeout_s)
        except BaseException:  # a timeout of pytest's too: who still runs must not run beside the next test
            self._kill()
            raise

    def close(self) -> None:
        """End the processes; a further call starts new ones."""
        for pipe in self._pipes:
            with suppress(OSError):  # it has died meanwhile
                pipe.send_bytes(b"")
        for process in self._processes:
            process.join(ENDS_S)
        self._kill()

    def _start(self) -> None:
        budget.took(budget.RANKS)
        self._folder = TemporaryDirectory()
        pairs = [FORKSERVER.Pipe() for _ in range(self._world_size)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = [
            FORKSERVER.Process(target=_rank, args=(theirs, rank, self._world_size, self._folder.name))
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process, (_, theirs) in zip(self._processes, pairs, strict=True):
            process.start()
            theirs.close()

    def _answers(self, timeout_s: float) -> list[Any]:
        values, failures = dict[int, Any](), dict[int, str]()
        deadline = time.monotonic() + timeout_s
        while len(values) + len(failures) < self._world_size and time.monotonic() < deadline:
            open_ = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in {*values, *failures}}
            for pipe in wait(list(open_), max(0.0, deadline - time.monotonic())):
                rank = open_[pipe]  # type: ignore[index]
                try:
                    is_sound, value = pickle.loads(pipe.recv_bytes())  # type: ignore[union-attr]
                except (EOFError, OSError):
                    self._processes[rank].join(ENDS_S)
                    is_sound, value = False, f"died with exit code {self._processes[rank].exitcode}"
                (values if is_sound else failures)[rank] = value
            if failures:
                deadline = min(deadline, time.monotonic() + LEFT_S)
        for rank in range(self._world_size):
            if rank not in {*values, *failures}:
                failures[rank] = "still ran"
        assert not failures, "\n".join(f"rank {rank}: {failures[rank]}" for rank in sorted(failures))
        return [values[rank] for rank in range(self._world_size)]

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()
        if self._processes:
            self._folder.cleanup()
        self._processes, self._pipes = [], []


def run_ranks(
    function: Callable[..., Any], world_size: int, *arguments: Any, timeout_s: float = 200
) -> list[Any]:
    """The same as ``Ranks.call``, in processes that are started for it alone."""
    ranks = Ranks(world_size)
    try:
        return ranks.call(function, *arguments, timeout_s=timeout_s)
    finally:
        ranks.close()


def _rank(pipe: Connection, rank: int, world_size: int, folder: str) -> None:
    """Serve one function after the other; ends when the pipe does."""
    gc.freeze()  # what was imported before the fork: each of the product's collections would look at it all
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    os.environ.update(own)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    while True:
        try:
            message = pipe.recv_bytes()
        except EOFError:
            return
        if not message:
            break
        environment, path, call = pickle.loads(message)
        os.environ.clear()  # of the process that it is forked from, which may be older
        os.environ.update(environment | own)
        Device.block_seconds = float(environment.get(BLOCK_S, USUAL_BLOCK_S))
        sys.path[:] = path
        try:
            function, arguments = pickle.loads(call)
            answer = pickle.dumps((True, function(*arguments)))
            _leave_groups()
        except BaseException:
            answer = pickle.dumps((False, traceback.format_exc()))
        pipe.send_bytes(answer)
    if dist.is_initialized():
        dist.destroy_process_group()


def _leave_groups() -> None:
    """Those that the function has made: each holds threads and sockets."""
    if not dist.is_initialized():
        return
    dist.barrier()  # nobody is in one of them
    known = dist.distributed_c10d._world.pg_map
    for group in [each for each in known if each is not dist.group.WORLD]:
        dist.destroy_process_group(group)
