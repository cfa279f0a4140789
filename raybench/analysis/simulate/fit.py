"""A small model of a data-parallel step, fitted to measured points.

A step of n devices on m nodes, at most w on one, lasts T = (C^p + M^p)^(1/p):

    C = (fixed + each * batch) (1 + spread z(n))           compute of the slowest of n devices
    M = crossed [m > 1] + devices log2 n + local log2 w    what communication adds

The linear terms are those of Ernest (Venkataraman et al. 2016, NSDI, equation 1), with a step where the
network between nodes is crossed, and a term for what devices of one node share. A hop costs latency plus
bytes over rate (Hockney 1994, Parallel Computing 20); the bytes of a training do not change with n, so one
term holds both. z(n) is the largest of n standard normal values. p joins the two as in AdaptDL (Qiao et al.
2021, "Pollux", OSDI, equation 11): 1 is no overlap, infinity hides all that fits.

No term is negative, and each has a normal prior, so that three world sizes are enough: without it a term that
few points determine grows without limit where it is extrapolated. Residuals are of logarithms, so that points
count by their relative error, under the soft l1 loss, so that an outlier counts little.

Points on exactly two nodes are left out where three larger numbers of nodes are known: all traffic then has
one pair of links, which made two nodes slower than three on the traces of Pollux.

The priors are those with the least errors on studies that other laws generate. ``benchmarks/prediction.py``
compares a handful of forms by leaving out whole models of the traces; none has a term for devices that slow
all others down (Gunther's law), whose growth such a fit underestimates.

The variance of a prediction's logarithm has these parts: that of the fitted values; the error of any form
where it is extrapolated, which grows with every doubling beyond the largest measured world size, and for a
batch that was not measured; the noise of one more measurement.

Next to it stands a simpler answer: the step at the largest measured world size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtri

from raybench.analysis.collectives import Link
from raybench.analysis.simulate.steps import Expected, Measurement, Question, Refusal, Shape
from raybench.analysis.stats.statistics import Estimate, of_log, t_quantile
from raybench.spec.network import all_reduce_s

Floats = NDArray[np.float64]
Hop = Literal["crossed", "devices", "local", "nodes"]


class Form(NamedTuple):
    """What is fitted. Others than the default are there for the benchmark that chose it."""

    hops: tuple[Hop, ...] = ("crossed", "devices", "local")
    overlaps: bool = True  # else compute and communication add up
    pairs: bool = False  # whether two nodes count where three larger numbers of nodes are known


FORM = Form()
# Standard deviations of the priors. Hops, in the shortest steps on the most devices:
HOPS: dict[Hop, float] = {"crossed": 1.0, "devices": 0.1, "local": 0.1, "nodes": 0.1}
SPREAD = 0.025  # devices of one kind differ by some percent (Sinha et al. 2022, "Not all GPUs ...", SC)
OVERLAP, OVERLAP_SPREAD, MOST_OVERLAP = 1.5, 0.3, 12.0  # p, deviation of its logarithm, the largest
COMPUTE = 0.4  # of the most that each part can be
NOISE, NOISE_WEIGHT = 0.05, 10.0  # of a repeat: 3 to 8% are usual; counts as so many residuals
BARE_NOISE = 0.08  # of a compute that was measured separately: it may be one rank's, or the slowest's
OUTLIER = 2.0  # standard deviations, from which on a residual counts linearly
FEWEST_NODES = 3  # numbers of nodes above two, with which points on two nodes are left out
SWEEP_ERROR = 0.2  # of a logarithm: a training's messages are not alone on the network, as a sweep's are
ANY = 10.0  # deviation of a logarithm of which nothing is known
BUCKET_BYTES = 25 * 2**20  # DDP's buckets (Li et al. 2020, "PyTorch Distributed", VLDB 13)
LEAST = 1e-9  # of the same step: nothing, where a logarithm is taken
ROUNDS, STEP = 2, 1e-6


@dataclass(frozen=True)
class Places:
    """One row for each point or question: every column has shape ``(rows,)``."""

    batch: Floats  # per device, of all passes of a step
    world_size: Floats
    nodes: Floats
    most: Floats  # workers on the fullest node

    @staticmethod
    def of(asked: Sequence[Question]) -> Places:
        """The columns of questions."""
        rows = [
            (x.batch_size * x.passes, x.shape.world_size, x.shape.nodes, max(x.shape.workers)) for x in asked
        ]
        batch, world_size, nodes, most = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        return Places(batch, world_size, nodes, most)

    def hops(self, names: Sequence[Hop]) -> Floats:
        """What each term is multiplied by, shape ``(rows, terms)``."""
        terms: dict[Hop, Floats] = {
            "crossed": np.where(self.nodes > 1, 1.0, 0.0),
            "devices": np.log2(self.world_size),
            "local": np.log2(self.most),
            "nodes": np.log2(self.nodes),
        }
        return np.column_stack([terms[name] for name in names])


def expected_maximum(count: Floats) -> Floats:
    """The largest of so many standard normal values, in the mean: 0 for one, 1.03 for 4, 2.35 for 64.

    Blom (1958), "Statistical estimates and transformed beta-variables": the quantile at (n - 3/8) / (n +
    1/4), within 5% of the exact values.
    """
    return np.asarray(ndtri((count - 0.375) / (count + 0.25)), dtype=np.float64)


@dataclass(frozen=True)
class Sweep:
    """How long the all-reduce of one bucket takes at some places, by a sweep of collectives."""

    places: Places
    log_time_s: Floats

    @staticmethod
    def of(links: Sequence[Link]) -> Sweep | None:
        """The all-reduces on two devices or more whose nodes are known; None without any."""
        found = {
            Shape.even(each.place.world_size, each.place.nodes): all_reduce_s((each.line,), BUCKET_BYTES)
            for each in reversed(links)  # of two placements with equally many nodes the first counts
            if each.collective == "all_reduce" and each.place.world_size > 1 and each.place.nodes is not None
        }
        if not found:
            return None
        return Sweep(Places.of([Question(shape, 1) for shape in found]), np.log(list(found.values())))


@dataclass(frozen=True)
class Model:
    """The form in a study's own units, so that one of microseconds is fitted as one of minutes.

    Values: fixed, each, spread, log p, the hops, and with a sweep how many of its times a step takes (log).
    """

    form: Form
    unit_s: float  # the shortest step on the most devices
    unit_batch: float  # the smallest

    def log_compute(self, values: Floats, at: Places, slowest: float = 1.0) -> Floats:
        """Of the slowest device; with ``slowest`` 0 of the mean one."""
        one = values[0] + values[1] * at.batch / self.unit_batch
        slower = 1 + slowest * values[2] * expected_maximum(at.world_size)
        return np.asarray(np.log(self.unit_s * (one * slower + LEAST)))

    def log_communication(self, values: Floats, at: Places) -> Floats:
        """Before any of it is hidden."""
        hops = at.hops(self.form.hops) @ values[4 : 4 + len(self.form.hops)]
        return np.asarray(np.log(self.unit_s * (hops + LEAST)))

    def log_step(self, values: Floats, at: Places) -> Floats:
        """The logarithm of the step in s."""
        p = math.exp(values[3]) if self.form.overlaps else 1.0
        both = p * self.log_compute(values, at), p * self.log_communication(values, at)
        return np.asarray(np.logaddexp(*both) / p)


class _Posterior(NamedTuple):
    """The most probable values, with the covariance of the linear approximation."""

    model: Model
    values: Floats
    covariance: Floats
    noise: float  # of a repeat: standard deviation of a logarithm


def _posterior(points: Sequence[Measurement], sweep: Sweep | None, form: Form) -> _Posterior:
    """Every step time and batch must be above 0.

    The noise of a repeat is learned: the residuals of a fit with the usual noise give that of the next.
    """
    kept = points if form.pairs else without_pairs(points)
    at = Places.of([each.question for each in kept])
    log_step = np.log([each.step_time_s.value for each in kept])
    errors = np.array([each.log_error for each in kept])
    bare = [each for each in kept if each.compute_s and each.compute_s > 0 and each.shape.world_size > 1]
    bare_at = Places.of([each.question for each in bare])
    log_bare = np.log([each.compute_s or 0.0 for each in bare])
    on_most = at.world_size == at.world_size.max()
    model = Model(form, float(np.exp(log_step[on_most].min())), float(at.batch.min()))
    steps = np.exp(log_step) / model.unit_s  # none is shorter than its fixed part, or than its batch's
    most = float(steps.min()), float((steps / at.batch).min()) * model.unit_batch
    mean, deviation, start, low, high = np.array(
        [
            *(_Prior(0.0, COMPUTE * each, each / 2) for each in most),
            _Prior(0.0, SPREAD, SPREAD),
            _Prior(math.log(OVERLAP), OVERLAP_SPREAD, math.log(OVERLAP), high=math.log(MOST_OVERLAP)),
            *(_Prior(0.0, HOPS[hop], 0.1) for hop in form.hops),
            *([_Prior(0.0, ANY, 0.0, low=-math.inf)] if sweep is not None else []),
        ]
    ).T

    def residuals(values: Floats, noise: float) -> Floats:
        found = [
            (model.log_step(values, at) - log_step) / np.hypot(noise, errors),
            (values - mean) / deviation,
            (model.log_compute(values, bare_at, slowest=0.5) - log_bare) / BARE_NOISE,
        ]
        if sweep is not None:  # only ratios between places: bytes and buckets are not known
            times = model.log_communication(values, sweep.places) - sweep.log_time_s
            found.append((times - values[-1]) / SWEEP_ERROR)
        return np.concatenate(found)

    noise = NOISE
    for _ in range(ROUNDS):
        found = least_squares(
            residuals, start, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER, args=(noise,)
        )
        start, used = np.clip(found.x, low + LEAST, high - LEAST), noise
        squares = (residuals(found.x, noise)[: len(kept)] * np.hypot(noise, errors)) ** 2
        weights = 1 / np.sqrt(1 + squares / (OUTLIER * noise) ** 2)  # as the loss counts them
        total = NOISE_WEIGHT * NOISE**2 + float((weights * squares).sum())
        noise = math.sqrt(total / (NOISE_WEIGHT + len(kept)))
    slopes = np.asarray(found.jac)
    return _Posterior(model, np.asarray(found.x), np.linalg.inv(slopes.T @ slopes), used)


class _Prior(NamedTuple):
    """Of one value: a normal distribution between bounds, and where the search starts."""

    mean: float
    deviation: float
    start: float
    low: float = 0.0
    high: float = math.inf


def without_pairs(points: Sequence[Measurement]) -> Sequence[Measurement]:
    """The points but those on two nodes, where three larger numbers of nodes are known."""
    larger = {each.shape.nodes for each in points if each.shape.nodes > 2}
    return [each for each in points if each.shape.nodes != 2] if len(larger) >= FEWEST_NODES else points


FEWEST_SIZES = 3
LEAST_NOISE = 0.03  # standard deviation of a logarithm: a repeat differs by that, however well few points fit
FARTHEST = 8  # times the largest measured world size
# Standard deviation of a logarithm, for each doubling beyond what was measured: with it about 90% of the
# intervals of generated studies hold (benchmarks/prediction.py)
GROWTH = 0.055
NEW_BATCH = 0.05  # the same of a batch that was not measured: compute is not quite a line
DEGREES = 8.0  # of the quantile: the noise is itself an estimate


@dataclass(frozen=True)
class Fitted:
    """The model through the measured points; asks nothing further of them."""

    points: tuple[Measurement, ...]
    crosses_nodes: bool  # by a measured point, or in a sweep of the network
    posterior: _Posterior

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Those measured, ascending."""
        return tuple(sorted({each.shape.world_size for each in self.points}))

    def log_step(self, at: Places) -> tuple[Floats, Floats]:
        """The logarithms of the steps and their derivatives, shapes ``(rows,)`` and ``(rows, values)``."""
        return self._with_slopes(lambda values: self.posterior.model.log_step(values, at))

    def _log_one_device(self, at: Places) -> tuple[Floats, Floats]:
        """The same of one device with the batches of ``at``."""
        return self._with_slopes(lambda values: self.posterior.model.log_compute(values, at, slowest=0.0))

    def _with_slopes(self, of: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        values = self.posterior.values
        center, moved = of(values), values + STEP * np.eye(len(values))
        return center, np.column_stack([(of(each) - center) / STEP for each in moved])

    def _variance(self, slopes: Floats) -> Floats:
        """Of what has these derivatives, shape ``(rows,)``."""
        return np.asarray(((slopes @ self.posterior.covariance) * slopes).sum(axis=1))

    def compute_s(self, batch_size: int) -> Estimate:
        """The step of one device without any other, as a function of the batch, in s.

        In as many passes as on the most devices.
        """
        passes = max(self.points, key=lambda each: each.shape.world_size).question.passes
        log, slopes = self._log_one_device(Places.of([Question(Shape((1,)), batch_size, None, passes)]))
        return self._estimates(log, self._variance(slopes))[0]

    def predict(self, questions: Sequence[Question]) -> list[Expected]:
        """An answer to each question, in order; what the points cannot say is refused, with the reason."""
        at = Places.of(questions)
        (log_step, by_step), (log_one, by_one) = self.log_step(at), self._log_one_device(at)
        repeat = max(self.posterior.noise, LEAST_NOISE) ** 2
        beyond = np.maximum(0.0, np.log2(at.world_size / self.world_sizes[-1]))
        is_new = ~np.isin(at.batch, Places.of([each.question for each in self.points]).batch)
        again = repeat + (GROWTH * beyond) ** 2 + (NEW_BATCH * is_new) ** 2
        steps = self._estimates(log_step, self._variance(by_step) + again)
        efficiencies = self._estimates(log_one - log_step, self._variance(by_one - by_step) + again)
        # more devices are neither faster than one nor more efficient, but for noise
        alone = self._estimates(log_one, self._variance(by_one) + repeat)
        most = math.exp(t_quantile(DEGREES) * math.sqrt(repeat))
        found = list[Expected]()
        for question, step, efficiency, one in zip(questions, steps, efficiencies, alone, strict=True):
            naive_s, refused = naive_step_time_s(self.points, question), self._refusal(question.shape)
            answer = Expected(question, naive_step_time_s=naive_s, refused=refused)
            if not refused:
                step = replace(step, low=max(step.low, min(one.low, step.value)))
                efficiency = replace(efficiency, high=min(efficiency.high, most))
                answer = replace(answer, step_time_s=step, efficiency=efficiency)
            found.append(answer)
        return found

    def _estimates(self, logs: Floats, variances: Floats) -> list[Estimate]:
        halves = t_quantile(DEGREES) * np.sqrt(variances)
        return [
            of_log(float(log), float(half), len(self.points)) for log, half in zip(logs, halves, strict=True)
        ]

    def _refusal(self, shape: Shape) -> Refusal | None:
        if len(self.world_sizes) < FEWEST_SIZES:
            return "too few world sizes"
        if shape.world_size > FARTHEST * self.world_sizes[-1]:
            return "too many devices"
        return "network not crossed" if shape.nodes > 1 and not self.crosses_nodes else None


def fit(
    points: Sequence[Measurement],
    links: Sequence[Link] = (),
    form: Form = FORM,
) -> Fitted:
    """The model fitted to all points together; ``links`` is what a sweep of collectives says of the network.

    Too few world sizes are no error: the predictions then say why they are refused.
    """
    sweep = Sweep.of(links)
    crosses = any(each.shape.nodes > 1 for each in points)
    crosses |= sweep is not None and bool((sweep.places.nodes > 1).any())
    return Fitted(tuple(points), crosses, _posterior(points, sweep, form))


def naive_step_time_s(points: Sequence[Measurement], asked: Question) -> float | None:
    """The mean step at the largest world size at which the batch was measured; None where it was not.

    Where a global batch is asked for it is that.
    """
    same = [each for each in points if each.question.batch_size == asked.batch_size]
    if asked.global_batch_size is not None:
        same = [each for each in points if each.question.global_batch_size == asked.global_batch_size]
    if not same:
        return None
    largest = max(each.shape.world_size for each in same)
    return float(np.mean([each.step_time_s.value for each in same if each.shape.world_size == largest]))
