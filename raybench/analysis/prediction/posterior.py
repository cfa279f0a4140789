"""The fitted model: its most probable parameters and effects, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from raybench.analysis.prediction.effects import Asked, Groups, Indices, Kind
from raybench.analysis.prediction.parameters import MEANS
from raybench.analysis.prediction.places import Places
from raybench.analysis.prediction.step_model import Parts, Units, Variant, parts

Floats = NDArray[np.float64]
NUM_PARAMETERS = len(MEANS)
STEP = 1e-5  # of a parameter, for a derivative


@dataclass(frozen=True)
class Slopes:
    """The model at some rows, and its derivatives.

    A row depends on all parameters and on one effect of each kind: ``matrix`` puts these in their columns.
    """

    parts: Parts
    step: Floats  # of the step's logarithm by each parameter, shape (rows, parameters)
    one_device: Floats
    told_compute: Floats
    columns: Indices  # of the effects, shape (rows, kinds); -1 for none

    def matrix(self, of_parameters: Floats, of_effects: Floats, num_effects: int) -> Floats:
        """Derivatives by all values, shape ``(rows, parameters + effects)``."""
        found = np.zeros((len(of_parameters), NUM_PARAMETERS + num_effects + 1))  # the last for those without
        found[:, :NUM_PARAMETERS] = of_parameters
        rows = np.arange(len(of_parameters))[:, None]
        found[rows, np.where(self.columns < 0, -1, NUM_PARAMETERS + self.columns)] = of_effects
        return found[:, :-1]

    @property
    def step_by_effects(self) -> Floats:
        """Derivatives of the step's logarithm by each kind of effect, shape ``(rows, kinds)``."""
        by_communication = 1 - self.parts.by_compute
        return np.column_stack([self.parts.by_compute, by_communication, by_communication])

    @property
    def compute_by_effects(self) -> Floats:
        """Derivatives of compute's logarithm, told apart or on one device."""
        ones = np.ones(len(self.columns))
        return np.column_stack([ones, 0 * ones, 0 * ones])


def slopes(values: Floats, places: Places, units: Units, variant: Variant, columns: Indices) -> Slopes:
    """The model and its derivatives at ``values``: parameters, then effects."""
    effects = np.append(values[NUM_PARAMETERS:], 0.0)[columns]  # index -1: none
    moved = values[:NUM_PARAMETERS] + STEP * np.vstack([np.zeros(NUM_PARAMETERS), np.eye(NUM_PARAMETERS)])
    found = parts(moved, places, units, variant, effects[:, 0], effects[:, 1] + effects[:, 2])

    def derivative(of: Floats) -> Floats:
        return np.asarray((np.broadcast_to(of, (len(moved), len(places)))[1:] - of[0]).T / STEP)

    center = Parts(found.log_one_device[0], found.log_told_compute[0], found.log_step[0], found.by_compute[0])
    return Slopes(
        center,
        derivative(found.log_step),
        derivative(found.log_one_device),
        derivative(found.log_told_compute),
        columns,
    )


@dataclass(frozen=True)
class Posterior:
    """One variant of the model, fitted."""

    variant: Variant
    units: Units
    groups: Groups
    values: Floats  # parameters, then effects, shape (values,)
    covariance: Floats
    noise: float  # of a repeat: standard deviation of a logarithm
    sizes: dict[Kind, float]  # standard deviation of each kind of effect

    def knowing(self, asked: Asked) -> Posterior:
        """The same, with effects for all groups of ``asked``: those never measured are 0, give or take."""
        groups = self.groups.with_those_of(asked)
        new = len(groups) - len(self.groups)
        if new == 0:
            return self
        total = len(self.values) + new
        covariance = np.zeros((total, total))
        covariance[:-new, :-new] = self.covariance
        known = np.arange(total - new, total)
        covariance[known, known] = groups.deviations(self.sizes)[-new:] ** 2
        return replace(
            self, groups=groups, values=np.append(self.values, np.zeros(new)), covariance=covariance
        )

    def slopes(self, asked: Asked) -> Slopes:
        """The model where it is asked; each group must be known."""
        return slopes(self.values, Places.of(asked), self.units, self.variant, self.groups.columns(asked))
