"""A step of the user's code before any worker starts, so that a fault in it is known within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import default_collate

from raybench.errors import RequestError
from raybench.spec.workloads import OwnCode
from raybench.workloads.batch_parts import on_device
from raybench.workloads.protocol import (
    Workload,
    dataset_of,
    model_without_storage,
    optimizer_of,
    read_samples,
)
from raybench.workloads.user_code import fails_in_words

SAMPLES = 2  # batch normalisation needs two
MOST_PARAMETERS = 200_000_000  # whose step on a CPU, with Adam, takes some 4 GB and some seconds


def try_step(workload: Workload, spec: OwnCode, device: str, batch_size: int) -> str | None:
    """Run one optimizer step of two samples on ``device``; why it was not run, or None.

    A step that fails is run again with ``batch_size`` samples, which a worker's first step has: code may be
    made for batches of some sizes only. Raises ``RequestError`` where that fails too.
    """
    where = f"workload.{spec.KEY}: a step before the workers start"
    if device == "cuda" and not torch.cuda.is_available():
        return "this process sees no GPU"
    try:
        with _group_of_one():
            with fails_in_words(f"{where}: model()"):
                model = model_without_storage(workload) or workload.model()
                number = sum(parameter.numel() for parameter in model.parameters())
            if number > MOST_PARAMETERS:
                return f"the model has {number:,} parameters, more than {MOST_PARAMETERS:,}"
            try:
                _step(workload, spec, torch.device(device), SAMPLES, where)
            except RequestError as error:
                if batch_size == SAMPLES or _is_out_of_memory(error.__cause__):
                    raise
                _step(workload, spec, torch.device(device), batch_size, where)
    except RequestError as error:
        if not _is_out_of_memory(error.__cause__):
            raise
        return "there is no memory for it in this process"
    return None


def _step(workload: Workload, spec: OwnCode, device: torch.device, size: int, where: str) -> None:
    with fails_in_words(f"{where}: model()"):
        torch.manual_seed(0)
        model = workload.model().to(device).train()
    source = "a batch of the data set" if spec.input == "real" else "batch(size, generator)"
    with fails_in_words(f"{where}: {source}"):
        batch = on_device(_batch(workload, spec, size), device)
    with fails_in_words(f"{where}: optimizer"):
        optimizer = optimizer_of(workload, model)
    with fails_in_words(f"{where}: loss(model, batch)"):
        loss = workload.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
    after_backward = getattr(workload, "after_backward", None)
    if after_backward is not None:
        with fails_in_words(f"{where}: after_backward(model)"):
            after_backward(model)
    if optimizer is not None:
        with fails_in_words(f"{where}: the optimizer's step"):
            optimizer.step()


def _batch(workload: Any, spec: OwnCode, size: int) -> Any:
    if spec.input == "synthetic":
        return workload.batch(size, torch.Generator().manual_seed(0))
    dataset = dataset_of(workload, "train")
    samples = read_samples(dataset, range(min(size, len(dataset))))
    return (getattr(workload, "collate", None) or default_collate)(samples)


@contextmanager
def _group_of_one() -> Iterator[None]:
    """Inside, a loss that communicates finds a group, as on one device alone."""
    if dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _is_out_of_memory(error: BaseException | None) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
