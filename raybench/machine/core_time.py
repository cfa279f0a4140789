"""Who used the cores: time of the machine's cores that was not idle, and of this process."""

from __future__ import annotations

import os

import psutil

from raybench.machine.host import allowed_cores


def busy_core_seconds() -> float | None:
    """Seconds that the cores which this process may use were not idle, since the machine began.

    None where it is not told. Counted in hundredths of a second, with what a hypervisor gave to others.
    """
    try:
        every = psutil.cpu_times(percpu=True)
        used = [every[core] for core in allowed_cores()]
    except (OSError, IndexError, NotImplementedError):
        return None
    # guest time is part of user time already
    fields = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for times in used for name in fields)


def own_core_seconds(*, with_children: bool) -> float:
    """Seconds that this process has used of cores, and its living children if asked (takes milliseconds)."""
    mine = os.times()
    seconds = mine.user + mine.system
    if with_children:
        for child in psutil.Process().children(recursive=True):
            try:
                times = child.cpu_times()
                seconds += times.user + times.system
            except psutil.Error:
                continue
    return seconds
