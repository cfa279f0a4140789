"""What the driver and its workers tell each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raybench.errors import printable
from raybench.records.record import State, TrialRecord, TrialResult
from raybench.records.requests import TrialRequest
from raybench.records.results import StepsResult, TrainingResult
from raybench.spec.placement import Placement, workers_on


@dataclass(frozen=True)
class Member:
    """One worker of a group."""

    rank: int
    node: str
    hostname: str
    pid: int
    device_name: str


@dataclass(frozen=True)
class GroupInfo:
    """The workers of a running group, by rank."""

    members: tuple[Member, ...]
    number: int
    waited_s: float = 0.0  # before its start, for nodes that come back and places that others use

    def ranks_for(self, world_size: int, placement: Placement) -> tuple[int, ...]:
        """The ranks that stand for ``placement`` (pack, spread or ranks as they are), in order.

        Of a group that has them, as the driver starts one for every trial.
        """
        if isinstance(placement, tuple):
            return tuple(sorted(placement))  # as torch orders the ranks of a group
        on_node: dict[str, list[int]] = {}
        for member in self.members:
            on_node.setdefault(member.node, []).append(member.rank)
        places = {node: len(ranks) for node, ranks in on_node.items()}
        chosen = workers_on(places, world_size, spread=placement == "spread")
        return tuple(sorted(rank for node, number in chosen.items() for rank in on_node[node][:number]))

    def nodes_of(self, ranks: tuple[int, ...]) -> int:
        """The number of nodes on which ``ranks`` stand."""
        return len({member.node for member in self.members if member.rank in ranks})


@dataclass(frozen=True)
class BlockStepTimes:
    """Step times of one variant in one round, in s, one row for each rank, one column for each step."""

    variant: str
    round: int
    ranks: tuple[int, ...]
    step_time_s: NDArray[np.float64]


@dataclass(frozen=True)
class RankFile:
    """A file that a rank made for people to open: a trace."""

    name: str  # within the trial's directory
    content: bytes


@dataclass(frozen=True)
class Outcome:
    """How one trial ended: on one rank, of which the team's leader brings the result, or for its record."""

    state: State
    wall_time_s: float = 0.0
    reason: str | None = None
    result: TrialResult | None = None
    step_times: tuple[BlockStepTimes, ...] = ()
    files: tuple[RankFile, ...] = ()  # of all ranks
    frame: str = ""  # of a crash: where in the code it arose
    ranks: tuple[int, ...] = ()
    nodes: int | None = None
    hostnames: tuple[str, ...] = ()  # of each of ``ranks``
    device_name: str | None = None
    group: int = 0
    # to start and end processes of its own, beside its own time; 0 where a running group served it
    processes_s: float = 0.0
    broken: bool = False  # failed where other ranks may still wait: the team's groups are dead
    ends_group: bool = False  # the worker group ends with this trial, or is gone already

    def to_record(self, request: TrialRequest, *, study: str, started_at: str) -> TrialRecord:
        """The record of the trial that ended so; ``started_at`` is ISO 8601.

        What goes into it is printable and short, whatever code put into its errors.
        """
        result = self.result
        if isinstance(result, StepsResult | TrainingResult):
            missing = {name: printable(text) for name, text in result.missing.items()}
            result = result.model_copy(update={"missing": missing})
        return TrialRecord(
            study=study,
            trial_id=request.trial_id,
            request=request,
            state=self.state,
            reason=None if self.reason is None else printable(self.reason) or self.state,
            ranks=self.ranks,
            nodes=self.nodes,
            hostnames=self.hostnames,
            device_name=self.device_name,
            group=self.group,
            started_at=started_at,
            wall_time_s=self.wall_time_s,
            frame=self.frame,
            result=result,
        )


@dataclass(frozen=True)
class Progress:
    """What a trial is doing right now."""

    phase: str  # "set up", "warm up", "measure", ...
    detail: str = ""
    fields: dict[str, float] = field(default_factory=dict)


OnProgress = Callable[[Progress], None]
Keep = Callable[[Outcome, tuple[str, ...]], None]  # rounds or epochs that are done, and what is open


@dataclass(frozen=True)
class Task:
    """A trial as it is posted to a worker group."""

    number: int  # counts what the group was asked; every message about the trial names it
    request: TrialRequest
    ranks: tuple[int, ...]
    results: str | None = None  # the results directory, where rank 0 can write
    nodes: tuple[str, ...] = ()  # where its workers are to stand, by Ray's ids; empty: anywhere


@dataclass(frozen=True)
class Ready:
    """Every worker of the group is ready for its first task."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class Begun:
    """Every worker of the group knows the task."""


@dataclass(frozen=True)
class Kept:
    """Rounds or epochs are done: what the trial brings if nothing that follows can be had."""

    outcome: Outcome
    open: tuple[str, ...]  # what is still to come, as ``missing`` would name it


@dataclass(frozen=True)
class Started:
    """The process of a trial of Tune's is there."""

    process: Any  # Ray's handle, by which the driver can end it


@dataclass(frozen=True)
class Lost:
    """The workers of a trial died before it began."""

    reason: str


@dataclass(frozen=True)
class Message:
    """What a worker tells the driver; ``task`` is the number of the task that it is about."""

    task: int
    content: Ready | Begun | Started | Progress | Kept | Lost | Outcome
