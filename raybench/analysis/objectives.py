"""What a search optimises, and the prices that its costs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raybench.analysis.stats.efficiency import Scaling
from raybench.analysis.stats.repeated import scaling_over_starts
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.spec.study import Objective, Study

HOUR_S = 3600.0


@dataclass(frozen=True)
class Prices:
    """In any currency, for an hour; None where there is no such price. Where both are set both are paid."""

    per_device_hour: float | None = None
    per_node_hour: float | None = None

    @property
    def are_known(self) -> bool:
        """Whether there is any."""
        return self.per_device_hour is not None or self.per_node_hour is not None

    def of_second(self, devices: int, nodes: int) -> float | None:
        """What a second of so many devices on so many nodes costs; None without a price."""
        if not self.are_known:
            return None
        return (devices * (self.per_device_hour or 0.0) + nodes * (self.per_node_hour or 0.0)) / HOUR_S


def prices_of(study: Study) -> Prices:
    """Those of ``[cost]``."""
    return Prices(study.cost.price_per_device_hour, study.cost.price_per_node_hour)


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
    """A complete trial and its value for each objective, in the study's order."""

    record: TrialRecord
    values: tuple[float, ...]


def objective_value(
    record: TrialRecord,
    objective: Objective,
    prices: Prices | None = None,
    others: Sequence[TrialRecord] = (),
    scaled: Scaling | None = None,
) -> float | None:
    """The value of a complete record for one objective; None where the record does not have it.

    ``scaled``: how it scales beside ``others``, where that is known.

    Throughput in samples/s; cost in the prices' currency for a sample, without a price in device-seconds;
    peak memory in bytes, of the rank that takes most, as torch counts it (else as the device does).
    """
    measurement = record.steps
    if measurement is None:
        return None
    if objective == "peak_memory":
        return max(measurement.peak_memory_bytes or measurement.device_memory_bytes or (), default=None)
    found = scaled or scaling_over_starts(record, others)
    if objective == "efficiency":
        return found.efficiency.value if found.efficiency else None
    if objective == "throughput":
        return found.throughput_samples_per_s.value
    price = prices.of_second(record.config.world_size, record.nodes or 1) if prices else None
    if price is None:
        return record.config.world_size / found.throughput_samples_per_s.value
    return price / found.throughput_samples_per_s.value


def pareto_front(candidates: Sequence[Candidate], objectives: Sequence[Objective]) -> list[Candidate]:
    """The candidates that no other beats or equals in all objectives and beats in one, in their order."""
    signs = [1 if objective in MAXIMIZED else -1 for objective in objectives]
    scores = [[sign * value for sign, value in zip(signs, each.values, strict=True)] for each in candidates]

    def dominated(mine: list[float]) -> bool:
        return any(
            all(a >= b for a, b in zip(theirs, mine, strict=True))
            and any(a > b for a, b in zip(theirs, mine, strict=True))
            for theirs in scores
        )

    return [each for each, score in zip(candidates, scores, strict=True) if not dominated(score)]


def on_front(options: Sequence[tuple[Estimate, ...]]) -> list[bool]:
    """Whether each option is on the front of what is smallest in all respects, given how sure each is.

    It is unless another option dominates it: as good in every respect by its value, and better in one at
    least beyond the intervals. What noise alone can turn around is no dominance.
    """

    def beats(one: tuple[Estimate, ...], other: tuple[Estimate, ...]) -> bool:
        pairs = list(zip(one, other, strict=True))
        as_good = all(mine.value <= theirs.value for mine, theirs in pairs)
        return as_good and any(mine.high < theirs.low for mine, theirs in pairs)

    return [not any(beats(other, each) for other in options) for each in options]
