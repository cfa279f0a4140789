"""This process's place in its worker group, for what plants a fault on one rank.

A workload is built alone: there torch.distributed has a group of one.
"""

from __future__ import annotations

import os


def worker_rank() -> int:
    """The rank; 0 outside a group."""
    return int(os.environ.get("RANK", "0"))


def num_workers() -> int:
    """Of the group; 1 outside one."""
    return int(os.environ.get("WORLD_SIZE", "1"))
