"""Trials on ranks: run one after the other in the same processes, or served as a worker group serves them."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import torch

from raybench.records.messages import Message, Outcome, Task
from raybench.records.requests import TrialRequest, Variant
from raybench.records.results import StepsResult
from raybench.worker.communicators import Communicators
from raybench.worker.devices import open_device
from raybench.worker.devices.device import Device
from raybench.worker.group_cache import GroupCache
from raybench.worker.trial import run_trial

CPU, BOTH = open_device(torch.device("cpu")), (0, 1)
ALL: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp", "replay")
SHORT: tuple[Variant, ...] = ("plain", "ddp")


def run_trials(
    requests: Iterable[TrialRequest], communicators: Communicators, cache: GroupCache
) -> list[Outcome]:
    """On each rank: what every trial gave on this rank; each is on the first ranks of the group."""
    results = [
        run_trial(
            request, tuple(range(request.config.world_size)), communicators, CPU, cache, lambda progress: None
        )
        for request in requests
    ]
    return [result for result in results if result is not None]


def complete(found: Outcome) -> StepsResult:
    """What a trial of steps brought, which must have ended well."""
    assert found.state == "complete", found.reason
    assert isinstance(found.result, StepsResult)
    return found.result


def serve_trial(
    request: TrialRequest,
    ranks: tuple[int, ...],
    communicators: Communicators,
    cache: GroupCache,
    *,
    device: Device = CPU,
) -> list[Outcome]:
    """On each rank: serve the trial as ``raybench.worker.serve`` does; rank 0 brings its outcome.

    A mailbox of this process's own is in the place of Ray's, and rank 0 hears it as the driver does.
    """
    from raybench.launch.mailbox import PostedTrial  # brings Ray, which tests/gpu does without
    from raybench.worker import serve

    told: list[Message] = []
    mailbox = SimpleNamespace(tell=SimpleNamespace(remote=told.append))
    vars(serve)["ray"] = SimpleNamespace(get=lambda reference: reference)
    serve._one_trial(Task(7, request, ranks), communicators, device, cache, mailbox)
    posted = PostedTrial(7, lambda progress: None)
    for message in told:
        posted.hear(message)
    outcome = posted.outcome()
    return [] if outcome is None else [outcome]
