"""What a sweep of collectives brings: raw times of messages; bandwidths are made on reading."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raybench.records.base import Count, Duration, Frozen, Ratio, Seconds, Whole
from raybench.records.measurements import StopReason
from raybench.spec.sweep import Collective

#: oom: no memory for its buffers
#: time: a few rounds would take more than twice `measure.max_seconds`
#: unsupported: the backend does not have the collective
#: wrong: its result is wrong
#: uneven: the ranks cannot have equal shares of it
WhyNot = Literal["oom", "time", "unsupported", "wrong", "uneven"]
OfRanks = Annotated[tuple[Ratio, ...], Field(min_length=1)]


class MessageBlock(Frozen):
    """Operations of one collective on one message, one after the other, after those thrown away."""

    #: what ran
    collective: Collective
    #: message as nccl-tests counts it: of all_gather the output, of reduce_scatter the input
    message_bytes: Count
    #: time of one operation, mean over the block, one for each of the record's `ranks`, in s
    time_s: tuple[Seconds, ...] = Field(min_length=1)
    #: operations that count
    num_operations: Count
    #: cores that the process of each of the record's `ranks` used, all its threads, mean over the operations
    #: that count; null: unknown, as on GPUs
    busy_cores: OfRanks | None = None
    #: busy share of the cores that each of them may use, by any process; null: unknown
    host_busy: OfRanks | None = None

    @property
    def slowest_s(self) -> float:
        """Of the slowest rank: the time of the operation."""
        return max(self.time_s)


class MessageRound(Frozen):
    """One block of each collective and message, in the order in which they ran."""

    #: one block of each collective and message, in the order in which they ran
    blocks: tuple[MessageBlock, ...] = Field(min_length=1)
    #: since the first round began, in s
    at_s: Duration


class NotMeasured(Frozen):
    """A message that was left out, and why; without ``message_bytes`` the collective at every size."""

    collective: Collective
    #: size in bytes; null: the collective at every size
    message_bytes: Count | None = None
    why: WhyNot
    reason: str


class CollectivesResult(Frozen):
    """What a complete part of a sweep has."""

    kind: Literal["collectives"] = "collectives"
    #: `gloo` or `nccl`
    backend: str
    #: the measurements
    rounds: tuple[MessageRound, ...] = Field(min_length=1)
    #: why no further round; `steps`: it has those that were requested
    stopped_by: StopReason
    #: what was not measured
    missing: tuple[NotMeasured, ...] = ()
    #: a number for the host of each of the record's `ranks`, by which two of one name can be distinguished;
    #: the first one's is 0
    hosts: tuple[Whole, ...] = ()
    #: cores that each of the record's `ranks` may use; null on GPUs
    host_cores: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    #: time of setting up, in s
    setup_s: Duration
    #: time of warming up and checking, in s
    warmup_s: Duration
    #: time of all rounds, in s
    measure_s: Duration
