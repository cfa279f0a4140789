"""The interfaces that gloo and NCCL will take."""

from __future__ import annotations

import os
from collections.abc import Iterator

from raybench.machine import network as interfaces
from raybench.machine.checks.check import Check


def network() -> Iterator[Check]:
    """The interfaces that gloo and NCCL will take."""
    for library, variable, chosen in (
        ("gloo", "GLOO_SOCKET_IFNAME", interfaces.gloo_interface()),
        ("NCCL", "NCCL_SOCKET_IFNAME", interfaces.nccl_interface()),
    ):
        name = f"{library} interface"
        there = ", ".join(interfaces.interfaces())
        if chosen is None:
            yield Check(
                name, "missing", "no network interface is up, not even the loopback", "ip link set lo up"
            )
        elif not chosen[1]:
            text = f"{variable}={chosen[0]}: no such interface, there are {there}"
            yield Check(name, "missing", text, f"unset {variable}")
        else:
            why = f"by {variable}" if os.environ.get(variable) else f"{variable} is not set"
            note = "; one node only" if chosen[1].startswith("127.") or chosen[1] == "::1" else ""
            yield Check(name, "ok", f"{chosen[0]} ({chosen[1]}), {why}{note}")
