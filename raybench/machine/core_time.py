"""Who used the cores: time of the machine's cores that was not idle, and of processes by name."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection

import psutil

from raybench.machine.host import allowed_cores

RAYS_TITLES = ("ray::", "raylet", "gcs_server", "ray-dashboard")


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


def core_seconds_by_process() -> dict[int, tuple[str, float]]:
    """Name and seconds of every process that can be seen, by its id; takes tens of milliseconds."""
    found = {}
    for process in psutil.process_iter(["name", "cmdline", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (_family(process.info), times.user + times.system)
    return found


def seconds_by_name(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], without: Collection[int]
) -> dict[str, float]:
    """What each program used between two looks, the most first, but for the processes of ``without``."""
    used: dict[str, float] = defaultdict(float)
    for pid, (name, seconds) in after.items():
        if pid not in without:
            # a process may take another name meanwhile, and an id may come again
            _, earlier_s = before.get(pid, (name, 0.0))
            used[name] += seconds - (earlier_s if earlier_s <= seconds else 0.0)
    return dict(sorted(used.items(), key=lambda item: -item[1]))


def descendants(pids: Collection[int]) -> set[int]:
    """The processes that those of ``pids`` started, and theirs, as far as they live."""
    found = set[int]()
    for pid in pids:
        try:
            found |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        except psutil.Error:
            continue
    return found


def _family(info: dict[str, object]) -> str:
    """ "Ray" for its workers, told by their titles, and its daemons, told by the script that they run."""
    arguments = [str(each) for each in info["cmdline"]] if isinstance(info["cmdline"], list) else []
    name = str(info["name"])
    scripts = [each for each in arguments[1:4] if each.endswith(".py")]
    is_rays = name.startswith(RAYS_TITLES) or any(each.startswith(RAYS_TITLES) for each in arguments[:1])
    if is_rays or any("/ray/" in each for each in scripts):
        return "Ray"
    return name if arguments else "kernel"
