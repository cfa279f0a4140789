"""Main memory: the host's, and what the container leaves of it."""

from __future__ import annotations

import psutil

from raybench.machine import kernel_files

_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63

# What has glibc keep for the next step what a step frees: by variable its parameter in malloc.h, and bytes.
# Blocks up to so many come from the heap (M_MMAP_THRESHOLD, its largest value), so many may be free at the
# heap's end (M_TRIM_THRESHOLD, an int), a thread's heap keeps a part of so many (M_TOP_PAD).
KEPT_BY_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
    "MALLOC_TOP_PAD_": (-2, 64 * 2**20),
}
MALLOC_PREFIX = "MALLOC_"


def total_memory_bytes() -> int:
    """Main memory of the host, in bytes."""
    return int(psutil.virtual_memory().total)


def memory_limit_bytes() -> int | None:
    """The container's limit on memory, or None without one."""
    limits = [
        int(text)
        for name in ("memory.max", "memory.limit_in_bytes")
        for text in kernel_files.control_group_values("memory", name)
        if text.isdecimal() and int(text) < _NO_LIMIT_BYTES
    ]
    limit = min(limits, default=None)
    return limit if limit is None or limit < total_memory_bytes() else None


def available_memory_bytes() -> int:
    """Memory that processes may still take: what the host has left, or the container if that is less."""
    left = int(psutil.virtual_memory().available)
    for used, cache, limit in (
        ("memory.current", "inactive_file", "memory.max"),
        ("memory.usage_in_bytes", "total_inactive_file", "memory.limit_in_bytes"),
    ):
        for folder in kernel_files.control_group_folders("memory"):
            most, taken = kernel_files.read(folder / limit) or "", kernel_files.read(folder / used) or ""
            if not (most.isdecimal() and taken.isdecimal()) or int(most) >= _NO_LIMIT_BYTES:
                continue
            # files that the kernel can forget count as used
            forgettable = kernel_files.first_match(folder / "memory.stat", rf"^{cache} (\d+)$") or "0"
            left = min(left, int(most) - int(taken) + int(forgettable))
    return max(left, 0)
