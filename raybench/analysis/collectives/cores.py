"""Whether cores or the link decide how long a message takes.

On CPUs the cores carry the messages. A link that is waited for leaves cores free; a rank whose thread is
always at work, or whose host has no core left, would be no faster over a faster link. Other programs may
fill a host while the link decides: its full cores count only where the ranks themselves use a good part of
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from raybench.records.collectives import CollectivesResult, MessageBlock
from raybench.records.record import TrialRecord

FULL = 0.9  # of a core, or of a host's cores: nothing is left
# Of a host's cores, by its ranks. Measured on two nodes that share two cores with other programs, gloo, 1 to
# 16 MiB: 0.04 to 0.07 where messages reach 0.91 to 1.0 of a link of 1 Gbit/s, 0.14 to 0.20 where they reach
# 0.57 to 0.59 of one of 5 Gbit/s. Not so: broadcast of 16 MiB, 0.21 at 0.94 of 5 Gbit/s; all_reduce of 1 MiB,
# 0.08 at 0.66 of 1 Gbit/s. To be measured again on cores that nobody else uses.
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
        return self.busy_cores >= FULL or (is_full and self.ranks_share >= LEAST_OWN)

    @property
    def decided_by(self) -> str:
        """That in a word."""
        return "cores" if self.decides else "link"


def core_use_of(record: TrialRecord, result: CollectivesResult, block: MessageBlock) -> CoreUse | None:
    """Of one block; None on GPUs, and where it is not told."""
    if block.busy_cores is None or result.host_cores is None:
        return None
    shares = defaultdict[str, float](float)
    hosts = record.hostnames or ("",) * len(block.busy_cores)
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
