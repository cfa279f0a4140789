"""From measured steps to steps on other numbers of devices: raybench's own model, Amdahl's law, the naive answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.estimates.statistics import Estimate, of_log
from raybench.analysis.prediction.amdahl import AmdahlFit, fit_amdahl
from raybench.analysis.prediction.points import MeasuredPoint, Prediction, Question, Shape
from raybench.errors import RequestError

Floats = NDArray[np.float64]
FARTHEST = 8  # times the largest measured world size
FEWEST_SIZES = 3
REPEAT_NOISE = 0.05


@dataclass(frozen=True)
class Fitted:
    """What the measured points say; asks nothing further of them."""

    points: tuple[MeasuredPoint, ...]
    amdahl: AmdahlFit | None
    logs: Floats
    covariance: Floats
    held_out_error: float | None = None  # mean absolute relative, at larger world sizes than fitted

    def compute_s(self, batch_size: int) -> Estimate:
        """The step of one device without any other, as a function of the batch, in s."""
        shapes = _Shapes.of([Question(Shape((1,)), batch_size)])
        return self._estimates(shapes, 0.0)[0]

    def predict(self, questions: Sequence[Question]) -> list[Prediction]:
        """An answer to each question, in their order."""
        if not questions:
            return []
        steps = self._estimates(_Shapes.of(questions), REPEAT_NOISE)
        return [self._answer(question, step) for question, step in zip(questions, steps, strict=True)]

    def _answer(self, question: Question, step: Estimate) -> Prediction:
        naive = naive_step_time_s(self.points, question.batch_size)
        amdahl = self.amdahl.step_time_s(question) if self.amdahl else None
        refused = self._refusal(question)
        if refused:
            return Prediction(question, None, None, naive, amdahl, refused)
        base_s = self.compute_s(question.batch_size).value
        efficiency = Estimate(base_s / step.value, base_s / step.high, base_s / step.low, step.n)
        return Prediction(question, step, efficiency, naive, amdahl)

    def _refusal(self, question: Question) -> str:
        sizes = {point.shape.world_size for point in self.points}
        if len(sizes) < FEWEST_SIZES:
            return f"{len(sizes)} world size(s) measured; a prediction needs {FEWEST_SIZES}"
        if question.shape.world_size > FARTHEST * max(sizes):
            return f"more than {FARTHEST} times the largest measured world size ({max(sizes)})"
        if question.shape.nodes > 1 and all(point.shape.nodes == 1 for point in self.points):
            return "all points are from one node: the network between nodes was never crossed"
        return ""

    def _estimates(self, shapes: _Shapes, noise: float) -> list[Estimate]:
        center = _log_step_s(self.logs, shapes)
        slopes = np.column_stack(
            [
                (_log_step_s(self.logs + step, shapes) - center) / 1e-5
                for step in 1e-5 * np.eye(len(self.logs))
            ]
        )
        halves = 1.96 * np.sqrt(np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes) + noise**2)
        pairs = zip(center.tolist(), halves.tolist(), strict=True)
        return [of_log(log, half, len(self.points)) for log, half in pairs]


def fit(points: Sequence[MeasuredPoint], link: Mapping[LinkKey, Link] | None = None) -> Fitted:
    """The model fitted to all points together; ``link`` is what a sweep of collectives says of the network.

    Raises ``RequestError`` where no point has a positive step time and batch. Too few world sizes are no error:
    the predictions then say why they are refused.
    """
    usable = tuple(each for each in points if each.step_time_s > 0 and math.isfinite(each.step_time_s))
    if not usable:
        raise RequestError("no measured step time to predict from")
    shapes = _Shapes.of([Question(each.shape, each.batch_size) for each in usable])
    logs_s = np.log([each.step_time_s for each in usable])
    least = float(np.exp(logs_s.min()))
    prior = np.log(
        [0.3 * least, 0.5 * least / shapes.batch.min(), 1e-3, 0.05 * least, 1e-3, 0.3 * least, 0.03]
    )
    width = np.array([2.0, 2.0, 1.5, 2.5, 1.5, 2.5, 1.0])

    def errors(logs: Floats) -> Floats:
        step = _log_step_s(logs, shapes)
        return np.concatenate([(logs_s - step) / 0.07, (logs - prior) / width])

    found = least_squares(errors, prior, loss="soft_l1")
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    return Fitted(usable, fit_amdahl(usable), found.x, covariance)


def naive_step_time_s(points: Sequence[MeasuredPoint], batch_size: int) -> float | None:
    """The mean step at the largest world size at which the batch was measured; None where it was not."""
    same = [each for each in points if each.batch_size == batch_size]
    if not same:
        return None
    largest = max(each.shape.world_size for each in same)
    return float(np.mean([each.step_time_s for each in same if each.shape.world_size == largest]))


@dataclass(frozen=True)
class _Shapes:
    batch: Floats
    world_size: Floats
    nodes: Floats
    most: Floats

    @staticmethod
    def of(questions: Sequence[Question]) -> _Shapes:
        shapes = [each.shape for each in questions]
        return _Shapes(
            np.array([each.batch_size for each in questions], dtype=np.float64),
            np.array([each.world_size for each in shapes], dtype=np.float64),
            np.array([each.nodes for each in shapes], dtype=np.float64),
            np.array([max(each.workers) for each in shapes], dtype=np.float64),
        )


def _log_step_s(logs: Floats, shapes: _Shapes) -> Floats:
    fixed_s, sample_s, hop_s, local_s, far_hop_s, far_s, spread = np.exp(logs)
    n, across = shapes.world_size, shapes.nodes > 1
    slowest = 1 + spread * np.sqrt(2 * np.log(n))
    compute = (fixed_s + sample_s * shapes.batch) * slowest
    transfers = 2 * (n - 1) / n * np.where(across, far_s, local_s)
    hops = 2 * (n - shapes.nodes) * hop_s + np.where(across, 2 * shapes.nodes * far_hop_s, 0.0)
    communication = transfers + hops
    exposed = np.logaddexp(0.0, 4 * (communication / compute - 0.5)) / 4 * compute
    floor = np.logaddexp(0.0, -2.0) / 4 * compute
    return np.asarray(np.log(compute + np.maximum(exposed - floor, 0.0)), dtype=np.float64)
