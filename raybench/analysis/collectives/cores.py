"""Whether cores or the link decide how long a message takes.

On CPUs the cores carry the messages. A link that is waited for leaves cores free; a rank whose thread is
at work half of the time, or whose host has no core left, would hardly be faster over a faster link. Other
programs may fill a host while the link decides: its full cores count only where the ranks themselves use a
good part of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from raybench.records.collectives import CollectivesResult, MessageBlock
from raybench.records.record import TrialRecord

# Of a core, by the process of one rank: the two ends of a transfer copy and add in turn, so that half of each
# is all of both. Measured on two nodes of one free core each, gloo, all_reduce: 0.13 to 0.21 for 1 to 16 MiB,
# which reach 0.93 to 1.00 of a link of 1 Gbit/s; 0.64 and 0.65 for 4 and 16 MiB at 0.94 of 5 Gbit/s, and 0.69
# and 0.71 over 20 Gbit/s, where they are 1.2 times as fast; 0.63 to 0.66 for 4 and 64 KiB over each of them.
HALF = 0.5
FULL = 0.9  # of a host's cores: nothing is left
# Of a host's cores, by its ranks, where others fill them. On two nodes that shared two cores with other
# programs: 0.04 to 0.07 where 1 to 16 MiB reach 0.91 to 1.00 of 1 Gbit/s, 0.14 to 0.20 at 0.57 to 0.59 of
# 5 Gbit/s.
LEAST_OWN = 0.1


@dataclass(frozen=True)
class CoreUse:
    """While a message was measured, means over the rounds."""

    busy_cores: float  # of the rank that used most
    ranks_share: float  # of a host's cores, by its ranks: of the host with most
    host_share: float | None  # of a host's cores, at work for whomever: of the host with most; None: not told

    @property
    def decides(self) -> bool:
        """Whether the cores decide the time, and not the link."""
        is_full = self.host_share is not None and self.host_share >= FULL
        return self.busy_cores >= HALF or (is_full and self.ranks_share >= LEAST_OWN)

    @property
    def decided_by(self) -> str:
        """That in a word."""
        return "cores" if self.decides else "link"


def core_use_of(record: TrialRecord, result: CollectivesResult, block: MessageBlock) -> CoreUse | None:
    """Of one block; None on GPUs, and where it is not told."""
    if block.busy_cores is None or result.host_cores is None:
        return None
    shares = defaultdict[object, float](float)
    hosts: tuple[object, ...] = result.hosts or record.hostnames or (0,) * len(block.busy_cores)
    for host, busy, cores in zip(hosts, block.busy_cores, result.host_cores, strict=False):  # as in its file
        shares[host] += busy / cores
    host_share = max(block.host_busy) if block.host_busy else None
    return CoreUse(max(block.busy_cores), max(shares.values()), host_share)


def mean_core_use(uses: Iterable[CoreUse | None]) -> CoreUse | None:
    """Over the rounds; None where none is known."""
    known = [each for each in uses if each is not None]
    if not known:
        return None
    told = [each.host_share for each in known if each.host_share is not None]
    return CoreUse(
        float(np.mean([each.busy_cores for each in known])),
        float(np.mean([each.ranks_share for each in known])),
        float(np.mean(told)) if told else None,
    )
