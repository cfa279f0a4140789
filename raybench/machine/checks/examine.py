"""Everything that ``doctor`` looks at on one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raybench.machine.checks import capacity, collectives, devices, load, network, ray_cluster, software
from raybench.machine.checks.check import Check
from raybench.machine.checks.software import Wanted


def examine(wanted: Wanted, *, all_reduce: bool = True) -> list[Check]:
    """Every check of this node, in the order in which they are shown.

    With ``all_reduce`` two workers start, for some 5 s.
    """
    looks: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("Python", lambda: software.python(wanted)),
        ("packages", lambda: software.packages(wanted)),
        ("devices", devices.devices),
        ("peer-to-peer", devices.topology),
        ("busy", load.busy),
        ("network", network.network),
        ("memory", capacity.memory),
        ("shared memory", capacity.shared_memory),
        ("disk", capacity.disks),
        ("open files", capacity.open_files),
        ("Ray", ray_cluster.ray),
    ]
    if all_reduce:
        looks.append(("all-reduce", collectives.all_reduce))
    found: list[Check] = []
    for name, look in looks:
        try:
            found += look()
        except Exception as error:  # one unreadable file must not hide the other answers
            found.append(Check(name, "warning", f"could not be examined: {type(error).__name__}: {error}"))
    return found
