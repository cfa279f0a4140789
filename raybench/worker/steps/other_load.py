"""What processes other than the trial's took of the cores while the rounds ran."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from raybench.machine import core_time
from raybench.machine.host import allowed_cores, host_id, numbered
from raybench.worker.communicators import Team

LARGEST = 5  # programs that are named
LEAST_CORES = 0.001


@dataclass(frozen=True)
class CoresUsed:
    """Between two looks on one rank: cores' worth of time."""

    host: float | None  # of all processes on this rank's host; None: not told
    own: float  # of this rank


class CoreMeter:
    """Looks at the cores of this rank's host before and after a round."""

    def __init__(self, *, has_children: bool) -> None:
        """``has_children``: a loader's processes work for this rank."""
        self._has_children = has_children
        self.start()

    def start(self) -> None:
        """A round begins."""
        self._at_s, self._host_s, self._own_s = self._look()

    def used(self) -> CoresUsed:
        """Since ``start``."""
        at_s, host_s, own_s = self._look()
        seconds = at_s - self._at_s
        known = host_s is not None and self._host_s is not None
        return CoresUsed(
            host=(host_s - self._host_s) / seconds if known else None,  # type: ignore[operator]
            own=(own_s - self._own_s) / seconds,
        )

    def _look(self) -> tuple[float, float | None, float]:
        own_s = core_time.own_core_seconds(with_children=self._has_children)
        return perf_counter(), core_time.busy_core_seconds(), own_s


class OtherLoad:
    """Adds up the ranks of a host, so that what is left of its use is others'."""

    def __init__(self, team: Team, *, names: bool) -> None:
        """``names``: tell programs apart, which looks at every process twice: a second on a large node.

        A collective call.
        """
        here = (host_id(), os.getpid(), len(allowed_cores()))
        places: list[tuple[str, int, int]] = team.gather(here)
        self._hosts = [host for host, _, _ in places]
        self.hosts = numbered(self._hosts)  # of each rank, the leader's is 0
        self.host_cores = tuple(cores for _, _, cores in places)  # of each rank's host
        self._own_pids = {pid for host, pid, _ in places if host == here[0]}
        self._before = core_time.core_seconds_by_process() if names and team.leads else {}
        self._began = perf_counter()

    def of_round(self, used: Sequence[CoresUsed]) -> tuple[float | None, ...]:
        """Cores' worth of time that others took on each rank's host; ``used`` is of every rank."""
        return tuple(self._others_on(host, used) for host in self._hosts)

    def by_name(self) -> dict[str, float]:
        """Cores' worth of time since the beginning, by program, on the leader's host; empty if not asked."""
        if not self._before:
            return {}
        after, seconds = core_time.core_seconds_by_process(), perf_counter() - self._began
        own = self._own_pids | core_time.descendants(self._own_pids)  # a loader's processes too
        used = core_time.seconds_by_name(self._before, after, own)
        cores = [(name, round(value / seconds, 4)) for name, value in used.items()]
        return dict([(name, value) for name, value in cores if value >= LEAST_CORES][:LARGEST])

    def _others_on(self, host: str, used: Sequence[CoresUsed]) -> float | None:
        of_host = [each for name, each in zip(self._hosts, used, strict=True) if name == host]
        if of_host[0].host is None:
            return None
        return max(0.0, of_host[0].host - sum(each.own for each in of_host))
