"""What else is at work on the machine, which would be measured too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import psutil

from raybench.machine import cores, gpus
from raybench.machine.checks.check import Check, Status

_BUSY_SAMPLE_S = 0.3
_BUSY_PERCENT = 20.0


def busy() -> Iterator[Check]:
    """The load, other processes that work, and processes on the GPUs."""
    usable, load = cores.usable_cores(), os.getloadavg()[0]
    status: Status = "ok" if load < 0.5 * usable else "warning"
    mend = (
        "uptime" if status == "ok" else "wait until the load is below half the cores, or stop what is running"
    )
    yield Check("busy", status, f"load average {load:.2f} on {usable} usable cores", mend)
    for process, percent in _busy_processes():
        yield Check(
            "busy",
            "warning",
            f"process {process.pid} ({_process_name(process.pid)}) takes {percent:.0f}% of a core",
            f"stop it if it is yours: kill {process.pid}",
        )
    for pid, place in gpus.graphics().processes:
        text = f"process {pid} ({_process_name(pid)}) is on GPU {place}"
        yield Check("busy", "warning", text, f"stop it if it is yours: kill {pid}")


def _busy_processes() -> list[tuple[psutil.Process, float]]:
    """Other processes that worked more than a share of the sample, the busiest first."""
    before: dict[int, tuple[psutil.Process, float]] = {}
    began = time.monotonic()
    for process in psutil.process_iter():
        if process.pid != os.getpid():
            seconds = _cpu_seconds(process)
            if seconds is not None:
                before[process.pid] = (process, seconds)
    time.sleep(_BUSY_SAMPLE_S)
    shares = []
    for process, seconds in before.values():
        now = _cpu_seconds(process)
        if now is not None:
            shares.append((process, 100 * (now - seconds) / (time.monotonic() - began)))
    busy = [(process, percent) for process, percent in shares if percent > _BUSY_PERCENT]
    return sorted(busy, key=lambda pair: -pair[1])


def _cpu_seconds(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def _process_name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "of another container or user"
