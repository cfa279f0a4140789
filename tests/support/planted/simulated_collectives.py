"""A trial of a sweep of collectives in simulated time, over a link whose latency and rate are planted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raybench.analysis.collectives import bus_factor
from raybench.analysis.stats.stopping import decide_sweep
from raybench.records.requests import CollectivesRequest
from raybench.records.results import CollectivesResult, MessageBlock, MessageRound
from raybench.spec.sweep import Collective, message_in_shares
from tests.support.planted.noise import Noise

BLOCK_S = 0.05
MOST_OPERATIONS = 1000


@dataclass(frozen=True)
class FakeLink:
    """Every collective takes ``latency_s``, and sends what it must over each device's link at its bandwidth.

    ``kinks`` slow down the messages from a size (bytes) on, as a change of algorithm or a cache does.
    """

    latency_s: float = 60e-6
    bandwidth_bytes_per_s: float = 2.0e9  # of the bus, of every device's link
    kinks: tuple[tuple[int, float], ...] = ()  # from so many bytes on, by this factor

    def time_s(self, collective: Collective, message_bytes: int, world_size: int) -> float:
        """The truth, in s."""
        sent = message_bytes * bus_factor(collective, world_size)
        slower = math.prod(factor for size, factor in self.kinks if message_bytes >= size)
        return (self.latency_s + sent / self.bandwidth_bytes_per_s) * slower


def simulate_sweep(
    request: CollectivesRequest, link: FakeLink, noise: Noise, random: np.random.Generator
) -> tuple[CollectivesResult, float]:
    """The rounds of one place, and what they take in s, by the simulated clock; ranks differ by a hair."""
    size, clock_s = request.config.world_size, 0.0
    cases = [
        (collective, message_in_shares(each, size))
        for collective in request.collectives
        for each in request.message_bytes
    ]
    rounds, stop = list[MessageRound](), None
    while stop is None:
        at_s, blocks = clock_s, list[MessageBlock]()
        for place in random.permutation(len(cases)):
            collective, message = cases[place]
            time_s = link.time_s(collective, message, size) * noise.of_block(clock_s, random)
            number = min(max(round(BLOCK_S / time_s), 1), MOST_OPERATIONS)
            clock_s += number * time_s
            of_ranks = tuple(time_s * (1 - 1e-3 * rank) for rank in range(size))
            blocks.append(
                MessageBlock(
                    collective=collective,
                    message_bytes=message,
                    time_s=of_ranks,
                    num_operations=number,
                )
            )
        rounds.append(MessageRound(blocks=tuple(blocks), at_s=at_s))
        stop = decide_sweep(rounds, request.measure, request.config.device, clock_s)
    return CollectivesResult(backend="fake", rounds=tuple(rounds)), clock_s
