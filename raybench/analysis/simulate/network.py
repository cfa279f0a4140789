"""Latency and bandwidth of the all-reduces at a trial's place, as three kinds of measurements give them.

A sweep of the place (``communication``) gives the line of latency and bandwidth; the trial's own
``replay``, which sends as its steps do, then sets the level of both, as far as it is known better than the
line. Without a sweep the replays of trials with other buckets are fitted: replay = latency * buckets /
messages at once + bytes / bandwidth, by least squares of relative errors, neither below 0. One replay alone
says nothing of the latency: a usual one is taken, within wide bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from raybench.analysis.collectives import Link, bus_factor
from raybench.analysis.simulate.timeline import AT_ONCE, Compute, Wire, factors, simulate
from raybench.analysis.stats.rounds import level, series
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.spec.network import Algorithm, Network, steps_of

# of a small all-reduce between two devices, where nothing measured it: within a factor of ten either way
USUAL_LATENCY_S = {"gloo": 300e-6, "nccl": 30e-6}
KNOWN_WITHIN = math.log(10)
LARGEST_LATENCY_SHARE = 0.5  # of a replay
LINE_HOLDS_WITHIN = 0.03  # half an interval of its logarithm, for other messages than those swept
NO_LATENCY_S = 1e-7  # as good as none, of a step
UNKNOWN_WITHIN = 2.0  # a factor, of what a sweep's messages do not show
LEAST_RATIO = 1.2  # of messages for each byte, between the replays that separate latency from bandwidth


@dataclass(frozen=True)
class KnownWire:
    """A wire, and how well its latency and its time for a byte are known: half-widths of their logarithms."""

    wire: Wire
    latency_half: float
    s_per_byte_half: float

    def bent(self) -> list[Wire]:
        """The wire with its latency, and with its time for a byte, at either end of what they may be."""
        wire = self.wire
        return [
            *(replace(wire, latency_s=wire.latency_s * each) for each in factors(self.latency_half)),
            *(replace(wire, s_per_byte=wire.s_per_byte * each) for each in factors(self.s_per_byte_half)),
        ]


def network_of(links: Iterable[Link], name: str, *, through_adapters: bool = False) -> Network | None:
    """The network whose all-reduces a sweep has timed; None without two nodes.

    By the most nodes, of these by the most devices; within a node by the most devices of one. What a node's
    own steps leave of the latency is of those between nodes, a ring's on gloo, on NCCL a tree's: it takes the
    faster of the two. ``through_adapters``: the devices of one node reached each other so. In a ring each
    sends as much, all of it over the node's links; of more nodes one does.
    """
    found = [each for each in links if each.collective == "all_reduce" and each.place.world_size > 1]
    if through_adapters and found:
        widest = max(found, key=lambda each: each.place.world_size)
        size = widest.place.world_size
        (worst, best), latency_s = _ends(widest, 2 * (size - 1))
        return Network(
            name=name, devices_per_node=size, bytes_per_s=(size * worst, size * best), latency_s=latency_s
        )
    across = max(found, key=lambda each: (each.place.nodes or 1, each.place.world_size), default=None)
    if across is None or across.place.nodes in (None, 1):
        return None
    nodes, size = across.place.nodes or 1, across.place.world_size
    of_one = [each for each in found if each.place.nodes == 1]
    alone = max(of_one, key=lambda each: each.place.world_size, default=None)
    local: dict[str, tuple[float, float]] = {"local_latency_s": (NO_LATENCY_S, NO_LATENCY_S)}
    if alone is not None:
        near = _ends(alone, 2 * (alone.place.world_size - 1))
        local = {"local_bytes_per_s": near[0], "local_latency_s": near[1]}
    per_node = -(-size // nodes)
    algorithms: tuple[Algorithm, ...] = ("ring",) if across.place.backend == "gloo" else ("ring", "tree")
    inside, between = steps_of(algorithms[-1], size, -(-size // per_node), per_node)
    far = _ends(across, between, [inside * each for each in local["local_latency_s"]])
    return Network(
        name=name,
        devices_per_node=per_node,
        bytes_per_s=far[0],
        latency_s=far[1],
        algorithms=algorithms,
        **local,
    )


def _ends(
    link: Link, steps: float, others_s: Sequence[float] = (0.0, 0.0)
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bus bandwidth in bytes/s and the latency of one of so many steps in s, each from worst to best.

    ``others_s``: of the latency, what steps of another kind take, from worst to best too: the more they do,
    the less is left.
    """
    latency_s, s_per_byte = link.line
    bus, latency = link.bus_bandwidth_bytes_per_s, link.latency_s
    rate = bus_factor("all_reduce", link.place.world_size) / s_per_byte
    rates = (bus.low, bus.high) if bus else (rate / UNKNOWN_WITHIN, rate)
    latencies = (latency.high, latency.low) if latency else (latency_s, latency_s / UNKNOWN_WITHIN)
    worst_s, best_s = (
        max((each - other_s) / steps, NO_LATENCY_S)
        for each, other_s in zip(latencies, reversed(others_s), strict=True)
    )
    return rates, (worst_s, best_s)


