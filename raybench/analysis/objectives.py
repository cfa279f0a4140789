"""What a search optimises, and the price that its costs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raybench.analysis.scaling import Fit, Scaling
from raybench.analysis.stats.pool import Weights
from raybench.analysis.stats.statistics import Estimate, inverse, of_log
from raybench.analysis.stats.verdict import Verdict, verdict
from raybench.records.record import TrialRecord
from raybench.spec.study import Objective, Study

HOUR_S = 3600.0


def price_of(study: Study) -> float | None:
    """What a second of one device costs, in any currency; None where the study has no price."""
    per_hour = study.cost.price_per_device_hour
    return None if per_hour is None else per_hour / HOUR_S


MAXIMIZED: frozenset[str] = frozenset({"throughput", "efficiency"})
OF_SPEED: frozenset[str] = frozenset({"throughput", "cost_per_sample"})  # at one world size they rank alike
UNITS: dict[Objective, str] = {
    "throughput": "samples/s",
    "efficiency": "",
    "cost_per_sample": "device-seconds",  # the study's currency where it names a price
    "peak_memory": "bytes",
}


@dataclass(frozen=True)
class Candidate:
    """A setting, and its value for each objective, in the study's order."""

    record: TrialRecord
    values: tuple[Estimate, ...]


def objective_value(
    record: TrialRecord, objective: Objective, found: Scaling, price: float | None = None
) -> Estimate | None:
    """The value of a complete record's setting for one objective; None where it does not have it.

    ``found``: how it scales. Throughput in samples/s; cost for a sample by the ``price`` of a device's
    second, without one in device-seconds; peak memory in bytes, of the rank that takes most, as torch counts
    it (else as the device does).
    """
    measurement = record.steps
    if measurement is None:
        return None
    if objective == "peak_memory":
        most = max(measurement.peak_memory_bytes or measurement.device_memory_bytes or (), default=None)
        return None if most is None else Estimate(most, most, most, 1)
    if objective == "efficiency":
        return found.efficiency
    if objective == "throughput":
        return found.throughput_samples_per_s
    size = record.config.world_size
    return inverse(found.throughput_samples_per_s).scaled(size if price is None else size * price)


def pareto_front(
    candidates: Sequence[Candidate], objectives: Sequence[Objective], fit: Fit, margin: float
) -> list[Candidate]:
    """The candidates that no other beats, in their order; all where each is beaten, in a circle.

    One beats another that it is better than by one objective, and worse than by none, as the fit of their
    trials has it for the two; what lies within ``margin``, relative, makes no difference. So what is better
    by luck alone does not stand beside what is better for certain.
    """
    compared = _Compared(candidates, objectives, fit, margin)

    def is_beaten(own: int) -> bool:
        return any(map(_beats, compared.verdicts(own, compared.may_be_better(own))))

    return [each for own, each in enumerate(candidates) if not is_beaten(own)] or list(candidates)


def is_better(
    one: TrialRecord,
    than: TrialRecord,
    candidates: Sequence[Candidate],
    objectives: Sequence[Objective],
    fit: Fit,
    margin: float,
) -> bool:
    """Whether one of the candidates is better than another by the first objective, or beats it.

    By intervals that hold for all candidates at once, of which ``one`` may have been chosen.
    """
    own = next(place for place, each in enumerate(candidates) if each.record is than)
    rivals = [place for place in range(len(candidates)) if place != own]
    verdicts = _Compared(candidates, objectives, fit, margin).verdicts(own, rivals, at_once=True)
    found = next(of for place, of in zip(rivals, verdicts, strict=True) if candidates[place].record is one)
    return found[0] is Verdict.BETTER or _beats(found)


def _beats(verdicts: Sequence[Verdict]) -> bool:
    return Verdict.BETTER in verdicts and Verdict.WORSE not in verdicts


class _Compared:
    """Candidates by several objectives: logarithms, and of which contrasts they are."""

    def __init__(
        self, candidates: Sequence[Candidate], objectives: Sequence[Objective], fit: Fit, margin: float
    ) -> None:
        self._pool, self._margin = fit.pool, margin
        signs = [1 if name in MAXIMIZED else -1 for name in objectives]
        self._logs = np.log([[value.value for value in each.values] for each in candidates]) * signs
        self._weights = [[_weights(each.record, name, fit) for each in candidates] for name in objectives]

    def may_be_better(self, own: int) -> list[int]:
        """Places of those that are better by one objective, maybe by chance."""
        return list(map(int, np.flatnonzero((self._logs > self._logs[own]).any(axis=1))))

    def verdicts(
        self, own: int, rivals: Sequence[int], *, at_once: bool = False
    ) -> list[tuple[Verdict, ...]]:
        """Of each rival over one candidate by each objective; ``at_once``: intervals hold for all rivals."""
        by_objective = (self._by(place, own, rivals, at_once) for place in range(len(self._weights)))
        return list(zip(*by_objective, strict=True))

    def _by(self, place: int, own: int, rivals: Sequence[int], at_once: bool) -> list[Verdict]:
        weights, halves = self._weights[place], [0.0] * len(rivals)
        if any(weights):
            mine, theirs = weights[own], (weights[each] for each in rivals)
            asked = [
                {unit: by for unit in {**its, **mine} if (by := its.get(unit, 0.0) - mine.get(unit, 0.0))}
                for its in theirs
            ]
            halves = (
                [half for _, half in self._pool.simultaneous(asked)]
                if at_once
                else [contrast.half for contrast in self._pool.contrasts(asked)]
            )
        apart = (self._logs[list(rivals), place] - self._logs[own, place]).tolist()
        ratios = (of_log(log, half, 1) for log, half in zip(apart, halves, strict=True))
        return [verdict(ratio.plus(-1), self._margin) for ratio in ratios]


def _weights(record: TrialRecord, objective: Objective, fit: Fit) -> Weights:
    """Of the contrast that the objective is but for a factor; none of what is known exactly."""
    if objective == "efficiency":
        found = fit.efficiency(record)
        return found.weights if found else {}
    return {fit.unit(record): -1.0} if objective in OF_SPEED else {}
