"""What happens to a running study for real: to its processes and to its disk.

Each function says whether it happened. Linux; a small disk needs the right to mount.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

DEAD_S = 10.0  # a killed process is gone after this
LOOK_AGAIN_S = 0.1
MIB = 2**20


@dataclass
class Fault:
    """One that is to happen when so many trials have a record."""

    at: int
    kind: str
    happened: bool = False


def schedule(kinds: Sequence[str], faults: int, trials: int, seed: int) -> list[Fault]:
    """Evenly over the trials; every kind once before any comes again."""
    draw, order = random.Random(seed), list[str]()
    while len(order) < faults:
        order += draw.sample(list(kinds), len(kinds))
    return [
        Fault(round((place + 1) * trials / (faults + 1)), kind) for place, kind in enumerate(order[:faults])
    ]


def until(true: Callable[[], bool], limit_s: float) -> bool:
    """Wait until it is so, for ``limit_s`` at most; whether it is."""
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_AGAIN_S)
    return True


def kill_one(processes: Sequence[psutil.Process], draw: random.Random) -> bool:
    """SIGKILL; it is gone, or nobody has asked yet how it ended."""
    if not processes:
        return False
    chosen = draw.choice(processes)
    chosen.kill()
    return until(lambda: not chosen.is_running() or chosen.status() == psutil.STATUS_ZOMBIE, DEAD_S)


def stop_one(processes: Sequence[psutil.Process], draw: random.Random) -> bool:
    """SIGSTOP: it is there, and does nothing any more."""
    if not processes:
        return False
    chosen = draw.choice(processes)
    chosen.suspend()
    return until(lambda: chosen.status() == psutil.STATUS_STOPPED, DEAD_S)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[bool]:
    """Inside, an empty disk of this size, as "64m", at ``path``; False: nobody may make one, a directory."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "raybench", str(path)]
    is_small = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_small
    finally:
        if is_small:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[bool]:
    """Inside, files take all the room that there was, to the last byte; whether they do."""
    fillers, is_full = list[Path](), False
    try:
        while not is_full:
            fillers.append(disk / f"filler-{len(fillers)}")
            try:
                fillers[-1].write_bytes(bytes(MIB))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                is_full = True
        yield is_full
    finally:
        for filler in fillers:
            filler.unlink(missing_ok=True)


@contextmanager
def read_only(disk: Path) -> Iterator[bool]:
    """Inside, a disk of ``small_disk`` takes nothing, from whoever it comes; whether that could be had."""

    def mounted(how: str) -> bool:
        mount = ["mount", "-o", f"remount,{how}", str(disk)]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0

    is_read_only = mounted("ro")
    try:
        yield is_read_only
    finally:
        if is_read_only and not mounted("rw"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(disk))
