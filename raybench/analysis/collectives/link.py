"""The line of a collective: time = latency + message / bandwidth, fitted to the messages of one place.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.collectives.messages import Message, SweptPlace, bus_factor, messages, of_collective
from raybench.analysis.estimates.statistics import Estimate, inverse, of_log, t_quantile
from raybench.records.record import TrialRecord
from raybench.spec.sweep import COLLECTIVES, Collective

FEWEST_MESSAGES = 3  # two have a line through them, whatever they are
HOLDS_WITHIN = 0.25  # relative: further off, a message is named as one for which the line does not hold
KNOWN_WITHIN = math.log(2)  # half the interval of a logarithm: what is only known more coarsely is not told
LEAST_SHARE = 1e-6  # of the smallest time, of a latency that is looked for
ITERATIONS, CONVERGED = 200, 1e-10


@dataclass(frozen=True)
class Residual:
    """By how much a message's time differs from the line, relative to the line."""

    message_bytes: int
    relative: float
    is_certain: bool  # the message's interval does not reach the line


@dataclass(frozen=True)
class Link:
    """The fitted line of one collective at one place.

    ``latency_s`` or ``algorithm_bandwidth_bytes_per_s`` is None where the messages do not tell it within a
    factor of two: they are all large, or all small. ``line`` holds both as fitted, for ``time_s``.
    """

    collective: Collective
    place: SweptPlace
    latency_s: Estimate | None
    algorithm_bandwidth_bytes_per_s: Estimate | None  # of messages so large that latency is nothing
    line: tuple[float, float]  # s, s for each byte
    residuals: tuple[Residual, ...]  # of each message, the smallest first
    by_cores: tuple[int, ...] = ()  # messages, in bytes, whose time the cores decide and not the link

    @property
    def bus_bandwidth_bytes_per_s(self) -> Estimate | None:
        """What compares with the link's rate; None where the bandwidth is not known."""
        bandwidth = self.algorithm_bandwidth_bytes_per_s
        return bandwidth and bandwidth.scaled(bus_factor(self.collective, self.place.world_size))

    @property
    def typical_error(self) -> float:
        """The median of the residuals' sizes, relative."""
        return median(abs(each.relative) for each in self.residuals)

    @property
    def does_not_hold(self) -> tuple[Residual, ...]:
        """The messages that are far off the line, and by more than their noise."""
        far = (each for each in self.residuals if abs(each.relative) > HOLDS_WITHIN)
        return tuple(each for each in far if each.is_certain)

    def cores_decide(self, message_bytes: float) -> bool:
        """Whether they do for the nearest message that was measured."""
        sizes = [each.message_bytes for each in self.residuals]
        nearest = min(sizes, key=lambda size: abs(math.log(size / message_bytes)), default=None)
        return nearest in self.by_cores

    def time_s(self, message_bytes: float) -> float:
        """What the line says of a message, in s."""
        latency_s, s_per_byte = self.line
        return latency_s + message_bytes * s_per_byte


class LinkKey(NamedTuple):
    """What is asked of a sweep: the line of which collective, over how many devices on how many nodes."""

    collective: Collective
    world_size: int
    nodes: int | None


def link(records: Iterable[TrialRecord]) -> dict[LinkKey, Link]:
    """The line of each collective that a sweep has measured, for predictions and diagnoses.

    Where two placements have equally many nodes, the one that was asked for first.
    """
    found: dict[LinkKey, Link] = {}
    for each in links(messages(records)):
        found.setdefault(LinkKey(each.collective, each.place.world_size, each.place.nodes), each)
    return found


def links(found: Sequence[Message]) -> tuple[Link, ...]:
    """The line of each collective at each place that has three messages or more."""
    places = dict.fromkeys(each.place for each in found)
    groups = [of_collective(found, place, collective) for place in places for collective in COLLECTIVES]
    return tuple(_fitted(group) for group in groups if len(group) >= FEWEST_MESSAGES)


def _fitted(group: Sequence[Message]) -> Link:
    sizes = np.array([each.message_bytes for each in group], dtype=np.float64)
    times = np.array([each.time_s.value for each in group])
    logs = _least_squares(sizes, times)
    line_s = np.exp(_log_line(logs, sizes))
    residuals = np.log(times / line_s)
    halves = _half_widths(
        _derivatives(logs, sizes), residuals, np.array([each.time_s.log_half_width for each in group])
    )
    latency_s, s_per_byte = (
        of_log(float(log), float(half), min(each.time_s.n for each in group))
        if half <= KNOWN_WITHIN
        else None
        for log, half in zip(logs, halves, strict=True)
    )
    return Link(
        group[0].collective,
        group[0].place,
        latency_s,
        inverse(s_per_byte) if s_per_byte else None,
        (float(np.exp(logs[0])), float(np.exp(logs[1]))),
        tuple(
            Residual(each.message_bytes, each.time_s.value / value_s - 1, each.time_s.excludes(value_s))
            for each, value_s in zip(group, line_s.tolist(), strict=True)
        ),
        tuple(each.message_bytes for each in group if each.cores_decide),
    )


def _least_squares(sizes: NDArray[np.float64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the latency (s) and of the time for a byte (s), shape ``(2,)``.

    Levenberg's and Marquardt's damped steps, from the shortest time and the best rate of all messages.
    Neither parameter goes where no message could show it.
    """
    least = np.log(LEAST_SHARE * np.array([times.min(), (times / sizes).min()]))
    logs = np.log(np.array([times.min(), (times / sizes).min()]))
    damping, error = 1e-3, _squares(logs, sizes, times)
    for _ in range(ITERATIONS):
        jacobian, rest = _derivatives(logs, sizes), np.log(times) - _log_line(logs, sizes)
        step = np.linalg.solve(jacobian.T @ jacobian + damping * np.eye(2), jacobian.T @ rest)
        tried = np.maximum(logs + step, least)
        tried_error = _squares(tried, sizes, times)
        if tried_error > error:
            damping *= 10
            continue
        moved, logs, error, damping = np.abs(tried - logs).max(), tried, tried_error, damping / 10
        if moved < CONVERGED:
            break
    return np.asarray(logs, dtype=np.float64)


def _log_line(logs: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    latency_s, s_per_byte = np.exp(logs)
    return np.asarray(np.log(latency_s + sizes * s_per_byte))


def _squares(logs: NDArray[np.float64], sizes: NDArray[np.float64], times: NDArray[np.float64]) -> float:
    return float(((np.log(times) - _log_line(logs, sizes)) ** 2).sum())


def _derivatives(logs: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the line's logarithm, shape ``(messages, 2)``: the shares of latency and of transfer in its time."""
    latency_s, s_per_byte = np.exp(logs)
    share = latency_s / (latency_s + sizes * s_per_byte)
    return np.column_stack([share, 1 - share])


def _half_widths(
    jacobian: NDArray[np.float64], residuals: NDArray[np.float64], of_messages: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of the 95% intervals of both logarithms, shape ``(2,)``; infinite where the messages cannot tell."""
    information = jacobian.T @ jacobian
    if np.linalg.matrix_rank(information) < 2:
        return np.full(2, np.inf)
    covariance, degrees = np.linalg.inv(information), len(residuals) - 2
    variance = float((residuals**2).sum()) / degrees
    by_residuals = t_quantile(degrees) * np.sqrt(variance * covariance.diagonal())
    by_messages = np.sqrt(((covariance @ jacobian.T) ** 2) @ (of_messages**2))
    return np.asarray(np.maximum(by_residuals, by_messages), dtype=np.float64)
