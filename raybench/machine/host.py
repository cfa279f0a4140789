"""Which host this process is on, told apart from all others of a cluster."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from raybench.machine import kernel_files

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def host_id() -> str:
    """The host's name, and the id of its kernel's last start: two machines may have one name."""
    return f"{socket.gethostname()} {kernel_files.read(BOOT_ID) or ''}".strip()


def numbered(hosts: Sequence[str]) -> tuple[int, ...]:
    """A number for each of ``hosts``, the same for the same one; that of the first is 0."""
    distinct = list(dict.fromkeys(hosts))
    return tuple(distinct.index(host) for host in hosts)
