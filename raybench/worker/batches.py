"""Where the batches of a rank come from: made up once, or read through a real loader."""

from __future__ import annotations

import math
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from raybench.errors import InvalidBatchError, InvalidTrialError
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.communicators import default_group
from raybench.worker.devices.device import Device
from raybench.workloads.batch_counts import samples_of
from raybench.workloads.batch_parts import on_device
from raybench.workloads.protocol import Workload, dataset_of

PREFETCH_FACTOR = 2  # batches that each loader process keeps ready: DataLoader's default, named
# What the server of forks imports once, so that a loader's process starts in 0.1 s rather than in 5 (and in a
# worker of Ray's not in more: there every new process imports the worker's own main module again).
PRELOADED = (
    "torch.utils.data",
    "raybench.workloads.vision",
    "raybench.workloads.tokens",
    "transformers.trainer",
    "lightning.pytorch",
    "pytorch_lightning",
    "ray",
)


class Batches(Protocol):
    """An endless supply of batches on the device."""

    prefetched: int  # batches that may lie ready after a pause

    def next(self) -> Any:
        """The next batch; only its copy to the device may still be under way."""


@dataclass
class EndlessBatches:
    """Those of steps: read without an end, or one batch again and again, as from a perfect loader."""

    next: Callable[[], Any]
    prefetched: int = 0
    epoch_samples: int | None = None  # of the data set, for all ranks; None: there is none


def drop_ready(batches: Batches) -> None:
    """Throw away what lies ready after a pause: a loader that cannot keep up has nothing ready."""
    for _ in range(batches.prefetched):
        batches.next()


def affordable_steps(seconds: float, step_s: float, most: int, *, least: int = 1, apart: int = 0) -> int:
    """How many steps there are ``seconds`` for beside those ``apart``, from ``least`` to ``most``."""
    return max(least, min(most, int(seconds / step_s) - apart))


def whole_turns(steps: int, batches: Batches, batches_per_step: int) -> int:
    """``steps`` and as few more that every process of the loader has brought equally many batches.

    Processes that start together deliver together: a part of a turn would say nothing of the
    next wait.
    """
    workers = batches.prefetched // PREFETCH_FACTOR
    turn = workers // math.gcd(workers, batches_per_step) if workers else 1
    return math.ceil(steps / turn) * turn


def read_next(iterator: Iterator[Any]) -> Any:
    """The next batch of a loader.

    An error of its process gets its own message back: torch has put a traceback in its place.
    """
    try:
        return next(iterator)
    except Exception as error:
        text = str(error)
        if text.startswith("Caught ") and "\nOriginal Traceback" in text:
            messages = re.findall(rf"^(?:\w+\.)*{type(error).__name__}: (.+)", text, re.MULTILINE)
            error.args = (messages[-1] if messages else text.strip().splitlines()[-1],)
            error.add_note(text)
        raise


def loader_options(workload: Workload, setting: Setting, device: Device, *, persists: bool) -> dict[str, Any]:
    """What every ``DataLoader`` of a setting has; ``persists``: its processes may outlive an epoch."""
    context = None
    if setting.workers:  # forked from a process full of threads and sockets they may hang
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([name for name in PRELOADED if name in sys.modules])
    return {
        "num_workers": setting.workers,
        "persistent_workers": setting.persistent_workers and setting.workers > 0 and persists,
        # a copy from it overlaps with computing on a GPU alone
        "pin_memory": setting.pin_memory and device.kind == "cuda",
        "prefetch_factor": PREFETCH_FACTOR if setting.workers else None,
        "collate_fn": getattr(workload, "collate", None),
        "multiprocessing_context": context,
    }


@default_group(None)
def make_batches(
    workload: Workload, config: Configuration, size: int, rank: int, device: Device
) -> EndlessBatches:
    """Batches of ``size`` samples for ``rank`` of the trial's ranks; the same seed gives the same ones.

    Of a data set it is the rank's share, epoch after epoch, each in a new order. Training starts its loader
    again in each epoch; steps are timed without that.

    Raises ``InvalidTrialError`` where the data set has not one full batch for each rank, or a batch has not
    ``size`` samples.
    """
    setting = config.setting

    def place(batch: Any) -> Any:
        return on_device(batch, device.torch_device, setting.channels_last)

    if config.workload.input == "synthetic":
        # below what torch takes
        generator = torch.Generator().manual_seed((config.seed * 1_000_003 + rank) % 2**63)
        batch = workload.batch(size, generator)  # type: ignore[attr-defined]
        samples_of(workload, batch, size, "batch(size, generator)")
        placed = place(batch)
        return EndlessBatches(lambda: placed)
    dataset = dataset_of(workload, "train")
    share = len(dataset) // config.world_size
    if share < size:
        raise InvalidTrialError(
            f"batch {size}: each of {config.world_size} ranks has {share} samples of the {len(dataset)}"
        )

    order = sample_order(dataset, size, world_size=config.world_size, rank=rank, seed=config.seed)
    options = loader_options(workload, setting, device, persists=False)  # nothing to persist for
    loader = DataLoader(dataset, batch_size=size, sampler=order, drop_last=True, **options)
    counts = set[int]()

    @cache
    def started() -> Iterator[Any]:
        return iter(loader)  # its processes start with the first batch

    def read() -> Any:
        batch = read_next(started())
        counts.add(samples_of(workload, batch, size, "a batch of the data set"))
        if len(counts) > 1:
            raise InvalidBatchError(
                "samples(batch): the same for every batch, as rates are made of it "
                f"(received {' and '.join(map(str, sorted(counts)))})"
            )
        return place(batch)

    return EndlessBatches(read, setting.workers * PREFETCH_FACTOR, len(dataset))


def sample_order(
    dataset: Dataset[Any], batch_size: int, *, world_size: int, rank: int, seed: int
) -> Iterator[int]:
    """Indices of one rank's samples, epoch after epoch, each in a new order; the same seed gives the same.

    Within an epoch no sample is on two ranks, and a rank has whole batches only: the rest of its share is
    dropped. It does not end, so that no loader starts again. The data set has a batch for each rank.
    """
    shuffled: DistributedSampler[Any] = DistributedSampler(
        dataset, num_replicas=world_size, rank=rank, seed=seed, drop_last=True
    )
    samples_of_epoch = shuffled.num_samples // batch_size * batch_size
    assert samples_of_epoch, "less than a batch for each rank"
    for epoch in count():
        shuffled.set_epoch(epoch)
        yield from islice(shuffled, samples_of_epoch)
