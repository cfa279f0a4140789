"""Network interfaces, and which of them gloo and NCCL take."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address
from pathlib import Path

import psutil

from raybench.machine.host import DeviceKind, read


def interfaces() -> dict[str, str]:
    """The interfaces that are up, in the kernel's order, each with an address, IPv4 first."""
    entries, states = psutil.net_if_addrs(), psutil.net_if_stats()
    up: dict[str, str] = {}
    for _, name in socket.if_nameindex():
        addresses = {entry.family: entry.address.split("%")[0] for entry in reversed(entries.get(name, []))}
        address = addresses.get(socket.AF_INET) or addresses.get(socket.AF_INET6)
        if address and name in states and states[name].isup:
            up[name] = address
    return up


def loopback_interface() -> str | None:
    """The name of the interface that leads to this host alone; None where none is up."""
    return next((name for name, address in interfaces().items() if ip_address(address).is_loopback), None)


def gloo_interface() -> tuple[str, str] | None:
    """Interface and address that gloo takes: GLOO_SOCKET_IFNAME, else where the host's name leads.

    The address is empty where the named interface does not exist; None: no interface at all.
    """
    addresses = interfaces()
    if named := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0].strip():
        return named, addresses.get(named, "")
    try:
        own_addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        own_addresses = set()
    is_loopback = any(address.startswith("127.") for address in own_addresses)
    for name, address in addresses.items():
        if address in own_addresses or (name == "lo" and is_loopback):
            return name, address
    # gloo falls back to the loopback interface when the host's own name leads nowhere.
    return ("lo", addresses["lo"]) if "lo" in addresses else None


def nccl_interface() -> tuple[str, str] | None:
    """Interface and address that NCCL's sockets take first: NCCL_SOCKET_IFNAME, else NCCL's own order.

    That order, of NCCL's manual: names that begin with ``ib``, then any but docker's and the loopback,
    then docker's, then the loopback. The address is empty where the named one does not exist.
    """
    addresses = interfaces()
    wanted = os.environ.get("NCCL_SOCKET_IFNAME", "").strip()
    if wanted:
        names = [name for name in addresses if _matches(name, wanted)]
        return (names[0], addresses[names[0]]) if names else (wanted, "")

    def place(name: str) -> tuple[bool, ...]:
        return name.startswith("lo"), name.startswith("docker"), not name.startswith("ib")

    first = min(addresses, key=place, default=None)
    return None if first is None else (first, addresses[first])


RDMA = Path("/sys/class/infiniband")


def rdma_devices() -> tuple[str, ...]:
    """Adapters that are up and reach another host's memory directly: of InfiniBand, RoCE, EFA."""
    states = {port.parts[-4]: read(port) or "" for port in RDMA.glob("*/ports/1/state")}
    return tuple(sorted(name for name, state in states.items() if "ACTIVE" in state))


def unknown_interfaces(device: DeviceKind) -> list[str]:
    """A line for each variable that names an interface which is not up here: no group of workers starts.

    gloo carries all coordination, on GPUs too.
    """
    named = {"GLOO_SOCKET_IFNAME": gloo_interface()}
    if device == "cuda":
        named["NCCL_SOCKET_IFNAME"] = nccl_interface()
    there = ", ".join(interfaces())
    return [
        f"{variable}: an interface that is up: {there} (received {taken[0]!r})"
        for variable, taken in named.items()
        if taken is not None and not taken[1]
    ]


def _matches(name: str, wanted: str) -> bool:
    """``eth`` prefixes, ``=eth0`` exact names, ``^`` none of these, several between commas."""
    excludes, rest = wanted.startswith("^"), wanted.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    patterns = [pattern for pattern in rest.split(",") if pattern]
    is_named = any(name == pattern if exact else name.startswith(pattern) for pattern in patterns)
    return is_named != excludes
