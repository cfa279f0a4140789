"""The interfaces that gloo and NCCL will take."""

from __future__ import annotations

import os
from collections.abc import Iterator

from raybench.machine import gpus
from raybench.machine import network as interfaces
from raybench.machine.checks.check import NOT_ON_CPUS, Check


def network() -> Iterator[Check]:
    """The interfaces that gloo and NCCL will take."""
    for library, variable, interface in (
        ("gloo", "GLOO_SOCKET_IFNAME", interfaces.gloo_interface()),
        ("NCCL", "NCCL_SOCKET_IFNAME", interfaces.nccl_interface()),
    ):
        name = f"{library} interface"
        if library == "NCCL" and not gpus.graphics().gpus:
            yield Check(name, "unused", NOT_ON_CPUS)
            continue
        there = ", ".join(interfaces.interfaces())
        if interface is None:
            yield Check(
                name, "missing", "no network interface is up, not even the loopback", "ip link set lo up"
            )
        elif not interface[1]:
            text = f"{variable}={interface[0]}: no such interface, there are {there}"
            yield Check(name, "missing", text, f"unset {variable}")
        else:
            why = f"by {variable}" if os.environ.get(variable) else f"{variable} is not set"
            note = "; one node only" if interface[1].startswith("127.") or interface[1] == "::1" else ""
            yield Check(name, "ok", f"{interface[0]} ({interface[1]}), {why}{note}")
