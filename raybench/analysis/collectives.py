"""What a sweep of collectives says: times and bandwidths of messages, and lines through them.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there): the algorithm's is the message over its time,
the bus's is that times what the best algorithm must send over each device's link for a byte of the message,
so that it compares with the link's rate whatever the number of devices. The message is the larger of what
goes in and what comes out: of all_gather the output, of reduce_scatter the input.

The line of a collective is time = latency + message / bandwidth, fitted to the messages of one place.
Messages reach over five orders of magnitude, and their times over as many: the logarithms of time and line
are compared, so that each message counts alike, by its relative error. With x_i the logarithm of a line's
value at message i and J its derivatives with respect to the logarithms of latency and bandwidth, the least
squares estimate has the covariance s^2 (J'J)^-1, s^2 the residual variance with m - 2 degrees of freedom, and
Student's interval with as many (Bates and Watts 1988, "Nonlinear regression analysis and its applications",
chapter 2, linear approximation). That holds what the line misses of the messages, and their noise. Where
residuals are small by chance, the messages' own intervals decide: the rows of (J'J)^-1 J' carry them over,
half-widths added in squares. The wider of the two is taken.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from raybench.analysis.stats.statistics import Estimate, geometric, inverse, of_log, t_quantile
from raybench.records.measured_elsewhere import LoggedMessage
from raybench.records.record import TrialRecord
from raybench.spec.knobs import KnobValue
from raybench.spec.placement import Placement, placement_text
from raybench.spec.sweep import COLLECTIVES, Collective, Sweep


@dataclass(frozen=True)
class SweptPlace:
    """Where messages went: what is fitted, and drawn, separately."""

    world_size: int
    nodes: int | None  # None: not known
    placement: Placement
    backend: str


@dataclass(frozen=True)
class Message:
    """One collective on one message at one place."""

    collective: Collective
    place: SweptPlace
    message_bytes: int
    time_s: Estimate  # of one operation, on the slowest rank

    @property
    def algorithm_bandwidth_bytes_per_s(self) -> Estimate:
        """The message over its time."""
        return inverse(self.time_s).scaled(self.message_bytes)

    @property
    def bus_bandwidth_bytes_per_s(self) -> Estimate:
        """What each device's link carries at least, over the time."""
        factor = bus_factor(self.collective, self.place.world_size)
        return self.algorithm_bandwidth_bytes_per_s.scaled(factor)

    def row(self) -> dict[str, KnobValue]:
        """A row of ``communication.csv``: the columns of docs/reference.md."""
        return {
            #: as torch.distributed names it
            "collective": self.collective,
            #: `gloo` or `nccl`
            "backend": self.place.backend,
            #: number of devices
            "world_size": self.place.world_size,
            #: number of nodes
            "nodes": self.place.nodes,
            #: `pack` or `spread`
            "placement": placement_text(self.place.placement),
            #: message as nccl-tests counts it: of all_gather the output, of reduce_scatter the input; a
            #: multiple of 4 bytes for each device
            "message_bytes": self.message_bytes,
            #: time of one operation on the slowest rank, trimmed mean over rounds
            "time_s": self.time_s.value,
            #: lower end of its 95% interval
            "time_low_s": self.time_s.low,
            #: upper end of its interval
            "time_high_s": self.time_s.high,
            #: message over time
            "algorithm_bandwidth_bytes_per_s": self.algorithm_bandwidth_bytes_per_s.value,
            #: algorithm bandwidth times 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter and all_gather, 1
            #: for broadcast: compares with the rate of each device's link
            "bus_bandwidth_bytes_per_s": self.bus_bandwidth_bytes_per_s.value,
            #: rounds of which the time is made
            "rounds": self.time_s.n,
        }


def bus_factor(collective: Collective, world_size: int) -> float:
    """Bus bandwidth over algorithm bandwidth: bytes over each link for a byte of the message."""
    others = (world_size - 1) / world_size
    return {"all_reduce": 2 * others, "reduce_scatter": others, "all_gather": others, "broadcast": 1.0}[
        collective
    ]


_Sized = tuple[SweptPlace, Collective, int]  # and the size in bytes


def messages(records: Iterable[TrialRecord]) -> tuple[Message, ...]:
    """Every message, by place, collective and size.

    The time of a round is that of its block's slowest
    rank; over the rounds the trimmed mean of its logarithm is taken.
    """
    times_s = defaultdict[_Sized, list[float]](list)
    for record in records:
        config, found = record.request.config, record.collectives
        if found is not None:
            place = SweptPlace(config.world_size, record.nodes, config.placement, found.backend)
            for block in (block for round_ in found.rounds for block in round_.blocks):
                times_s[place, block.collective, block.message_bytes].append(block.slowest_s)
    return _messages(times_s)


def _messages(times_s: Mapping[_Sized, Sequence[float]]) -> tuple[Message, ...]:
    """By place as they come, then collective, then size; what was timed once has no interval."""
    places = list(dict.fromkeys(place for place, _, _ in times_s))
    found = list[Message]()
    for (place, collective, size), series in times_s.items():
        alone = Estimate(series[0], series[0], series[0], 1)
        found.append(Message(collective, place, size, geometric(series) if len(series) > 1 else alone))
    return tuple(
        sorted(
            found,
            key=lambda one: (places.index(one.place), COLLECTIVES.index(one.collective), one.message_bytes),
        )
    )


