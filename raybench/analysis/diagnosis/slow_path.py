"""A fast way between the devices that is switched off or not taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raybench.analysis.diagnosis.case import Case
from raybench.spec.knobs import KnobValue

# Variables that switch a fast path off, and what they are then.
SWITCHED_OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
INTERFACES = {"cuda": "NCCL_SOCKET_IFNAME", "cpu": "GLOO_SOCKET_IFNAME"}
SLOW_INTERFACES = ("lo", "docker", "veth", "br-", "virbr", "tun", "tap", "wl")
NEAR_LINKS, FAR_LINKS = ("NV", "PIX", "PXB"), ("PHB", "NODE", "SYS")


@dataclass(frozen=True)
class WorseWay:
    """The way that is taken, and how to take a better one."""

    fact: str
    next_step: str
    change: Mapping[str, KnobValue] | None = None


def worse_way(case: Case) -> WorseWay | None:
    """Why the transfers go a worse way than they could; None where nothing says so."""
    environment = case.around.environment
    variables = dict(environment.variables if environment else {}) | case.config.environment
    several = (case.record.nodes or 1) > 1
    for name, off in SWITCHED_OFF.items() if case.is_cuda else ():
        if variables.get(name) == off and (several or name != "NCCL_IB_DISABLE"):
            return WorseWay(f"{name}={off} switches a fast path off", f"measure with {name}=0", {name: "0"})
    name = INTERFACES[case.config.device]
    taken = variables.get(name, "").lstrip("=")
    if several and taken.startswith(SLOW_INTERFACES):
        step = f"name the network between the nodes in {name}; `raybench doctor` lists the interfaces"
        return WorseWay(f"{name}={taken} is no network between nodes", step)
    return _far_gpus(case) if case.is_cuda and not several else None


def _far_gpus(case: Case) -> WorseWay | None:
    """GPUs of one node that talk through the host while others have a nearer way."""
    environment = case.around.environment
    links = environment.gpu_links if environment else ()
    ranks = [rank for rank in case.record.ranks if rank < len(links)]
    pairs = {(a, b): links[a][b] for a in range(len(links)) for b in range(a)}
    used = {pair: kind for pair, kind in pairs.items() if pair[0] in ranks and pair[1] in ranks}
    far = [pair for pair, kind in used.items() if kind.startswith(FAR_LINKS)]
    near = [pair for pair, kind in pairs.items() if kind.startswith(NEAR_LINKS)]
    if not far or not near or len(ranks) > 2:
        return None
    a, b = near[0]
    fact = f"GPUs {far[0][1]} and {far[0][0]} are joined by {used[far[0]]}, GPUs {b} and {a} by {pairs[a, b]}"
    return WorseWay(fact, f"measure on those too: --set 'scaling.placement=[[{b}, {a}]]'")
