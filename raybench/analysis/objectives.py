"""What a search optimises, and the price that its costs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.scaling import Scaling
from raybench.analysis.stats.statistics import Estimate, inverse
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


def pareto_front(candidates: Sequence[Candidate], objectives: Sequence[Objective]) -> list[Candidate]:
    """The candidates that no other beats, given how sure each value is, in their order.

    One beats another where it is surely better in one respect, and surely worse in none. So what is better by
    luck alone does not stand beside what is better for certain.
    """
    signs = [-1 if objective in MAXIMIZED else 1 for objective in objectives]
    options = [
        tuple(value.scaled(sign) for sign, value in zip(signs, each.values, strict=True))
        for each in candidates
    ]

    def beats(one: tuple[Estimate, ...], other: tuple[Estimate, ...]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return any(a.high < b.low for a, b in pairs) and not any(b.high < a.low for a, b in pairs)

    return [
        each
        for each, mine in zip(candidates, options, strict=True)
        if not any(beats(other, mine) for other in options)
    ]
