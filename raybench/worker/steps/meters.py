"""What the device and its host report while rounds run: clock, energy, utilization, other programs.

The device is looked at when the last step of a block is given, so that no step is delayed: a GPU is then
still at work. When the blocks of a round are done it idles, and reports values of idling.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from raybench.machine import core_time
from raybench.machine.host import allowed_cores, host_id, numbered
from raybench.records.requests import Variant
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device


@dataclass(frozen=True)
class Energy:
    """What this rank's device took for all steps of one variant."""

    joules: float
    steps: int


@dataclass(frozen=True)
class RoundLook:
    """What this rank's device told in one round; None: nothing."""

    clock_mhz: float | None = None
    throttled: bool | None = None


class BlockMeters:
    """Looks at the blocks of what is measured and at those of one device alone."""

    def __init__(self, device: Device, measured: Variant) -> None:
        self._device, self._measured = device, measured
        self._metered: tuple[Variant, ...] = (measured, "plain")
        self._before: float | None = None
        self._round = RoundLook()
        self._shares: list[float] = []  # of what is measured
        self.energy: dict[Variant, Energy] = {}

    @property
    def utilization(self) -> float | None:
        """While what is measured ran, 0 to 1, mean over blocks; None where it is not told."""
        return sum(self._shares) / len(self._shares) if self._shares else None

    def begin(self, variant: Variant) -> None:
        """A block begins; the device has nothing to do yet."""
        self._before = self._device.energy_joules() if variant in self._metered else None

    def look(self, variant: Variant) -> None:
        """All steps of the block are given."""
        if variant not in self._metered:
            return
        throttled = self._device.throttled()
        if throttled is not None:
            self._round = replace(self._round, throttled=throttled or bool(self._round.throttled))
        if variant != self._measured:
            return
        self._round = replace(self._round, clock_mhz=self._device.clock_mhz())
        share = self._device.utilization()
        if share is not None:
            self._shares.append(share)

    def end(self, variant: Variant, steps: int) -> None:
        """The device is done with the block's ``steps``."""
        after = self._device.energy_joules() if self._before is not None else None
        if self._before is not None and after is not None:
            known = self.energy.get(variant, Energy(0.0, 0))
            self.energy[variant] = Energy(known.joules + after - self._before, known.steps + steps)

    def take_round(self) -> RoundLook:
        """Of the round that ends; where this rank did not run what is measured, its clock now."""
        found, self._round = self._round, RoundLook()
        return found if found.clock_mhz is not None else replace(found, clock_mhz=self._device.clock_mhz())


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
        """``names``: list programs separately, which looks at every process twice: a second on a large node.

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
        """Cores' worth of time by program on the leader's host so far; empty without ``names``."""
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
