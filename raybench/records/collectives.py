"""What a sweep of collectives brings: raw times of messages; bandwidths are made on reading."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybench.records.base import Count, Duration, Frozen, Ratio, Seconds, Whole
from raybench.records.measurements import StopReason
from raybench.spec.sweep import Collective

# oom: no memory for its buffers. time: its rounds would not fit into the time. unsupported: the backend has
# no such collective. wrong: its result is. uneven: the ranks cannot have equal shares of it.
WhyNot = Literal["oom", "time", "unsupported", "wrong", "uneven"]
OfRanks = Annotated[tuple[Ratio, ...], Field(min_length=1)]


class MessageBlock(Frozen):
    """Operations of one collective on one message, one after the other, after those thrown away."""

    collective: Collective
    message_bytes: Count  # as nccl-tests counts it: of all_gather's output, of reduce_scatter's input
    # of one operation: the mean over the block, one for each rank of the team
    time_s: tuple[Seconds, ...] = Field(min_length=1)
    num_operations: Count
    # as ``time_s``, on CPUs; None on GPUs, and where it is not told
    busy_cores: OfRanks | None = None  # that each rank's process used, all its threads, mean
    host_busy: OfRanks | None = None  # share of the host's cores at work for whomever

    @property
    def slowest_s(self) -> float:
        """Of the slowest rank: the time of the operation."""
        return max(self.time_s)


class MessageRound(Frozen):
    """One block of each collective and message, in the order in which they ran."""

    blocks: tuple[MessageBlock, ...] = Field(min_length=1)
    at_s: Duration  # since the first round began


class NotMeasured(Frozen):
    """A message that was left out, and why; without ``message_bytes`` the collective at every size."""

    collective: Collective
    message_bytes: Count | None = None
    why: WhyNot
    reason: str


class CollectivesResult(Frozen):
    """What a complete part of a sweep has."""

    kind: Literal["collectives"] = "collectives"
    backend: str  # that carried the messages
    rounds: tuple[MessageRound, ...] = Field(min_length=1)
    stopped_by: StopReason  # "steps": the part has the rounds that it was asked for
    missing: tuple[NotMeasured, ...] = ()
    hosts: tuple[Whole, ...] = ()  # of each rank, the leader's is 0
    # that each rank's process may use; None on GPUs
    host_cores: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    setup_s: Duration
    warmup_s: Duration
    measure_s: Duration
