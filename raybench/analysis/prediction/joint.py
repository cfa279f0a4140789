"""What all variants together say of several shapes at once: values, and how their errors hang together.

The variance of a prediction's logarithm has four parts: that of the parameters and of the effects that were
never measured (so it depends on what was); a drift away from the model with every doubling beyond the largest
measured world size; the disagreement of the variants; the noise of one more measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.estimates.statistics import Estimate, of_log, t_quantile
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.points import Question
from raybench.analysis.prediction.posterior import Posterior

Floats = NDArray[np.float64]
DRIFT = 0.05  # standard deviation of a logarithm, for each doubling beyond what was measured
LEAST_NOISE = 0.03  # of another measurement, however well those within one run repeat
DEGREES = 8.0  # of the quantile: noise and sizes of effects are themselves estimates


@dataclass(frozen=True)
class Joint:
    """Logarithms at some questions, shape ``(variants, questions)``, and their variances.

    Of ``log_step``, and of ``log_efficiency``: one device's step over it. Noise is not in the variances.
    """

    log_step: Floats
    log_efficiency: Floats
    step_variance: Floats  # (variants, questions)
    efficiency_variance: Floats  # (variants, questions)
    one_device_variance: Floats
    noise: Floats  # (variants,)

    @staticmethod
    def of(variants: Sequence[Posterior], questions: Sequence[Question], largest: int) -> Joint:
        """The answers of all variants; ``largest`` is the largest measured world size."""
        places = Places.of(questions)
        drift = DRIFT * np.maximum(0.0, np.log2(places.world_size / largest))
        found = []
        for variant in variants:
            known = variant.knowing(questions)
            at = known.slopes(questions)
            step = at.matrix(at.step, at.step_by_effects, len(known.groups))
            one = at.matrix(at.one_device, at.compute_by_effects, len(known.groups))
            both = one - step
            found.append(
                (
                    at.parts.log_step,
                    at.parts.log_one_device - at.parts.log_step,
                    ((step @ known.covariance) * step).sum(axis=1) + drift**2,
                    ((both @ known.covariance) * both).sum(axis=1) + drift**2,
                    ((one @ known.covariance) * one).sum(axis=1),
                    max(known.noise, LEAST_NOISE),
                )
            )
        return Joint(*(np.array(each) for each in zip(*found, strict=True)))

    def steps(self, num_points: int) -> list[Estimate]:
        """The step times, in s, with intervals for a new measurement.

        No step is shorter than one device's: the interval ends where that one's does.
        """
        variance = self.step_variance + self.noise[:, None] ** 2
        pairs = zip(_estimates(self.log_step, variance, num_points), self._least_s(), strict=True)
        return [replace(step, low=max(step.low, min(least_s, step.value))) for step, least_s in pairs]

    def efficiencies(self, num_points: int) -> list[Estimate]:
        """One device's step over the step, with intervals for a new measurement of the step.

        None is above 1 but for noise: the interval ends there.
        """
        noise = self.noise[:, None] ** 2
        found = _estimates(self.log_efficiency, self.efficiency_variance + noise, num_points)
        most = float(np.exp(t_quantile(DEGREES) * noise.mean() ** 0.5))
        return [replace(each, high=min(each.high, max(most, each.value))) for each in found]

    def one_device(self, num_points: int) -> list[Estimate]:
        """One device's step in s, with the interval of the step itself, not of a measurement."""
        return _estimates(self.log_step + self.log_efficiency, self.one_device_variance, num_points)

    def _least_s(self) -> list[float]:
        """The shortest that another measurement of one device may be."""
        variance = self.one_device_variance + self.noise[:, None] ** 2
        return [each.low for each in _estimates(self.log_step + self.log_efficiency, variance, 0)]


def _estimates(logs: Floats, variances: Floats, num_points: int) -> list[Estimate]:
    """The variants' mean, and the interval that holds their disagreement too."""
    halves = t_quantile(DEGREES) * np.sqrt(variances.mean(axis=0) + logs.var(axis=0))
    pairs = zip(logs.mean(axis=0).tolist(), halves.tolist(), strict=True)
    return [of_log(log, half, num_points) for log, half in pairs]
