"""In which buckets DDP sends its gradients: torch's own rule, over the order in which they are ready.

``compute_bucket_assignment_by_size`` in torch/csrc/distributed/c10d/reducer.cpp (2.11 and 2.14 alike), as
``rebuild_buckets`` calls it after the first step: a bucket takes gradients until it has reached its cap, so
the one that passes it is still in. Of the default the first bucket has a smaller cap (torch.distributed's
``_DEFAULT_FIRST_BUCKET_BYTES``), so that sending begins early.
"""

from __future__ import annotations

from collections.abc import Sequence

MEBIBYTE = 2**20
FIRST_BUCKET_BYTES, DEFAULT_CAP_MB = MEBIBYTE, 25.0

BucketCap = float | str  # in MiB, or "default"


def bucket_limits(cap: BucketCap) -> tuple[int, ...]:
    """The caps in bytes of the first bucket, the second, ...; the last one is that of all further ones."""
    if isinstance(cap, str):
        return FIRST_BUCKET_BYTES, int(DEFAULT_CAP_MB * MEBIBYTE)
    return (int(cap * MEBIBYTE),)


def assign(parameter_bytes: Sequence[int], cap: BucketCap) -> tuple[tuple[int, ...], ...]:
    """For each bucket the indices of its gradients, which are given in the order in which they are ready."""
    limits = bucket_limits(cap)
    buckets, current, size = list[tuple[int, ...]](), list[int](), 0
    for index, its_bytes in enumerate(parameter_bytes):
        current.append(index)
        size += its_bytes
        if size >= limits[min(len(buckets), len(limits) - 1)]:
            buckets.append(tuple(current))
            current, size = [], 0
    return (*buckets, tuple(current)) if current else tuple(buckets)
