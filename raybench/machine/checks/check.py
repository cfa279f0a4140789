"""What one look at the machine says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "unused", "warning", "missing"]

NOT_ON_CPUS = "not used on CPUs"
GIB = 2**30


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str  # what was seen, in a line
    mend: str | None = None  # a command, or what to do where no command does it


def as_size(num_bytes: float) -> str:
    """Bytes in MiB or GiB, as they are shown."""
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB else f"{num_bytes / 2**20:.0f} MiB"
