"""What a search optimises, and the price that its costs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raybench.analysis.scaling import Measured, Scaling
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
    candidates: Sequence[Candidate], objectives: Sequence[Objective], fit: Measured, margin: float
) -> list[Candidate]:
    """The candidates that no other beats, in their order; all where each is beaten, in a circle.

    One beats another that it is better than by one objective, and worse than by none, as the fit of their
    trials has it for the two; what lies within ``margin``, relative, makes no difference. So what is better
    by luck alone does not stand beside what is better for certain.
    """
    signs = [1 if name in MAXIMIZED else -1 for name in objectives]
    logs = np.log([[value.value for value in each.values] for each in candidates]) * signs
    weights = [[_weights(each.record, name, fit) for each in candidates] for name in objectives]

    def verdicts(own: int, rivals: list[int], place: int) -> list[Verdict]:
        """Of rivals over one candidate, by one objective."""
        mine, halves = weights[place][own], [0.0] * len(rivals)
        if any(weights[place]):
            theirs = (weights[place][each] for each in rivals)
            asked = [
                {unit: its.get(unit, 0) - mine.get(unit, 0) for unit in {**its, **mine}} for its in theirs
            ]
            halves = [contrast.half for contrast in fit.pool.contrasts(asked)]
        apart = (logs[rivals, place] - logs[own, place]).tolist()
        ratios = (of_log(log, half, 1) for log, half in zip(apart, halves, strict=True))
        return [verdict(ratio.plus(-1), margin) for ratio in ratios]

    def is_beaten(own: int) -> bool:
        better = (logs > logs[own]).any(axis=1)  # that may be, by one objective
        rivals = np.flatnonzero(better).tolist()
        found = zip(*(verdicts(own, rivals, place) for place in range(len(objectives))), strict=True)
        return any(Verdict.BETTER in each and Verdict.WORSE not in each for each in found)

    return [each for own, each in enumerate(candidates) if not is_beaten(own)] or list(candidates)


def _weights(record: TrialRecord, objective: Objective, fit: Measured) -> Weights:
    """Of the contrast that the objective is but for a factor; none of what is known exactly."""
    if objective == "efficiency":
        found = fit.efficiency(record)
        return found.weights if found else {}
    return {fit.unit(record): -1.0} if objective in OF_SPEED else {}
