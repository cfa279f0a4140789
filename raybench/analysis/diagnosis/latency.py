"""Which share of the transfers' time is latency, and how that is known.

Latency and bandwidth are told apart by a sweep of the link, or by two trials whose gradients travel in
different numbers of buckets: of replay = buckets x latency + bytes / bandwidth one equation is not enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.diagnosis.case import Case, Replay
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import changes_words
from raybench.spec.counted import counted


@dataclass(frozen=True)
class Latency:
    """The latency of a trial's transfers, all of its buckets together and of each."""

    share: Estimate  # of the transfers' time
    each_s: Estimate
    known_from: str


def sweep_link(case: Case) -> Link | None:
    """The all-reduce's line at this world size and number of nodes, where a sweep was given."""
    return case.around.links.get(LinkKey("all_reduce", case.config.world_size, case.record.nodes))


def latency_of(case: Case) -> Latency | None:
    """By the sweep's line, else by another trial with another number of buckets; None without either."""
    number, replay = len(case.steps.bucket_bytes), case.waterfall.replay_s if case.waterfall else None
    if not number or replay is None:
        return None
    link = sweep_link(case)
    if link is not None and link.latency_s is not None:
        return Latency(_share(link.latency_s, number, replay), link.latency_s, "by the sweep")
    return _from_bucket_sizes(case, number)


def _from_bucket_sizes(case: Case, number: int) -> Latency | None:
    """latency = (replay_1 - replay_2) / (buckets_1 - buckets_2), of trials that send the same bytes."""
    own = next((each for each in case.replays if each.num_buckets == number), None)
    others = [each for each in case.replays if each.num_buckets != number]
    if own is None or not others:
        return None
    furthest = max(others, key=lambda each: abs(each.num_buckets - number))
    mine, theirs, more = own.beside(furthest), furthest.beside(own), number - furthest.num_buckets
    half = (mine.half_width**2 + theirs.half_width**2) ** 0.5 / abs(more)
    value = (mine.value - theirs.value) / more
    if value + half <= 0:
        return None
    # no transfer has less latency than none
    each_s = Estimate(max(value, 0.0), max(value - half, 0.0), value + half, min(mine.n, theirs.n))
    known_from = f"by the trial with {counted(furthest.num_buckets, 'bucket')}{_how_else(own, furthest)}"
    return Latency(_share(each_s, number, mine), each_s, known_from)


def _how_else(own: Replay, other: Replay) -> str:
    """In which setting the other trial's gradients travel in other buckets, where it is not their size."""
    changes = other.record.config.differences(own.record.config)
    named = {name: value for name, value in changes.items() if name in ("precision", "bucket_cap_mb")}
    return f": {changes_words(named)}" if named else ""


def _share(each_s: Estimate, number: int, whole: Estimate) -> Estimate:
    ends = [min(max(number * end / whole.value, 0.0), 1.0) for end in (each_s.value, each_s.low, each_s.high)]
    return Estimate(ends[0], ends[1], ends[2], each_s.n)
