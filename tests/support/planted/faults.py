"""What happens to a running study for real: to its processes, to its disk, to its clock.

Each function says whether it happened. Linux; a small disk needs the right to mount, another clock
libfaketime and a C compiler.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

DEAD_S = 10.0  # a killed process is gone after this
LOOK_AGAIN_S = 0.1
MIB = 2**20
# libfaketime 0.9.10, told to leave the monotonic clock alone, refuses to wait by it: this asks the kernel
WAITS = """
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    return syscall(SYS_clock_nanosleep, clock, flags, wanted, left) ? errno : 0;
}
"""


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


class OtherClock:
    """The date as programs started with ``variables`` see it, which can be set while they run.

    Time that passes is not touched: a clock that someone sets goes on as before.
    """

    def __init__(self, folder: Path) -> None:
        """``folder``: for the file that says how far the clock is off, and what is compiled."""
        self._file, waits = folder / "clock", folder / "waits.so"
        # the library for programs with threads, where Debian and its kin put it
        libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")][:1]
        if libraries and shutil.which("cc"):
            compiler = ["cc", "-shared", "-fPIC", "-o", str(waits), "-xc", "-"]
            subprocess.run(compiler, input=WAITS, text=True, check=True)
            libraries = [waits, *libraries]
        self.variables = {
            "LD_PRELOAD": ":".join(map(str, libraries)),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",  # s, then the file is read again
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        self.is_there = bool(libraries)
        self.set(0)

    def works(self) -> bool:
        """Whether libfaketime is installed, and Python can wait under it."""
        waits = [sys.executable, "-c", "import time; time.sleep(0.001)"]
        tried = subprocess.run(waits, env={**os.environ, **self.variables}, capture_output=True, check=False)
        return self.is_there and tried.returncode == 0

    def set(self, off_s: int) -> None:
        """The clock is off by so much, two seconds from now on."""
        self._file.write_text(f"{off_s:+d}\n")
