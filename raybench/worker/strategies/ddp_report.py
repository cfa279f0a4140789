"""What DDP itself tells: its buckets, the bytes that travel, and the times of its own logger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

NANOSECONDS = 1e-9
COMPRESSED_BYTES = 2  # of an element


@dataclass(frozen=True)
class DDPReport:
    """What DDP tells of one rank."""

    bucket_bytes: tuple[int, ...]
    gradient_bytes: int  # that travel in a step
    logger_times_s: dict[str, float] | None


def ddp_report(module: nn.Module | None, compression: str) -> DDPReport | None:
    """What ``module`` tells; None where it is not DDP's."""
    if not isinstance(module, DistributedDataParallel):
        return None
    data = _logging_data(module)
    sizes = _bucket_bytes(data)
    travelling = sum(sizes)
    if compression != "none":  # each element as fp16 or bf16, whatever it was
        trained = [each for each in module.module.parameters() if each.requires_grad]
        elements, own_bytes = sum(each.numel() for each in trained), sum(each.nbytes for each in trained)
        travelling = travelling * COMPRESSED_BYTES * elements // own_bytes
    return DDPReport(sizes, travelling, _logger_times(data))


def bucket_bytes(module: DistributedDataParallel) -> tuple[int, ...]:
    """Sizes of the buckets that are really sent, in the order in which they are sent."""
    return _bucket_bytes(_logging_data(module))


def _logging_data(module: DistributedDataParallel) -> dict[str, Any]:
    """What DDP's own logger knows, unedited."""
    data: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return data


def _bucket_bytes(data: dict[str, Any]) -> tuple[int, ...]:
    text = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    return tuple(int(size) for size in text.replace(",", " ").split())


def _logger_times(data: dict[str, Any]) -> dict[str, float] | None:
    """The averages that DDP's logger samples, in s; None where it has sampled none."""
    names = {
        "avg_forward_compute_s": "avg_forward_compute_time",
        "avg_backward_compute_s": "avg_backward_compute_time",
        "avg_backward_comm_s": "avg_backward_comm_time",
        "avg_overlap_s": "avg_backward_compute_comm_overlap_time",
    }
    if not data.get("avg_backward_comm_time"):
        return None
    return {name: float(data.get(in_torch, 0)) * NANOSECONDS for name, in_torch in names.items()}