FEWEST_MESSAGES = 3  # two have a line through them, whatever they are
KNOWN_WITHIN = math.log(2)  # half the interval of a logarithm: beyond it nothing is reported
LEAST_SHARE = 1e-6  # of the smallest time, of a latency that is looked for
CONVERGED = 1e-12


@dataclass(frozen=True)
class Link:
    """The fitted line of one collective at one place.

    ``latency_s`` or ``algorithm_bandwidth_bytes_per_s`` is None where the messages do not show it within a
    factor of two: they are all large, or all small. ``line`` holds both as fitted.
    """

    collective: Collective
    place: SweptPlace
    latency_s: Estimate | None
    algorithm_bandwidth_bytes_per_s: Estimate | None  # of messages so large that latency is nothing
    line: tuple[float, float]  # s, s for each byte

    @property
    def bus_bandwidth_bytes_per_s(self) -> Estimate | None:
        """What compares with the link's rate; None where the bandwidth is not known."""
        bandwidth = self.algorithm_bandwidth_bytes_per_s
        return bandwidth and bandwidth.scaled(bus_factor(self.collective, self.place.world_size))


def links_of_log(logged: Iterable[LoggedMessage]) -> tuple[Link, ...]:
    """The lines of logs of nccl-tests, whose times are means without an interval."""
    times_s = defaultdict[_Sized, list[float]](list)
    for each in logged:
        place = SweptPlace(each.world_size, each.nodes, "pack", "nccl")
        times_s[place, each.collective, each.message_bytes].append(each.time_s)
    return links(_messages(times_s))


def links(found: Iterable[Message]) -> tuple[Link, ...]:
    """The line of each collective at each place that has three messages or more; ``found`` is in order."""
    groups = (list(group) for _, group in groupby(found, lambda each: (each.place, each.collective)))
    return tuple(_fitted(group) for group in groups if len(group) >= FEWEST_MESSAGES)


def _fitted(group: Sequence[Message]) -> Link:
    """The line of one collective's messages at one place.

    The search begins at the shortest time and the best rate of all messages. Neither parameter goes where no
    message could show it.
    """
    sizes = np.array([each.message_bytes for each in group], dtype=np.float64)
    times = np.array([each.time_s.value for each in group])
    start = np.log([times.min(), (times / sizes).min()])

    def line_s(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        latency_s, s_per_byte = np.exp(logs)
        return np.asarray(latency_s + sizes * s_per_byte, dtype=np.float64)

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log(line_s(logs) / times))

    found = least_squares(
        residuals,
        start,
        "3-point",
        (start + math.log(LEAST_SHARE), np.inf),
        method="dogbox",
        ftol=CONVERGED,
        xtol=CONVERGED,
        gtol=CONVERGED,
    )
    of_messages = np.array([each.time_s.log_half_width for each in group])
    halves = _half_widths(np.asarray(found.jac), found.fun, of_messages)
    latency_s, s_per_byte = (
        of_log(log, half, min(each.time_s.n for each in group)) if half <= KNOWN_WITHIN else None
        for log, half in zip(found.x.tolist(), halves.tolist(), strict=True)
    )
    latency, rate = np.exp(found.x).tolist()
    return Link(
        group[0].collective,
        group[0].place,
        latency_s,
        inverse(s_per_byte) if s_per_byte else None,
        (latency, rate),
    )


def _half_widths(
    jacobian: NDArray[np.float64], residuals: NDArray[np.float64], of_messages: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of the 95% intervals of both logarithms, shape ``(2,)``; infinite where messages do not show them.

    ``jacobian`` is that of the line's logarithm, shape ``(messages, 2)``: the shares of latency and of
    transfer in its time.
    """
    information = jacobian.T @ jacobian
    if np.linalg.matrix_rank(information) < 2:
        return np.full(2, np.inf)
    covariance, degrees = np.linalg.inv(information), len(residuals) - 2
    variance = float((residuals**2).sum()) / degrees
    by_residuals = t_quantile(degrees) * np.sqrt(variance * covariance.diagonal())
    by_messages = np.sqrt(((covariance @ jacobian.T) ** 2) @ (of_messages**2))
    return np.asarray(np.maximum(by_residuals, by_messages), dtype=np.float64)


@dataclass(frozen=True)
class SweepResults:
    """A sweep with what its records say; of several records with one id the last is given."""

    sweep: Sweep
    records: tuple[TrialRecord, ...]
    messages: tuple[Message, ...]  # by place, collective and size
    links: tuple[Link, ...]

    @property
    def places(self) -> tuple[SweptPlace, ...]:
        """Those with numbers, in the order in which they were measured."""
        return tuple(dict.fromkeys(each.place for each in self.messages))

    @property
    def headline(self) -> SweptPlace | None:
        """The place of the answer: the largest world size, of its placements the first."""
        return max(self.places, key=lambda place: place.world_size, default=None)

    @property
    def complete(self) -> tuple[TrialRecord, ...]:
        """The trials with numbers."""
        return tuple(record for record in self.records if record.collectives is not None)

    @property
    def failed(self) -> tuple[TrialRecord, ...]:
        """The trials without."""
        return tuple(record for record in self.records if record.state != "complete")

    def at(self, place: SweptPlace, collective: Collective | None = None) -> tuple[Message, ...]:
        """The messages at a place, of one collective or of all."""
        return tuple(
            each for each in self.messages if each.place == place and collective in (None, each.collective)
        )


def analyse_sweep(sweep: Sweep, records: Sequence[TrialRecord]) -> SweepResults:
    """Everything that the records of a sweep say."""
    found = messages(records)
    return SweepResults(sweep, tuple(records), found, links(found))
