"""The train function of a worker group: serves trials, one after the other, until told to stop."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import ray
import torch

from raybench.records.messages import Begun, Kept, Member, Message, Outcome, Progress, Ready, Task
from raybench.worker.communicators import Communicators
from raybench.worker.devices import open_device
from raybench.worker.devices.device import Device
from raybench.worker.failures import first_cause
from raybench.worker.group_cache import GroupCache
from raybench.worker.trial import run_trial
from raybench.worker.watchdog import watchdog

TRAVELLED = "runtime_resources"  # below it Ray unpacks a runtime environment
PROGRESS_EVERY_S = 0.5  # a message wakes threads of Ray: not more often, and never inside a block


def serve(config: dict[str, Any]) -> None:
    """``config`` holds the mailbox, the kind of device and where the driver finds modules."""
    sys.path[:] = merged_path(sys.path, config["sys_path"], config["own_code"])
    mailbox = config["mailbox"]
    device = open_device(_gpu() if config["device"] == "cuda" else torch.device("cpu"))
    communicators = Communicators(device.data_backend)
    _first_optimizer_step(device.torch_device)
    members = _introduce(communicators, mailbox, device)
    if communicators.everyone.leads:
        mailbox.tell.remote(Message(0, Ready(members)))
    cache, everyone = GroupCache(), communicators.everyone
    while task := everyone.from_leader(ray.get(mailbox.take.remote()) if everyone.leads else None):
        _one_trial(task, communicators, device, cache, mailbox)
    communicators.drop_team()


def _gpu() -> torch.device:
    """The one that Ray gave to this worker."""
    import ray.train.torch  # on CPUs the group is made without

    device: torch.device = ray.train.torch.get_device()
    return device


def _one_trial(
    task: Task, communicators: Communicators, device: Device, cache: GroupCache, mailbox: Any
) -> None:
    tell, everyone = _Tell(mailbox, task.number), communicators.everyone
    everyone.barrier()
    if everyone.leads:
        tell(Begun())  # all are alive and know of it: what happens from here on happens to this trial
    request, began = task.request, perf_counter()

    def timed(outcome: Outcome) -> Outcome:
        return replace(outcome, wall_time_s=perf_counter() - began)

    with watchdog(request.timeout_s, f"trial {request.trial_id}"):
        result = run_trial(
            request,
            task.ranks,
            communicators,
            device,
            cache,
            tell.progress,
            results=Path(task.results) if task.results else None,
            keep=lambda kept, open_: tell.and_wait(Kept(timed(kept), open_)),
        )
        if result is not None and result.broken:
            if not device.frees_waiting_ranks:  # the group ends here, and the reason goes first
                tell.and_wait(replace(timed(result), ends_group=True))
                os._exit(1)
            communicators.drop_team()  # frees the ranks that still wait in the team's groups
        broken = everyone.gather(result is not None and result.broken)
        results = everyone.gather_on_leader(result)
    if any(broken):
        communicators.drop_team()
    if results is not None:
        tell(timed(_of_all_ranks(results)))


def merged_path(here: Sequence[str], driver: Sequence[str], own_code: Sequence[str]) -> list[str]:
    """A worker's import path, in which a study's factory is what it is on the ``driver``'s.

    First what has travelled to this node, which may have an older copy in the same place; then the folders of
    ``own_code``; what is installed here before what is installed where the driver runs.
    """
    travelled = [path for path in here if TRAVELLED in Path(path).parts]
    return list(dict.fromkeys([*travelled, *own_code, *here, *driver]))


class _Tell:
    """Sends messages about one task to the driver."""

    def __init__(self, mailbox: Any, number: int) -> None:
        self._mailbox, self._number = mailbox, number
        self._last_progress = monotonic() - PROGRESS_EVERY_S

    def __call__(self, content: Begun | Progress | Kept | Outcome) -> Any:
        """Send; returns what can be waited for."""
        return self._mailbox.tell.remote(Message(self._number, content))

    def and_wait(self, content: Kept | Outcome) -> None:
        """Send, and wait until it is there: what comes next may end this process."""
        ray.get(self(content))

    def progress(self, progress: Progress) -> None:
        """Send, unless something was sent just now."""
        if progress.phase == "epoch" or monotonic() - self._last_progress >= PROGRESS_EVERY_S:
            self._last_progress = monotonic()
            self(progress)


def _of_all_ranks(results: list[Outcome | None]) -> Outcome:
    """The leader's numbers with the files of all, or the failure that says most."""
    present = [result for result in results if result is not None]
    failed = [result for result in present if result.state != "complete"]
    # a rank whose collective was ended only says that; the reason is with the one that failed first
    files = tuple(file for result in present for file in result.files)
    if failed:
        return replace(first_cause(failed), files=files)
    return replace(next(each for each in present if each.result is not None), files=files)


def _introduce(communicators: Communicators, mailbox: Any, device: Device) -> tuple[Member, ...]:
    """Introduce this worker to the driver, and hand it the means to end this worker."""
    context = ray.get_runtime_context()
    ray.get(mailbox.register.remote(communicators.rank, context.current_actor))
    member = Member(
        communicators.rank, context.get_node_id(), socket.gethostname(), os.getpid(), device.name()
    )
    return tuple(communicators.everyone.gather(member))


def _first_optimizer_step(device: torch.device) -> None:
    """A process's first optimizer step costs seconds of imports: here, not in the first trial."""
    layer = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
