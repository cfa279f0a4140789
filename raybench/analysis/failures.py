"""When two failures are one: asked by a run that then stops, and by the diagnosis, which counts them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence

from raybench.records.record import TrialRecord

_VARYING = re.compile(r"0x[0-9a-fA-F]+|[\d,]*\d")  # addresses, shapes, ranks, bytes


def failure_key(state: str, reason: str | None, frames: Sequence[str]) -> Hashable:
    """The same for two failures of one cause: what was raised, and where; numbers in the words may differ."""
    return state, _VARYING.sub("#", reason or ""), tuple(frames[:1])


def alike(failed: Iterable[TrialRecord]) -> list[list[TrialRecord]]:
    """The failed records of each cause together, in the order in which the causes came."""
    groups: dict[Hashable, list[TrialRecord]] = {}
    for record in failed:
        key = failure_key(record.state, record.reason, record.frames)
        groups.setdefault(key, []).append(record)
    return list(groups.values())
