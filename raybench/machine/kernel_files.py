"""What the kernel says in files: of /proc, of /sys, and of this process's control groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def read(path: Path) -> str | None:
    """The file's text without white space around it; None where it is empty or cannot be read."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def first_match(path: Path, pattern: str) -> str | None:
    """What the first group of ``pattern`` holds where it first matches the lines of a file, or None."""
    match = re.search(pattern, read(path) or "", re.MULTILINE)
    return match.group(1).strip() if match else None


def control_group_values(controller: str, name: str) -> list[str]:
    """The values of ``name`` in this process's control group and in those above it, v1 and v2."""
    return [text for folder in control_group_folders(controller) if (text := read(folder / name))]


def control_group_folders(controller: str) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, the innermost first."""
    for line in (read(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        root = CONTROL_GROUPS if not controllers else CONTROL_GROUPS / controllers
        if controllers and controller not in controllers.split(","):
            continue
        # In a container the path may be the host's, and the group's own files at the root.
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:depth])
