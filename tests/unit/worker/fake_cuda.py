"""A GPU's memory in fake: torch's caching allocator, and what others take of the GPU beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

GIB = 2**30


class FakeMemory:
    """Counts as torch's allocator does: what is freed stays reserved until the cache is emptied."""

    def __init__(self, total: int = 80 * GIB, others: int = 0) -> None:
        self.total, self.others = total, others
        self.allocated = self.peak_allocated = 0
        self.reserved = self.peak_reserved = 0
        self.retries = 0  # of an allocation, when the cache was emptied

    def take(self, size: int) -> None:
        """Raises as torch does where the GPU has no room."""
        if self.allocated + size + self.others > self.total:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated)
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def free(self, size: int) -> None:
        self.allocated -= size

    def empty(self) -> None:
        self.reserved = self.allocated

    def reset(self, device: Any = None) -> None:
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def functions(self) -> dict[str, Any]:
        """In the place of those of ``torch.cuda``."""
        return {
            "get_device_properties": lambda device: SimpleNamespace(uuid=f"abc-{torch.device(device).index}"),
            "get_device_capability": lambda device: (8, 0),
            "mem_get_info": lambda device: (self.total - self.reserved - self.others, self.total),
            "memory_reserved": lambda device: self.reserved,
            "max_memory_allocated": lambda device: self.peak_allocated,
            "max_memory_reserved": lambda device: self.peak_reserved,
            "reset_peak_memory_stats": self.reset,
            "empty_cache": self.empty,
            "set_device": lambda device: None,
            "memory_stats": lambda device: {"num_alloc_retries": self.retries},
        }
