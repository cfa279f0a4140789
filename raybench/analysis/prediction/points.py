"""What a prediction is made of, and what it says: values, whoever measured and whoever prints them."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.estimates.statistics import Estimate


@dataclass(frozen=True, order=True)
class Shape:
    """How many workers stand on each node, nodes without any left out: ``(4, 4)`` is two nodes of four."""

    workers: tuple[int, ...]

    @property
    def world_size(self) -> int:
        """Workers on all nodes."""
        return sum(self.workers)

    @property
    def nodes(self) -> int:
        """Nodes with a worker."""
        return len(self.workers)

    @staticmethod
    def even(world_size: int, nodes: int) -> Shape:
        """As evenly as possible, the fuller nodes first."""
        each, more = divmod(world_size, nodes)
        return Shape(tuple(each + (index < more) for index in range(nodes)))


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured step: the mean over steps of the slowest rank.

    ``compute_s`` is that of the bare step on all devices at once, where it was measured apart (``crowd``,
    or the step less its communication); ``log_error`` is the standard error of the logarithm of
    ``step_time_s``, None where nobody said. ``global_batch_size``: that of strong scaling as it was asked
    for, which devices may divide unevenly.
    """

    shape: Shape
    batch_size: int  # per device
    step_time_s: float
    compute_s: float | None = None
    log_error: float | None = None
    global_batch_size: int | None = None


@dataclass(frozen=True)
class Question:
    """What is to be predicted: a step of this batch per device on this shape.

    ``global_batch_size``: under strong scaling what all devices divide, each in ``passes`` of ``batch_size``.
    """

    shape: Shape
    batch_size: int
    global_batch_size: int | None = None
    passes: int = 1


@dataclass(frozen=True)
class Prediction:
    """The answer to one question, or why there is none.

    ``step_time_s`` and ``efficiency`` have 95% intervals for a new measurement; efficiency is the
    throughput for each device over that of one device with the same batch. ``naive_step_time_s`` says that
    the step stays as at the largest measured world size; ``amdahl_step_time_s`` follows Amdahl's law. Where
    ``refused`` holds a reason the predicted values are None.
    """

    question: Question
    step_time_s: Estimate | None
    efficiency: Estimate | None
    naive_step_time_s: float | None
    amdahl_step_time_s: float | None
    refused: str = ""
