"""Every trial of a study in one fit: what its visits say together of the step time of each unit.

A unit is what a block of steps runs: a variant of a setting at a world size and place. A visit is one trial's
reading of the units in its rounds. What is slower than a trial (the state of the host, clocks, neighbours) is
constant in it and differs between two, so that trials are studies of a network meta-analysis:

    level[t, u] = mu[u] + trial[t] + unit[t, u] + start[g] + start_unit[g, u] + noise[t, u]

with ``level`` the trimmed mean over rounds of the logarithm of the step time, g the start of the workers,
and all terms but mu normal. Units that share a trial share what it adds, so that their ratio is sharp; others
pay for it. Their spreads are integrated out on a grid, weighed by the restricted likelihood and a log-normal
prior around what is known of such machines; each node is a mixed model (Henderson, 1975, Biometrics 31).
Every figure of a report is a contrast: weights on mu. Lumley (2002), "Network meta-analysis for indirect
treatment comparisons", Statistics in Medicine 21.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

from raybench.analysis.stats.statistics import CONFIDENCE, Estimate, exponential, t_quantile
from raybench.machine.environment import Spreads

Unit = Hashable
Weights = Mapping[Unit, float]  # of units: a contrast
Array = NDArray[np.float64]
# Units; the means of their logarithms, shape (nodes, units), and covariances, (nodes, units, units).
_Joint = tuple[dict[Unit, None], Array, Array]

TRIMMED_FROM = 10  # rounds, from which on 10% are left out at each end
POOLED_DEGREES = 6.0  # with which the noise of a quiet unit is drawn to the study's median
PRIOR_LOG_SD = 0.7  # of the spreads: a factor of two either way is likely
# Of the grid, in standard deviations of the prior; more are added where the posterior rises to the last.
NODES = (-2.0, -4 / 3, -2 / 3, 0.0, 2 / 3, 4 / 3, 2.0)
NEGLIGIBLE = 1e-3  # probability of a node that is left out
MOST_CORRELATED = 0.8  # of neighbouring rounds
NUM_DRAWS = 4000
AT_ONCE = 100  # contrasts: more are worked out in parts
MOST_JOINT = 500  # units that are drawn together
SEED = 20261124


# Where nothing else is known of a machine. On two shared virtual cores 40 equal commands differed by 7.3%
# [5.8, 9.6] in throughput and by 3.3% [1.5, 5.4] in efficiency (benchmarks/README.md). Of GPUs nobody has
# measured them yet.
TYPICAL = {"cpu": Spreads(0.03, 0.012, 0.065, 0.018), "cuda": Spreads(0.01, 0.004, 0.02, 0.006)}


@dataclass(frozen=True)
class Visit:
    """What one trial says of the units in its rounds."""

    group: int  # the start of the workers that served it
    planned: Hashable  # the start that would have, in a run that nothing interrupts
    logs: Mapping[Unit, Array]  # of step times in s, shape ``(rounds,)``, NaN where a round has none


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of logarithms: its mean, standard deviation and degrees of freedom."""

    mean: float
    sd: float  # in this run
    sd_again: float  # between this figure and that of another run
    degrees: float
    n: int  # rounds, of the unit that has fewest
    visits: int  # of the unit that has fewest
    starts: int  # of the workers, in which the unit that has fewest was measured

    @property
    def half(self) -> float:
        """Half of the 95% interval in this run."""
        return t_quantile(self.degrees) * self.sd

    def ratio(self, factor: float = 1.0, half: float | None = None) -> Estimate:
        """The exponential of the contrast times ``factor``; ``half``: of a simultaneous interval."""
        return self._around(self.mean, half).map(lambda log: factor * exponential(log))

    def sum(self, value: float, scale: float = 1.0) -> Estimate:
        """The contrast as a difference around ``value``, both times ``scale``."""
        return self._around(value).scaled(scale)

    def _around(self, value: float, half: float | None = None) -> Estimate:
        half = self.half if half is None else half
        again = max(t_quantile(self.degrees) * self.sd_again, half)
        ends = value - again, value + again
        return Estimate(value, value - half, value + half, self.n, self.starts, self.visits, ends)


class _Level(NamedTuple):
    """One unit in one visit."""

    log: float
    variance: float  # of a block, without what its round has in common
    degrees: float
    rounds: int


@dataclass(frozen=True)
class _Node:
    """The fit with one set of spreads."""

    probability: float
    spreads: Spreads
    solve: Any
    solution: Array


