"""A ``TrialRunner`` without Ray: a group of forked gloo ranks that serve trials as a worker group does.

The ranks run ``raybench.worker``'s own code, the driver hears them by ``WorkerGroup``'s; between the two are
pipes in the place of Ray's mailbox. A group starts in a second, and a rank that dies or hangs is a real
process.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from raybench.errors import GroupLostError
from raybench.launch import signals as interrupt
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.launch.liveness import LOOK_S
from raybench.launch.worker_group import WorkerGroup
from raybench.machine.network import loopback_interface
from raybench.records.messages import GroupInfo, Member, Message, Ready, Task
from raybench.records.record import State
from tests.support.forkserver import FORKSERVER, SERVER_OF_ALL

PIDS = "RAYBENCH_TEST_PIDS"  # a file in which the ranks' process ids are noted, where it is set
START_S = 60.0
BRIEF_BLOCK_S = 0.02  # of steps, where nobody asks how exact a figure is
ENDS_S = 5.0


class RanksRunner(WorkerGroupRunner):
    """``WorkerGroupRunner`` with ``RanksGroup`` in the place of a Ray Train run."""

    def start(self, world_size: int, environment: dict[str, str], *, anew: bool = False) -> GroupInfo:
        """A running group, as ``TrialRunner`` has it."""
        group = self._group
        if not anew and group is not None and group.alive and group.wants == (world_size, environment):
            return group.info
        self._stop_group()
        self._started += 1
        self._group = RanksGroup(world_size, environment, self._started, cpus=self.needs.cpus)
        return self._group.await_ready()

    def abandon(self) -> None:
        """End the ranks at once."""
        self._stop_group(at_once=True)


class RanksGroup(WorkerGroup):
    """Forked ranks; what is heard of a trial, and how it ends, is ``WorkerGroup``'s."""

    def __init__(self, world_size: int, environment: dict[str, str], number: int, *, cpus: int = 1) -> None:
        self.wants = (world_size, dict(environment))
        self._number, self._num_tasks = number, 0
        self._folder = TemporaryDirectory(prefix="raybench-ranks-", ignore_cleanup_errors=True)
        variables = {**os.environ, "OMP_NUM_THREADS": str(cpus), **environment}
        variables.setdefault("GLOO_SOCKET_IFNAME", loopback_interface() or "lo")
        self._ends, self._processes = list[Connection](), list[Any]()
        for rank in range(world_size):
            own, other = FORKSERVER.Pipe()
            process = FORKSERVER.Process(
                target=_serve, args=(rank, world_size, self._folder.name, variables, sys.path, other)
            )
            process.start()
            other.close()
            self._ends.append(own)
            self._processes.append(process)
            if PIDS in os.environ:
                with Path(os.environ[PIDS]).open("a") as file:
                    file.write(f"{process.pid}\n")

    @property
    def alive(self) -> bool:
        """Whether every rank's process is there."""
        return all(process.is_alive() for process in self._processes)

    def await_ready(self, still_fits: Callable[[], bool] = lambda: True) -> GroupInfo:
        """Wait for the ranks. Raises ``GroupLostError`` where one ends first."""
        message = self._message(monotonic() + START_S)
        if message is None or not isinstance(message.content, Ready):
            self.stop(at_once=True)
            raise GroupLostError("the ranks did not start")
        self.info = GroupInfo(message.content.members, self._number)
        return self.info

    def _hand_over(self, task: Task) -> None:
        self._ends[0].send(task)

    def stop(self, *, at_once: bool = False) -> None:
        """End the ranks, kindly unless ``at_once``."""
        if not at_once and self.alive:
            try:
                self._ends[0].send(None)
            except OSError:
                pass
            until = monotonic() + ENDS_S
            for process in self._processes:
                process.join(max(0.0, until - monotonic()))
        for process in self._processes:
            process.kill()
            process.join()
        for end in self._ends:
            end.close()
        self._ends = []
        self._folder.cleanup()

    def abandon(self) -> None:
        """End the ranks at once."""
        self.stop(at_once=True)

    def _message(self, deadline: float) -> Message | None:
        """The next message; None when the deadline has passed or a rank is gone."""
        while True:
            interrupt.check()
            left = deadline - monotonic()
            sentinels = [process.sentinel for process in self._processes]
            ready = wait([*self._ends, *sentinels], timeout=max(0.0, min(LOOK_S, left)))
            for end in (each for each in self._ends if each in ready):
                try:
                    message: Message = end.recv()
                except (EOFError, OSError):
                    continue  # its process is gone, or going
                return message
            if left <= 0 or not self.alive:
                return None

    def _why_lost(self, seconds: float, timeout_s: float) -> tuple[State, str]:
        if seconds >= timeout_s:
            return "timeout", f"not done after {timeout_s:g} s"
        rank, code = next(
            (rank, process.exitcode)
            for rank, process in enumerate(self._processes)
            if process.exitcode is not None
        )
        return "crashed", f"rank {rank}: its process died ({code})"


def _serve(
    rank: int, size: int, folder: str, variables: dict[str, str], path: list[str], end: Connection
) -> None:
    """What each rank does: ``raybench.worker.serve.serve``, with a pipe for a mailbox."""
    import ray.train

    from raybench.worker import serve
    from raybench.worker.communicators import Communicators
    from raybench.worker.devices import open_device
    from raybench.worker.group_cache import GroupCache
    from raybench.worker.scripts import script_trial
    from tests.support.forked_child import ForkedChild

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ray's workers do not hear Ctrl-C either: the driver does
    os.environ.clear()
    os.environ.update(variables | {"RANK": str(rank), "WORLD_SIZE": str(size)})
    sys.path[:] = path
    gc.freeze()  # what was imported before the fork: each of the product's collections would look at it all
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    vars(serve)["ray"] = SimpleNamespace(get=lambda sent: sent, train=ray.train)
    setattr(*SERVER_OF_ALL)  # of a loader's processes too
    vars(script_trial)["Child"] = ForkedChild
    mailbox = SimpleNamespace(tell=SimpleNamespace(remote=end.send))
    device = open_device(torch.device("cpu"))
    device.block_seconds = BRIEF_BLOCK_S
    communicators, cache = Communicators(device.data_backend), GroupCache()
    serve._first_optimizer_step(device.torch_device)
    member = Member(rank, "node", socket.gethostname(), os.getpid(), device.name())
    everyone = communicators.everyone
    members = everyone.gather(member)
    if rank == 0:
        end.send(Message(0, Ready(tuple(members))))
    while task := everyone.from_leader(end.recv() if rank == 0 else None):
        serve._one_trial(task, communicators, device, cache, mailbox)
    communicators.drop_team()


def _end_with_the_driver() -> None:
    """A driver that is killed leaves no ranks."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)
