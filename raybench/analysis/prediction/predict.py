"""From measured steps to steps on other numbers of devices.

raybench's own model stands beside Amdahl's law, which everyone knows, and beside the naive answer: the step
time stays as at the largest measured world size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.prediction.amdahl import AmdahlFit, fit_amdahl
from raybench.analysis.prediction.fitting import fitted
from raybench.analysis.prediction.held_out import HeldOut, chosen
from raybench.analysis.prediction.joint import Joint
from raybench.analysis.prediction.points import MeasuredPoint, Prediction, Question, Shape
from raybench.analysis.prediction.posterior import Posterior
from raybench.analysis.prediction.refusals import Reach
from raybench.analysis.prediction.sweep import swept_lines
from raybench.errors import RequestError


@dataclass(frozen=True)
class Fitted:
    """What the measured points say; asks nothing further of them."""

    points: tuple[MeasuredPoint, ...]
    amdahl: AmdahlFit | None  # None where no batch was measured at two world sizes
    variants: tuple[Posterior, ...]  # of the model, chosen by ``held_out``; their mean is the answer
    held_out: HeldOut | None  # None where too few world sizes were measured to hold any out
    reach: Reach

    @property
    def held_out_error(self) -> float | None:
        """Mean absolute relative error at held-out larger world sizes."""
        return self.held_out.error if self.held_out else None

    def compute_s(self, batch_size: int) -> Estimate:
        """The step of one device without any other, as a function of the batch, in s."""
        question = Question(Shape((1,)), batch_size)
        return Joint.of(self.variants, [question], self.reach.largest).one_device(len(self.points))[0]

    def predict(self, questions: Sequence[Question]) -> list[Prediction]:
        """An answer to each question, in order; what the points cannot say is refused, with the reason."""
        if not questions:
            return []
        joint = Joint.of(self.variants, questions, self.reach.largest)
        steps, efficiencies = joint.steps(len(self.points)), joint.efficiencies(len(self.points))
        return [self._answer(*each) for each in zip(questions, steps, efficiencies, strict=True)]

    def _answer(self, question: Question, step: Estimate, efficiency: Estimate) -> Prediction:
        naive = naive_step_time_s(self.points, question.batch_size)
        amdahl = self.amdahl.step_time_s(question) if self.amdahl else None
        refused = self.reach.refusal(question)
        if refused:
            return Prediction(question, None, None, naive, amdahl, refused)
        return Prediction(question, step, efficiency, naive, amdahl)


def fit(
    points: Sequence[MeasuredPoint],
    link: Mapping[LinkKey, Link] | None = None,
    scaling: Literal["weak", "strong"] | None = None,
) -> Fitted:
    """The model fitted to all points together; ``link`` is what a sweep of collectives says of the network.

    ``scaling``, in which the points were measured, says which batches Amdahl's law compares.

    Raises ``RequestError`` where no point has a positive step time and batch. Too few world sizes are no
    error: the predictions then say why they are refused.
    """
    usable = tuple(each for each in points if _is_usable(each))
    if not usable:
        raise RequestError(
            f"predict: a step time and a batch above 0 are needed (received {len(points)} without)"
        )
    swept = swept_lines(link)
    names, held_out = chosen(usable, swept)
    variants = tuple(fitted(usable, name, swept) for name in names)
    return Fitted(usable, fit_amdahl(usable, scaling), variants, held_out, Reach.of(usable, swept))


def naive_step_time_s(points: Sequence[MeasuredPoint], batch_size: int) -> float | None:
    """The mean step at the largest world size at which the batch was measured; None where it was not."""
    same = [each for each in points if each.batch_size == batch_size]
    if not same:
        return None
    largest = max(each.shape.world_size for each in same)
    return float(np.mean([each.step_time_s for each in same if each.shape.world_size == largest]))


def _is_usable(point: MeasuredPoint) -> bool:
    return 0 < point.step_time_s < math.inf and point.batch_size > 0 and point.shape.world_size > 0
