"""What a sweep's records say of each message: its time and its bandwidths, with intervals.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there): the algorithm's is the message over its time,
the bus's is that times what the best algorithm must send over each device's link for a byte of the message,
so that it compares with the link's rate whatever the number of devices. The message is the larger of what
goes in and what comes out: of all_gather the output, of reduce_scatter the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raybench.analysis.collectives.cores import CoreUse, core_use_of, mean_core_use
from raybench.analysis.estimates.statistics import Estimate, geometric, inverse
from raybench.records.collectives import NotMeasured
from raybench.records.record import LEAST_ROUNDS, TrialRecord
from raybench.spec.knobs import KnobValue
from raybench.spec.placement import Placement, placement_text
from raybench.spec.sweep import COLLECTIVES, Collective


@dataclass(frozen=True)
class SweptPlace:
    """Where messages went: what is fitted, and drawn, apart."""

    world_size: int
    nodes: int | None  # None: not told
    placement: Placement
    backend: str


@dataclass(frozen=True)
class Message:
    """One collective on one message at one place."""

    collective: Collective
    place: SweptPlace
    message_bytes: int
    time_s: Estimate  # of one operation, on the slowest rank
    cores: CoreUse | None = None  # None on GPUs

    @property
    def cores_decide(self) -> bool:
        """Whether a faster link would hardly make it faster."""
        return self.cores is not None and self.cores.decides

    @property
    def algorithm_bandwidth_bytes_per_s(self) -> Estimate:
        """The message over its time."""
        return inverse(self.time_s).scaled(self.message_bytes)

    @property
    def bus_bandwidth_bytes_per_s(self) -> Estimate:
        """What each device's link carries at least, over the time."""
        factor = bus_factor(self.collective, self.place.world_size)
        return self.algorithm_bandwidth_bytes_per_s.scaled(factor)

    def row(self) -> dict[str, KnobValue]:
        """A row of ``communication.csv``: the columns of docs/contract.md."""
        return {
            "collective": self.collective,
            "backend": self.place.backend,
            "world_size": self.place.world_size,
            "nodes": self.place.nodes,
            "placement": placement_text(self.place.placement),
            "message_bytes": self.message_bytes,
            "time_s": self.time_s.value,
            "time_low_s": self.time_s.low,
            "time_high_s": self.time_s.high,
            "algorithm_bandwidth_bytes_per_s": self.algorithm_bandwidth_bytes_per_s.value,
            "algorithm_bandwidth_low_bytes_per_s": self.algorithm_bandwidth_bytes_per_s.low,
            "algorithm_bandwidth_high_bytes_per_s": self.algorithm_bandwidth_bytes_per_s.high,
            "bus_bandwidth_bytes_per_s": self.bus_bandwidth_bytes_per_s.value,
            "bus_bandwidth_low_bytes_per_s": self.bus_bandwidth_bytes_per_s.low,
            "bus_bandwidth_high_bytes_per_s": self.bus_bandwidth_bytes_per_s.high,
            "rounds": self.time_s.n,
            "busy_cores": self.cores.busy_cores if self.cores else None,
            "host_busy": self.cores.host_share if self.cores else None,
            "decided_by": self.cores.decided_by if self.cores else None,
        }


@dataclass(frozen=True)
class LeftOut:
    """What was not measured at a place, and why."""

    place: SweptPlace
    what: NotMeasured


def bus_factor(collective: Collective, world_size: int) -> float:
    """Bus bandwidth over algorithm bandwidth: bytes over each link for a byte of the message."""
    others = (world_size - 1) / world_size
    return {"all_reduce": 2 * others, "reduce_scatter": others, "all_gather": others, "broadcast": 1.0}[
        collective
    ]


def messages(records: Iterable[TrialRecord]) -> tuple[Message, ...]:
    """Every message of which there are two rounds, by place, collective and size.

    The rounds of all parts of a place are taken together. The time of a round is that of its block's slowest
    rank; over the rounds the trimmed mean of its logarithm is taken.
    """
    times: dict[tuple[SweptPlace, Collective, int], list[float]] = {}
    uses: dict[tuple[SweptPlace, Collective, int], list[CoreUse | None]] = {}
    for record in records:
        if record.collectives is None:
            continue
        for round_ in record.collectives.rounds:
            for block in round_.blocks:
                key = (place_of(record), block.collective, block.message_bytes)
                times.setdefault(key, []).append(block.slowest_s)
                uses.setdefault(key, []).append(core_use_of(record, record.collectives, block))
    found = [
        Message(collective, place, size, geometric(series), mean_core_use(uses[place, collective, size]))
        for (place, collective, size), series in times.items()
        if len(series) >= LEAST_ROUNDS
    ]
    places = list(dict.fromkeys(each.place for each in found))
    return tuple(
        sorted(
            found,
            key=lambda each: (
                places.index(each.place),
                COLLECTIVES.index(each.collective),
                each.message_bytes,
            ),
        )
    )


def left_out(records: Iterable[TrialRecord]) -> tuple[LeftOut, ...]:
    """What was not measured in any part, each once."""
    listed = list(records)
    measured = {(each.place, each.collective, each.message_bytes) for each in messages(listed)}
    found = dict[tuple[SweptPlace, Collective, int | None], LeftOut]()
    for record in listed:
        for what in record.collectives.missing if record.collectives else ():
            key = (place_of(record), what.collective, what.message_bytes)
            if key not in measured:
                found.setdefault(key, LeftOut(key[0], what))
    return tuple(found.values())


def place_of(record: TrialRecord) -> SweptPlace:
    """Where the messages of a complete record went."""
    assert record.collectives is not None
    config = record.request.config
    return SweptPlace(config.world_size, record.nodes, config.placement, record.collectives.backend)


def of_collective(found: Sequence[Message], place: SweptPlace, collective: Collective) -> list[Message]:
    """The messages of one collective at one place, the smallest first."""
    return [each for each in found if (each.place, each.collective) == (place, collective)]
