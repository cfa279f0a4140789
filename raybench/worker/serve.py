"""The train function of a worker group: serves trials, one after the other, until told to stop."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from pydantic import TypeAdapter

from raybench.records.messages import Member, Outcome, Progress
from raybench.records.requests import TrialRequest
from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Communicators
from raybench.worker.devices.base import Device
from raybench.worker.devices.opening import open_device
from raybench.worker.failures import is_echo
from raybench.worker.outcome import RankResult
from raybench.worker.training.checkpoints import Checkpoints
from raybench.worker.trials import run_trial
from raybench.worker.watchdog import Watchdog

REQUEST: TypeAdapter[TrialRequest] = TypeAdapter(TrialRequest)
PROGRESS_EVERY_S = 0.5  # a message wakes threads of Ray: not more often, and never inside a block


def serve(config: dict[str, Any]) -> None:
    """``config`` holds the mailbox, the kind of device and the driver's import path."""
    sys.path[:0] = [path for path in config["sys_path"] if path not in sys.path]
    mailbox = config["mailbox"]
    on_gpu = config["device"] == "cuda"
    device = open_device(ray.train.torch.get_device() if on_gpu else torch.device("cpu"))
    communicators = Communicators(device.data_backend)
    _first_optimizer_step(device.torch_device)
    members = _introduce(communicators, mailbox, device)
    if communicators.rank == 0:
        mailbox.hello.remote(members)
    cache = GroupCache()
    while True:
        task = ray.get(mailbox.take.remote()) if communicators.rank == 0 else None
        tasks = [task]
        dist.broadcast_object_list(tasks, src=0, group=communicators.control)
        if tasks[0] is None:
            break
        _one_trial(tasks[0], communicators, device, cache, mailbox)
    communicators.drop_team()


def _one_trial(
    task: dict[str, Any],
    communicators: Communicators,
    device: Device,
    cache: GroupCache,
    mailbox: Any,
) -> None:
    request: TrialRequest = REQUEST.validate_python(task["request"])
    ranks = tuple(task["ranks"])
    last = monotonic() - PROGRESS_EVERY_S

    def on_progress(progress: Progress) -> None:
        nonlocal last
        if progress.phase == "epoch" or monotonic() - last >= PROGRESS_EVERY_S:
            last = monotonic()
            mailbox.progress.remote(progress)

    began = perf_counter()
    with Watchdog(request.timeout_s, f"trial {request.trial_id}"):
        checkpoints = _checkpoints(task.get("checkpoints"), request)
        result = run_trial(request, ranks, communicators, device, cache, on_progress, checkpoints)
        if result is not None and result.broken:
            _free_waiting_ranks(result, mailbox, communicators, device, perf_counter() - began)
        results: list[RankResult | None] | None = (
            [None] * communicators.size if communicators.rank == 0 else None
        )
        broken = torch.tensor(int(result is not None and result.broken))
        dist.all_reduce(broken, dist.ReduceOp.MAX, group=communicators.control)
        dist.gather_object(result, results, dst=0, group=communicators.control)
    if broken:
        communicators.drop_team()
    if results is not None:
        mailbox.reply.remote(_outcome(results, perf_counter() - began, ranks))


def _checkpoints(folder: str | None, request: TrialRequest) -> Checkpoints | None:
    """Where this trial's checkpoints are; each can be read as a ``ray.train.Checkpoint``."""
    if folder is None or request.kind != "training":
        return None

    def finish(path: Path) -> None:
        about = {
            "raybench_trial": request.trial_id,
            "seed": request.config.seed,
            "world_size": request.config.world_size,
        }
        ray.train.Checkpoint.from_directory(str(path)).set_metadata(about)

    return Checkpoints(Path(folder) / request.trial_id, finish)


def _free_waiting_ranks(
    result: RankResult, mailbox: Any, communicators: Communicators, device: Device, seconds: float
) -> None:
    """Free the ranks that still wait in the team's groups; where that cannot be, end this worker."""
    if not device.frees_waiting_ranks:  # the group ends here, and the reason goes first
        ray.get(mailbox.reply.remote(Outcome(result.state, seconds, result.reason)))
        os._exit(1)
    communicators.drop_team()


def _outcome(results: list[RankResult | None], seconds: float, ranks: tuple[int, ...]) -> Outcome:
    """One outcome of all ranks: out of memory if any rank was, else the first failure, else the numbers."""
    present = [result for result in results if result is not None]
    failed = [result for result in present if result.state != "complete"]
    if failed:
        # a rank whose collective was ended only says that; the reason is with the one that failed first
        order = {"oom": 0, "invalid": 1, "crashed": 2}
        cause = min(failed, key=lambda result: (order[result.state], is_echo(result.reason or "")))
        return Outcome(cause.state, seconds, cause.reason, ranks=ranks)
    complete = next(result for result in present if result.result is not None)
    return Outcome("complete", seconds, result=complete.result, step_times=complete.step_times, ranks=ranks)


def _introduce(communicators: Communicators, mailbox: Any, device: Device) -> tuple[Member, ...]:
    """Tell the driver who this is, and hand it the means to end this worker."""
    context = ray.get_runtime_context()
    ray.get(mailbox.register.remote(communicators.rank, context.current_actor))
    member = Member(
        communicators.rank, context.get_node_id(), socket.gethostname(), os.getpid(), device.name()
    )
    members: list[Any] = [None] * communicators.size
    dist.all_gather_object(members, member, group=communicators.control)
    return tuple(members)


def _first_optimizer_step(device: torch.device) -> None:
    """A process's first optimizer step costs seconds of imports: here, not in the first trial."""
    layer = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
