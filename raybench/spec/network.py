"""A network of equal nodes as data: what an all-reduce of any size takes on so many devices of it.

The forms are those of NCCL's own tuning (src/graph/tuning.cc): with n devices on m nodes, w = n / m on each,

- ring: 2 (n - 1) steps, 2 m of them between nodes, one after the other; the links of a node carry
  2 (n - 1) / n of the message;
- tree: 2 (w - 1) steps within nodes and 2 log2 m between them, as many bytes;
- hierarchical: rings within the nodes and one between them for each device, one after the other: 2 (w - 1)
  and 2 (m - 1) steps, 2 (w - 1) / w of the message within a node and 2 (m - 1) / m over its links.

NCCL takes the faster of ring and tree for each message; gloo has the ring alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from raybench.spec.base import Model, PositiveFloat, PositiveInt
from raybench.spec.user_input import received

Algorithm = Literal["ring", "tree", "hierarchical"]
Range = Annotated[
    tuple[PositiveFloat, PositiveFloat],
    BeforeValidator(lambda value: (value, value) if isinstance(value, int | float) else value),
]
# fields with a range, and whether more is better (1) or worse (-1)
RANGES = {"bytes_per_s": 1, "latency_s": -1, "local_bytes_per_s": 1, "local_latency_s": -1}
Line = tuple[float, float]  # of an all-reduce: s, and s for each byte


class Network(Model):
    """Equal nodes, and the links between them; each figure a value or a range from worst to best."""

    name: str = Field("network", description="what it is called")
    devices_per_node: PositiveInt = Field(description="devices of each node")
    bytes_per_s: Range | None = Field(
        None,
        description="bus bandwidth of all links of a node, as nccl-tests counts it, in bytes/s; unset: there "
        "is one node",
    )
    latency_s: Range = Field((50e-6, 5e-6), description="of one step between two nodes, in s")
    local_bytes_per_s: Range | None = Field(
        None, description="bus bandwidth within a node, in bytes/s; unset: as fast as it is here, or faster"
    )
    local_latency_s: Range = Field((6e-6, 3e-6), description="of one step within a node, in s")
    algorithms: tuple[Algorithm, ...] = Field(
        ("ring", "tree"), min_length=1, description="of an all-reduce; the fastest is taken for each message"
    )
    oversubscription: PositiveFloat = Field(
        1.0, ge=1, description="by which switches divide what all links of all nodes could carry"
    )

    @model_validator(mode="after")
    def _carries(self) -> Network:
        if self.bytes_per_s is None and self.local_bytes_per_s is None:
            raise ValueError("bytes_per_s of the links, or local_bytes_per_s of the one node")
        for name, sign in RANGES.items():
            if (ends := getattr(self, name)) is not None and sign * ends[0] > sign * ends[1]:
                raise ValueError(f"{name}: a range is from worst to best (received {list(ends)})")
        return self

    def nodes(self, world_size: int) -> int:
        """Nodes that so many devices fill.

        Raises ``ValueError`` where there is one node, and it has fewer.
        """
        if not self.joins(world_size):
            raise ValueError(
                f"network: {self.name} has {self.devices_per_node} devices on its one node "
                f"(received {world_size} devices)"
            )
        return -(-world_size // self.devices_per_node)

    def joins(self, world_size: int) -> bool:
        """Whether so many devices are on its one node, or its nodes are joined."""
        return world_size <= self.devices_per_node or self.bytes_per_s is not None

    def says(self, world_size: int) -> bool:
        """Whether it says what joins so many devices, which may be those of one node."""
        is_alone = world_size <= self.devices_per_node
        return (self.local_bytes_per_s if is_alone else self.bytes_per_s) is not None

    def lines(self, world_size: int, towards: float = 0.5) -> tuple[Line, ...]:
        """Of an all-reduce over so many devices by each algorithm; the fastest for a message counts.

        ``towards``: between the worst of each range (0) and the best (1).
        """
        nodes, w = self.nodes(world_size), min(self.devices_per_node, world_size)
        return tuple(self._line(each, world_size, nodes, w, towards) for each in self.algorithms)

    def _line(self, algorithm: Algorithm, n: int, m: int, w: int, towards: float) -> Line:
        near_s, far_s = (within(each, towards) for each in (self.local_latency_s, self.latency_s))
        near = 1 / within(self.local_bytes_per_s, towards) if self.local_bytes_per_s else 0.0
        far = self.oversubscription / within(self.bytes_per_s, towards) if m > 1 and self.bytes_per_s else 0.0
        near_steps, far_steps = steps_of(algorithm, n, m, w)
        s_per_byte = 2 * (n - 1) / n * max(near, far)
        if algorithm == "hierarchical":
            s_per_byte = 2 * (w - 1) / w * near + 2 * (m - 1) / m * far
        return near_steps * near_s + far_steps * far_s, s_per_byte


def steps_of(algorithm: Algorithm, n: int, m: int, w: int) -> tuple[float, float]:
    """Of an all-reduce over n devices on m nodes of w: steps within nodes, and between them."""
    if algorithm == "hierarchical":
        return 2 * (w - 1), 2 * (m - 1)
    if algorithm == "tree":
        return 2 * (w - 1), 2 * math.log2(m)
    between = min(2 * m, 2 * (n - 1)) if m > 1 else 0
    return 2 * (n - 1) - between, between


def fastest(lines: Sequence[Line], message_bytes: float) -> Line:
    """The line that a message takes."""
    return min(lines, key=lambda line: line[0] + message_bytes * line[1])


def all_reduce_s(lines: Sequence[Line], message_bytes: float) -> float:
    """A message over the fastest of ``lines``, in s."""
    latency_s, s_per_byte = fastest(lines, message_bytes)
    return latency_s + message_bytes * s_per_byte


@dataclass(frozen=True)
class _Kind:
    """What links of a kind reach of their rate in an all-reduce, worst and best, and what a step takes."""

    share: tuple[float, float]
    latency_s: tuple[float, float]


# nccl-tests, issue 29: 12.2 of 12.5 GB/s; issue 290: 46 to 48 of 50 GB/s; issue 100: 91 of 100 GB/s. A step
# over a network takes 14 us in NCCL's tuning.cc (protocol Simple), 2.7 us with the protocol LL.
_INFINIBAND = _Kind((0.90, 0.97), (14e-6, 5e-6))
# nccl, issue 450: 4 to 6 of 12.5 GB/s untuned; payload of TCP over Ethernet is 0.956 of the rate
_TCP = _Kind((0.40, 0.93), (60e-6, 20e-6))
# nccl, issue 235: 10 of 12.5 GB/s on 2 nodes, 6 to 8 on 8 to 32
_EFA = _Kind((0.50, 0.80), (40e-6, 15e-6))
# half of the rate to all of the payload
_ANY = _Kind((0.50, 0.95), (50e-6, 5e-6))

PRESETS: dict[str, tuple[_Kind, float]] = {
    "tcp-25": (_TCP, 25e9),
    "tcp-100": (_TCP, 100e9),
    "infiniband-200": (_INFINIBAND, 200e9),
    "infiniband-400": (_INFINIBAND, 400e9),
    "efa-100": (_EFA, 100e9),
    "efa-400": (_EFA, 400e9),
    "efa-3200": (_EFA, 3200e9),
}
# bus bandwidth in bytes/s: of A100 by nccl-tests, issue 149, and nccl, issue 527; of H100 by nccl, issue
# 1374, and nccl-tests, issue 290
NVLINKS: dict[str, Range] = {"nvlink-3": (200e9, 231e9), "nvlink-4": (370e9, 480e9)}


def links_needed(bytes_per_s: float, preset: str) -> int:
    """Links of a kind that carry so much together, each with what is between its worst and its best."""
    kind, bits = PRESETS[preset]
    return math.ceil(bytes_per_s / (within(kind.share, 0.5) * bits / 8))


FORM = (
    "a network such as 8x400Gbit/s, 8xinfiniband-400 or 8x8xinfiniband-400, its table or TOML file, or the "
    "directory of a sweep"
)
_TEXT = re.compile(r"(?P<devices>[1-9]\d*)x(?:(?P<links>[1-9]\d*)x)?(?P<link>[^x]+)", re.ASCII)
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[KMGT]?bit)/s", re.ASCII | re.IGNORECASE)
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}


def bits_per_s(text: str) -> float | None:
    """``10Gbit/s``; None where it is no rate above 0."""
    match = _RATE.fullmatch(text)
    rate = float(match["number"]) * _BITS[match["unit"].lower()] if match else 0.0
    return rate or None


def named_network(text: str) -> Network:
    """``8x400Gbit/s``, ``8x8xinfiniband-400`` or ``8xnvlink-4``.

    Devices of a node, links of a node (1 unless said), and the rate or the preset of a link. An NVLink's rate
    is that of all links of a device, so that no number of them goes with it.

    Raises ``ValueError`` for what looks like none of them, or a preset that there is not.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{FORM} (received {received(text)})")
    devices, links, link = int(match["devices"]), int(match["links"] or 1), match["link"]
    if link in NVLINKS:
        if match["links"]:
            raise ValueError(f"{devices}x{link}, whose rate is that of all links (received {received(text)})")
        return Network(name=text, devices_per_node=devices, local_bytes_per_s=NVLINKS[link])
    kind, rate = PRESETS.get(link, (_ANY, bits_per_s(link)))
    if rate is None:
        there = ", ".join((*PRESETS, *NVLINKS))
        raise ValueError(f"of a link a rate such as 400Gbit/s, or {there} (received {received(link)})")
    worst, best = (links * share * rate / 8 for share in kind.share)
    return Network(name=text, devices_per_node=devices, bytes_per_s=(worst, best), latency_s=kind.latency_s)


NetworkOrName = Annotated[
    Network, BeforeValidator(lambda value: named_network(value) if isinstance(value, str) else value)
]


def within(ends: Range, towards: float) -> float:
    """Between the worst (0) and the best (1), on a logarithmic scale."""
    worst, best = ends
    return float(worst ** (1 - towards) * best**towards)