def replay_s(bucket_bytes: Sequence[float], wire: Wire) -> float:
    """All messages, given away at once, with nothing computed meanwhile, in s."""
    nothing = Compute(0.0, (0.0,) * len(bucket_bytes), 0.0, 0.0)
    return simulate(nothing, [(index,) for index in range(len(bucket_bytes))], bucket_bytes, wire)


def wire_of(
    record: TrialRecord, others: Iterable[TrialRecord] = (), links: Iterable[Link] = ()
) -> KnownWire | None:
    """The wire at the place of ``record``; None where its replay was not measured.

    ``others`` may hold replays with other buckets at the same place, ``links`` the lines of a sweep.
    """
    own = _replay(record)
    if own is None:
        return None
    backend = "nccl" if record.config.device == "cuda" else "gloo"
    at_once, half = AT_ONCE[backend], own.time_s.log_half_width
    # where two placements have equally many nodes, that which was asked for first
    asked = "all_reduce", record.config.world_size, record.nodes
    there = (each for each in links if (each.collective, each.place.world_size, each.place.nodes) == asked)
    line = next(there, None)
    if line is not None:
        latency_half = line.latency_s.log_half_width if line.latency_s else KNOWN_WITHIN
        bandwidth = line.algorithm_bandwidth_bytes_per_s
        line_half = max(bandwidth.log_half_width if bandwidth else KNOWN_WITHIN, LINE_HOLDS_WITHIN)
        weight = line_half**2 / (line_half**2 + half**2)  # of the replay: a noisy one says little
        found = _at_level(own, Wire(*line.line, at_once), weight)
        half = line_half * half / math.hypot(line_half, half)
        return KnownWire(found, latency_half, half)
    alike = [each for other in others if (each := _replay(other)) and _same_place(other, record)]
    fitted = _fitted([own, *alike], at_once)
    if fitted is not None:
        half = max(fitted.s_per_byte_half, half)
        return replace(fitted, wire=_at_level(own, fitted.wire), s_per_byte_half=half)
    per_message = own.time_s.value * at_once / len(own.bytes)
    latency_s = min(USUAL_LATENCY_S[backend], LARGEST_LATENCY_SHARE * per_message)
    guess = _at_level(own, Wire(latency_s, own.time_s.value / sum(own.bytes), at_once))
    return KnownWire(guess, KNOWN_WITHIN, half)


class _Replay(NamedTuple):
    bytes: tuple[float, ...]  # of each message
    time_s: Estimate


def _replay(record: TrialRecord) -> _Replay | None:
    measurement = record.steps
    if measurement is None or not measurement.bucket_bytes or not measurement.gradient_bytes:
        return None
    values = series(measurement, "replay")
    if values is None:
        return None
    share = measurement.gradient_bytes / sum(measurement.bucket_bytes)  # compressed ones are smaller
    return _Replay(tuple(share * size for size in measurement.bucket_bytes), level(values))


def _same_place(one: TrialRecord, other: TrialRecord) -> bool:
    named = ("world_size", "placement", "environment", "device")
    same = all(getattr(one.config, name) == getattr(other.config, name) for name in named)
    mine, theirs = (each.config.setting.gradient_compression for each in (one, other))
    return same and mine == theirs and one.ranks == other.ranks and one.trial_id != other.trial_id


def _at_level(own: _Replay, wire: Wire, weight: float = 1.0) -> Wire:
    """The wire, both parts by one factor, so that the replay takes what it took, as far as ``weight``."""
    return wire.scaled((own.time_s.value / replay_s(own.bytes, wire)) ** weight)


def _fitted(replays: Sequence[_Replay], at_once: int) -> KnownWire | None:
    """Latency and time for a byte of several replays; None where these do not separate the two."""
    density = [len(each.bytes) / sum(each.bytes) for each in replays]
    if max(density) < LEAST_RATIO * min(density):
        return None
    rows = np.array([[len(each.bytes) / at_once, sum(each.bytes)] for each in replays])
    times = np.array([each.time_s.value for each in replays])
    weights = rows / times[:, None]
    (latency_s, s_per_byte), _ = nnls(weights, np.ones(len(times)))
    if s_per_byte <= 0:
        return None
    noise = np.array([each.time_s.log_half_width for each in replays])
    halves = np.sqrt((np.linalg.pinv(weights) ** 2) @ noise**2)
    # a latency that the replays do not show is small, and not known to be nothing
    least_s = max(float(halves[0]) / 2, 1e-7)
    latency_half = min(float(halves[0]) / max(latency_s, least_s), KNOWN_WITHIN)
    wire = Wire(max(float(latency_s), least_s), float(s_per_byte), at_once)
    return KnownWire(wire, latency_half, float(halves[1] / s_per_byte))