class Pool:
    """The fit of all visits of a study."""

    def __init__(self, visits: Sequence[Visit], known: Spreads, *, is_certain: bool = False) -> None:
        """``known``: what such a machine's spreads are, before any was measured here; or are for certain."""
        self.known, self._grid = known, (0.0,) if is_certain else NODES
        self._visits = [each for each in visits if each.logs]
        self._groups = sorted({each.group for each in self._visits})
        self._num_planned = len({each.planned for each in self._visits})  # starts of another run
        levels = [_levels(each) for each in self._visits]
        self.units: tuple[Unit, ...] = tuple(dict.fromkeys(unit for _, found in levels for unit in found))
        self._place = {unit: place for place, unit in enumerate(self.units)}
        self._nodes = list[_Node]()
        if self.units:
            self._inflation = _inflation(self._visits)
            self._set_rows(levels)
            self._excess = self._excesses(levels)
            self._nodes = self._fit()
        self._probabilities: Array = np.array([each.probability for each in self._nodes])
        self._beside = {unit: each.logs for each in reversed(self._visits) for unit in each.logs}
        self._last: _Joint = {}, np.zeros((len(self._nodes), 0)), np.zeros((len(self._nodes), 0, 0))

    @property
    def spreads(self) -> Spreads:
        """What the visits say of the spreads: the geometric mean over the nodes."""
        if not self._nodes:
            return self.known
        logs = np.log([astuple(each.spreads) for each in self._nodes])
        return Spreads(*np.exp(self._probabilities @ logs).tolist())

    # --- what is asked

    def has(self, *units: Unit) -> bool:
        """Whether all of these were measured."""
        return all(unit in self._place for unit in units)

    def log(self, unit: Unit) -> float:
        """The mean of the logarithm of a unit's step time, in s."""
        return self.contrast({unit: 1.0}).mean

    def time(self, unit: Unit) -> Estimate:
        """A unit's step time, in s."""
        return self.contrast({unit: 1.0}).ratio()

    def contrast(self, weights: Weights) -> Contrast:
        """The weighted sum of the logarithms of step times; every unit must have been measured."""
        return self.contrasts([weights])[0]

    def mean(self, weights: Weights) -> Contrast:
        """The contrast of mean steps, of which totals are made: over all rounds, nothing trimmed.

        Costs add up, so their mean is the arithmetic one (Hoefler and Belli 2015, "Scientific benchmarking of
        parallel computing systems", SC15, rule 3). How far it is above the typical step is taken over the
        blocks of all visits, each over its visit's typical one; its standard error adds in squares. Too
        narrow where slow blocks are so rare that few were measured.
        """
        found = self.contrast(weights)
        means = [(weight, self._excess[self._place[unit]]) for unit, weight in weights.items()]
        error = math.hypot(*(weight * each[1] for weight, each in means))
        return replace(
            found,
            mean=found.mean + sum(weight * each[0] for weight, each in means),
            sd=math.hypot(found.sd, error),
            sd_again=math.hypot(found.sd_again, math.sqrt(2) * error),
        )

    def contrasts(self, asked: Sequence[Weights]) -> list[Contrast]:
        """The same of several."""
        found = list[Contrast]()
        for first in range(0, len(asked), AT_ONCE):
            found += self._contrasts(asked[first : first + AT_ONCE])
        return found

    def draws(self, asked: Sequence[Weights]) -> Array:
        """Joint draws of several contrasts, shape ``(draws, asked)``; the same each time."""
        units = _units_of(asked)
        random = np.random.default_rng(SEED)
        counts = random.multinomial(NUM_DRAWS, self._probabilities)
        found = []
        for (mean, covariance), count in zip(self._joint(units), counts, strict=True):
            values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            found.append(mean + random.standard_normal((count, len(units))) @ root.T)
        return np.concatenate(found) @ _columns(asked, units)

    def simultaneous(self, asked: Sequence[Weights]) -> list[tuple[Contrast, float]]:
        """Contrasts, each with half of the 95% interval that holds for all of them at once.

        By the largest standardised deviation of joint draws (Dunnett's problem, of whichever contrasts); of
        very many units by Sidak's bound.
        """
        found = self.contrasts(asked)
        if len(asked) < 2:
            return [(each, each.half) for each in found]
        if len(_units_of(asked)) > MOST_JOINT:
            share = CONFIDENCE ** (1 / len(asked))
            return [(each, t_quantile(each.degrees, share) * each.sd) for each in found]
        sds, means = np.array([each.sd for each in found]), np.array([each.mean for each in found])
        apart = np.abs(self.draws(asked) - means) / np.where(sds > 0, sds, 1.0)
        widest = float(np.quantile(apart.max(axis=1), CONFIDENCE))
        return [(each, max(widest * each.sd, each.half)) for each in found]

    # --- the fit

    def _set_rows(self, levels: Sequence[tuple[float, Mapping[Unit, _Level]]]) -> None:
        """A row for each unit of each visit, and the design: mu, trials, starts, units of starts."""
        rows = [
            (trial, self._place[unit], level)
            for trial, (_, found) in enumerate(levels)
            for unit, level in found.items()
        ]
        trial, unit = np.array([row[:2] for row in rows], dtype=np.int64).T
        self._y, own, degrees, rounds = np.array([level for *_, level in rows], dtype=np.float64).T
        drawn = (POOLED_DEGREES * np.median(own) + degrees * own) / (POOLED_DEGREES + degrees)
        # a replay may be ten times as noisy, and stays so
        self._noise = self._inflation * np.maximum(own, drawn) / rounds
        most = np.array([max(level.rounds for level in found.values()) for _, found in levels])
        self._common = self._inflation * np.array([common for common, _ in levels]) / most
        num_units, num_starts = len(self.units), len(self._groups)
        start = np.searchsorted(self._groups, [each.group for each in self._visits])[trial]
        known, pair = np.unique(start * num_units + unit, return_inverse=True)  # units of starts
        self._num_visits = np.bincount(unit).tolist()
        self._num_starts = np.bincount(known % num_units).tolist()
        self._num_rounds = np.bincount(unit, rounds).astype(int).tolist()
        # columns by start and unit, where there are several starts
        self._pairs = dict[tuple[int, int], int]()
        columns = [unit, num_units + trial]
        self._first_start = self._size = num_units + len(levels)
        if num_starts > 1:
            first = self._first_start + num_starts
            self._pairs = {divmod(key, num_units): first + place for place, key in enumerate(known.tolist())}
            columns += [self._first_start + start, first + pair]
            self._size += num_starts + len(known)
        self._columns = np.stack(columns, axis=1)  # (rows, terms): where the row's design has a one
        # The equations differ between nodes in values alone: which of them are not zero is worked out once.
        pairs_of_terms = self._columns[:, :, None] * self._size + self._columns[:, None, :]
        diagonal = np.arange(self._size) * (self._size + 1)
        keys, places = np.unique(np.concatenate([pairs_of_terms.ravel(), diagonal]), return_inverse=True)
        self._products, self._diagonal = places[: pairs_of_terms.size], places[pairs_of_terms.size :]
        ends = np.searchsorted(keys, np.arange(self._size + 1) * self._size)
        self._equations = csc_array(
            (np.zeros(len(keys)), keys % self._size, ends), shape=(self._size, self._size)
        )

    def _excesses(self, levels: Sequence[tuple[float, Mapping[Unit, _Level]]]) -> list[tuple[float, float]]:
        """Of each unit the logarithm of the mean block over the typical one, and its standard error."""
        ratios = defaultdict[int, list[Array]](list)
        for visit, (_, found) in zip(self._visits, levels, strict=True):
            for unit, level in found.items():
                logs = visit.logs[unit]
                ratios[self._place[unit]].append(np.exp(logs[np.isfinite(logs)] - level.log))
        excesses = list[tuple[float, float]]()
        for place in range(len(self.units)):
            each = np.concatenate(ratios[place])
            mean = float(each.mean())
            excesses.append((math.log(mean), float(each.std(ddof=1)) / mean / math.sqrt(len(each))))
        return excesses

    def _fit(self) -> list[_Node]:
        of_starts = self._grid if len(self._groups) > 1 else (0.0,)
        grids: list[tuple[float, ...]] = [self._grid, self._grid, of_starts]
        found = dict[tuple[float, ...], tuple[float, Spreads, Any, Array]]()
        rising = [0]
        while rising:
            for place in itertools.product(*grids):
                if place not in found:
                    found[place] = self._node(*place)
            logs, places = np.array([each[0] for each in found.values()]), np.array(list(found))
            weights = np.exp(logs - logs.max())
            rising = [axis for axis, grid in enumerate(grids) if _rises(weights, places[:, axis], grid)]
            for axis in rising:
                grids[axis] = (*grids[axis], 2 * grids[axis][-1] - grids[axis][-2])
        weights[weights <= NEGLIGIBLE * weights.sum()] = 0.0
        shares = (weights / weights.sum()).tolist()
        return [_Node(share, *each[1:]) for share, each in zip(shares, found.values(), strict=True) if share]

    def _node(self, trial: float, unit: float, start: float) -> tuple[float, Spreads, Any, Array]:
        """The logarithm of its likelihood times the prior, and the fit with its spreads."""
        known = zip(astuple(self.known), (trial, unit, start, start), strict=True)
        spreads = Spreads(*(each * math.exp(PRIOR_LOG_SD * factor) for each, factor in known))
        log, solve, solution = self._solved(spreads)
        # normal, with an exponential tail beyond its grid: a machine may be unlike any known
        beyond = [max(place - NODES[-1], 0.0) for place in (trial, unit, start)]
        log_prior = -(trial**2 + unit**2 + start**2 - sum(each**2 for each in beyond)) / 2
        return log + log_prior, spreads, solve, solution

    def _solved(self, spreads: Spreads) -> tuple[float, Any, Array]:
        """The restricted log-likelihood, a solver of the mixed-model equations, and their solution."""
        noise = self._noise + spreads.unit**2
        priors = np.concatenate(
            [
                spreads.trial**2 + self._common,
                np.full(len(self._groups) if self._pairs else 0, spreads.start**2),
                np.full(len(self._pairs), spreads.start_unit**2),
            ]
        )
        ridge = np.concatenate([np.zeros(len(self.units)), 1 / priors])
        terms = self._columns.shape[1]
        values = np.repeat(1 / noise, terms**2)
        entries = np.bincount(self._products, values, len(self._equations.indices)).astype(np.float64)
        entries[self._diagonal] += ridge
        self._equations.data = entries
        factored = splu(
            self._equations,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        right = np.bincount(self._columns.ravel(), np.repeat(self._y / noise, terms), self._size)
        solution = factored.solve(right)
        squares = float((self._y**2 / noise).sum() - right @ solution)
        determinants = (
            np.log(noise).sum() + np.log(priors).sum() + np.log(np.abs(factored.U.diagonal())).sum()
        )
        return float(-(determinants + squares) / 2), factored.solve, solution

    def _joint(self, units: Iterable[Unit]) -> Iterator[tuple[Array, Array]]:
        """For each node the means of units' logarithms and their covariances.

        A unit's step time in this run is its mean over the starts of the run, in whichever it was measured.
        """
        places = [self._place[unit] for unit in units]
        matrix, unvisited = np.zeros((self._size, len(places))), np.zeros(len(places))
        starts = len(self._groups)
        for column, place in enumerate(places):
            matrix[place, column] = 1.0
            if not self._pairs:
                continue
            seen = [self._pairs[group, place] for group in range(starts) if (group, place) in self._pairs]
            matrix[[*range(self._first_start, self._first_start + starts), *seen], column] = 1 / starts
            unvisited[column] = (starts - len(seen)) / starts**2
        for node in self._nodes:
            added = np.diag(unvisited * node.spreads.start_unit**2)
            yield node.solution @ matrix, matrix.T @ node.solve(matrix) + added

    def _kept(self, units: dict[Unit, None]) -> _Joint:
        """Units and those that were measured beside the last: what is asked next is mostly of these."""
        if not units.keys() <= self._last[0].keys():
            units = dict.fromkeys([*units, *self._beside[next(reversed(units))]])
            means, covariances = zip(*self._joint(units), strict=True)
            self._last = units, np.array(means), np.array(covariances)
        return self._last

    def _contrasts(self, asked: Sequence[Weights]) -> list[Contrast]:
        units, means, covariances = self._kept(_units_of(asked))
        weights = _columns(asked, units)
        means, variances = means @ weights, ((covariances @ weights) * weights).sum(axis=1)
        p = self._probabilities[:, None]
        mean = (p * means).sum(axis=0)
        apart = means - mean
        variance = (p * (variances + apart**2)).sum(axis=0)
        fourth = (p * (3 * variances**2 + 6 * variances * apart**2 + apart**4)).sum(axis=0)
        return [
            self._contrast(weights, mean[place], variance[place], fourth[place])
            for place, weights in enumerate(asked)
        ]

    def _contrast(self, weights: Weights, mean: float, variance: float, fourth: float) -> Contrast:
        excess = fourth / variance**2 - 3 if variance > 0 else 0.0
        degrees = 4 + 6 / excess if excess > 1e-6 else 1e6
        whole, squares = sum(weights.values()), sum(each**2 for each in weights.values())
        starts = [
            node.spreads.start**2 * whole**2 + node.spreads.start_unit**2 * squares for node in self._nodes
        ]
        start = float(self._probabilities @ starts) * (1 / len(self._groups) + 1 / self._num_planned)
        narrow = (degrees - 2) / degrees
        places = [self._place[unit] for unit, weight in weights.items() if weight]
        return Contrast(
            mean=float(mean),
            sd=math.sqrt(variance * narrow),
            sd_again=math.sqrt((2 * variance + start) * narrow),
            degrees=degrees,
            n=min((self._num_rounds[place] for place in places), default=0),
            visits=min((self._num_visits[place] for place in places), default=0),
            starts=min((self._num_starts[place] for place in places), default=0),
        )


def _units_of(asked: Iterable[Weights]) -> dict[Unit, None]:
    return dict.fromkeys(unit for weights in asked for unit in weights)


def _columns(asked: Iterable[Weights], units: Iterable[Unit]) -> Array:
    """Weights, shape ``(units, asked)``."""
    return np.array([[each.get(unit, 0.0) for unit in units] for each in asked]).T


def _rises(weights: Array, nodes: Array, grid: Sequence[float]) -> bool:
    """Whether the last node of a grid's axis is likelier than the one before it."""
    of_nodes = [weights[nodes == node].sum() for node in grid[-2:]]
    return len(of_nodes) > 1 and bool(of_nodes[1] > of_nodes[0])


def _levels(visit: Visit) -> tuple[float, dict[Unit, _Level]]:
    """The variance that rounds have in common, and the level of each unit."""
    logs = np.stack(list(visit.logs.values()), axis=1)  # (rounds, units)
    means, apart = [], np.full(logs.shape, np.nan)
    for column, values in enumerate(logs.T):
        present = np.isfinite(values)
        ordered = np.sort(values[present])
        trimmed = len(ordered) // 10 if len(ordered) >= TRIMMED_FROM else 0
        inner = ordered[trimmed : len(ordered) - trimmed]
        means.append(float(inner.mean()))
        clipped = np.clip(values[present], inner[0], inner[-1])
        apart[present, column] = (clipped - clipped.mean()) / (1 - 2 * trimmed / len(ordered))
    shared, weights = _shared(apart)
    rounds = np.isfinite(logs).sum(axis=0)
    degrees = (rounds - 1) * (1 - weights)
    variances = np.nansum((apart - shared[:, None]) ** 2, axis=0) / degrees
    common = float((shared**2).sum() / max(len(shared) - 1, 1) - (weights**2 * variances).sum())
    found = map(_Level, means, variances.tolist(), degrees.tolist(), rounds.tolist())
    return max(common, 0.0), dict(zip(visit.logs, found, strict=True))


def _shared(apart: Array) -> tuple[Array, Array]:
    """What the units of each round have in common, and the weights that they have in it.

    ``apart``: deviations from each unit's mean, shape ``(rounds, units)``. A unit that is noisier than the
    median one has less weight, so that one noisy variant does not make all others look so.
    """
    if apart.shape[1] < 2:
        return np.zeros(len(apart)), np.zeros(apart.shape[1])
    variances = np.nanmean(apart**2, axis=0)
    typical = float(np.median(variances)) or 1.0
    weights = 1 / np.maximum(variances, typical)
    weights = weights / weights.sum()
    present = np.isfinite(apart)
    shared = np.where(present, apart, 0.0) @ weights / np.maximum(present @ weights, 1e-9)
    return shared, weights


def _inflation(visits: Iterable[Visit]) -> float:
    """By what the variance of a mean over rounds exceeds that of independent ones: (1 + r) / (1 - r).

    r: the correlation of neighbouring rounds, of ratios to what their round has in common, over the whole
    study; an estimate from n rounds is 1/n too low.
    """
    products = squares = missing = 0.0
    for visit in visits:
        table = np.stack(list(visit.logs.values()), axis=1)
        table = table[np.isfinite(table).all(axis=1)]
        if table.shape[1] < 2 or len(table) < 3:
            continue
        apart = table - np.median(table, axis=0)
        ratios = apart - _shared(apart)[0][:, None]
        ratios = ratios - np.median(ratios, axis=0)
        spread = np.median(np.abs(ratios), axis=0)
        ratios = np.clip(ratios / np.where(spread > 0, spread, 1.0), -3, 3)  # alike, whatever their noise
        ratios = ratios - ratios.mean(axis=0)
        products += float((ratios[1:] * ratios[:-1]).sum())
        squares += float((ratios**2).sum())
        missing += float((ratios**2).sum()) / len(ratios)
    if not squares:
        return 1.0
    r = min(max((products + missing) / squares, 0.0), MOST_CORRELATED)
    return (1 + r) / (1 - r)
