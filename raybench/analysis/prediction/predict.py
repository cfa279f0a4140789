"""From measured steps to steps on other numbers of devices: raybench's own model, Amdahl's law, the naive answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.estimates.statistics import Estimate, of_log, t_quantile
from raybench.analysis.prediction.amdahl import AmdahlFit, fit_amdahl
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.points import MeasuredPoint, Prediction, Question, Shape
from raybench.analysis.prediction.posterior import Posterior, fitted
from raybench.analysis.prediction.step_model import ALGORITHMS
from raybench.analysis.prediction.sweep import swept_lines
from raybench.errors import RequestError

Floats = NDArray[np.float64]
FARTHEST = 8  # times the largest measured world size
FEWEST_SIZES = 3
GROWTH = 0.05
DOF = 6


@dataclass(frozen=True)
class Fitted:
    """What the measured points say; asks nothing further of them."""

    points: tuple[MeasuredPoint, ...]
    amdahl: AmdahlFit | None
    variants: tuple[Posterior, ...]
    weights: Floats
    held_out_error: float | None = None  # mean absolute relative, at larger world sizes than fitted

    def compute_s(self, batch_size: int) -> Estimate:
        """The step of one device without any other, as a function of the batch, in s."""
        log, half = self._spread([Question(Shape((1,)), batch_size)], 0.0)
        return of_log(float(log[0]), float(half[0]), len(self.points))

    def predict(self, questions: Sequence[Question]) -> list[Prediction]:
        """An answer to each question, in their order."""
        if not questions:
            return []
        logs, halves = self._spread(questions, 1.0)
        steps = [of_log(*each, len(self.points)) for each in zip(logs.tolist(), halves.tolist(), strict=True)]
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

    def _spread(self, questions: Sequence[Question], noise: float) -> tuple[Floats, Floats]:
        found = [self._of_variant(each, questions, noise) for each in self.variants]
        logs, variances = np.array([each[0] for each in found]), np.array([each[1] for each in found])
        center = self.weights @ logs
        variance = self.weights @ (variances + (logs - center) ** 2)
        return center, t_quantile(DOF) * np.sqrt(variance)

    def _of_variant(self, post: Posterior, questions: Sequence[Question], noise: float) -> tuple[Floats, Floats]:
        places = Places.of(questions)
        groups = post.grouping.columns(
            [each.batch_size for each in questions], [each.shape.workers for each in questions]
        )
        found, slopes, _ = post.slopes(places, groups)
        variance = ((slopes @ post.covariance) * slopes).sum(axis=1)
        largest = max(each.shape.world_size for each in self.points)
        beyond = np.maximum(0, np.log2(places.world_size / largest))
        several = places.world_size > 1
        communication = (
            post.effects["shape"] ** 2 * (groups["shape"] < 0)
            + post.effects["nodes"] ** 2 * (groups["nodes"] < 0) * (places.nodes > 1)
        )
        variance += several * communication * found.by_communication**2 + (GROWTH * beyond) ** 2
        variance += (groups["batch"] < 0) * (post.effects["batch"] * found.by_compute) ** 2
        return found.log_step, variance + noise * post.noise**2


def fit(points: Sequence[MeasuredPoint], link: Mapping[LinkKey, Link] | None = None) -> Fitted:
    """The model fitted to all points together; ``link`` is what a sweep of collectives says of the network.

    Raises ``RequestError`` where no point has a positive step time and batch. Too few world sizes are no error:
    the predictions then say why they are refused.
    """
    usable = tuple(each for each in points if each.step_time_s > 0 and math.isfinite(each.step_time_s))
    if not usable:
        raise RequestError("no measured step time to predict from")
    swept = swept_lines(link)
    variants = tuple(fitted(usable, algorithm, swept) for algorithm in ALGORITHMS)
    return Fitted(usable, fit_amdahl(usable), variants, np.full(len(variants), 1 / len(variants)))


def naive_step_time_s(points: Sequence[MeasuredPoint], batch_size: int) -> float | None:
    """The mean step at the largest world size at which the batch was measured; None where it was not."""
    same = [each for each in points if each.batch_size == batch_size]
    if not same:
        return None
    largest = max(each.shape.world_size for each in same)
    return float(np.mean([each.step_time_s for each in same if each.shape.world_size == largest]))
