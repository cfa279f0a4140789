"""What the device and its host report: clock and other programs in the rounds, utilisation and energy after.

A GPU does its steps long after they are given. So it is looked at when it has come to a late one, with steps
still to do: when all are done it idles, and reports values of idling.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from raybench.machine import host
from raybench.machine.host import allowed_cores, host_id, numbered
from raybench.records.requests import Variant
from raybench.records.results import PCIeLink
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device, Moment
from raybench.worker.memory import allocator_retries
from raybench.worker.strategies.models import StrategyModels


@dataclass
class RoundLook:
    """What this rank's device reported in one round; None: nothing."""

    clock_mhz: float | None = None
    throttled: bool | None = None
    temperature_c: float | None = None
    clocks_mhz: dict[Variant, float | None] = field(default_factory=dict)  # by variant, of GPUs


CLOCKED: tuple[Variant, ...] = ("plain", "concurrent")  # besides what is measured: one at work, and all


class BlockMeters:
    """Looks at the blocks of what is measured, and of the bare model on one device and on all."""

    def __init__(self, device: Device, measured: Variant) -> None:
        self._device, self._measured = device, measured
        self._round = RoundLook()
        self.pcie_link: PCIeLink | None = None  # when it was last looked at
        self.allocator_retries = 0  # in timed steps: the first of a block find what other variants have left

    def start(self, variant: Variant) -> None:
        """The timed steps of a block begin."""
        if variant == self._measured:
            self.allocator_retries -= allocator_retries(self._device)

    def look(self, variant: Variant, late: Moment) -> None:
        """All steps of the block are given: looks when the device has come to ``late``, one of the last."""
        if variant not in (self._measured, *CLOCKED):
            return
        late.synchronize()  # delays no step
        device, look = self._device, self._round
        throttled = device.throttled()
        if throttled is not None:
            look.throttled = throttled or bool(look.throttled)
        if device.tells_utilization:  # its own clock, not the mean over a host's cores
            look.clocks_mhz[variant] = device.clock_mhz()
        if variant == self._measured:
            self.allocator_retries += allocator_retries(device)
            look.clock_mhz = look.clocks_mhz[variant] if look.clocks_mhz else device.clock_mhz()
            self.pcie_link = device.pcie_link()

    def take_round(self) -> RoundLook:
        """Of the round that ends; where this rank did not run what is measured, its cores' clock now."""
        found, self._round = self._round, RoundLook()
        if not found.clock_mhz and not self._device.tells_utilization:  # a GPU that idles has another
            found.clock_mhz = self._device.clock_mhz()
        found.temperature_c = self._device.temperature_c()
        return found


STEPS_AHEAD = 2  # given to the device, of those that nobody times: it must not idle, nor have many left to do
# Energy counters move every 0.1 s, and what was used before it is in the share of busy time for up to 1 s.
# Over half a second the figure was up to 15% wrong, by where the counter stood.
STRETCH_S, LEAD_S, LEAST_S = 2.0, 1.0, 1.0
MAX_SHARE = 0.25  # of the trial's time


@dataclass(frozen=True)
class Use:
    """What a device reports of steps without a pause."""

    utilization: float | None  # 0 to 1
    joules: float | None  # of a step


def use_of_trial(
    models: StrategyModels, team: Team, step_s: Mapping[Variant, float], max_seconds: float
) -> dict[str, Any]:
    """Fields of the result: utilisation and energy of what is measured, and energy of one device alone.

    ``step_s``: of each variant; ``max_seconds``: the trial's time. A collective call.
    """
    seconds, device = min(STRETCH_S, MAX_SHARE * max_seconds), models.device
    ranks, alone = list[Use | None](), None
    if team.size > 1:
        stepper = models.measured_stepper(team)
        team.barrier()
        ranks = team.gather(_use(stepper.step, step_s["ddp"], device, seconds) if stepper else None)
    if "plain" in step_s:
        alone = team.agreed(
            lambda: _use(models.bare.step, step_s["plain"], device, seconds) if team.leads else None
        )
        alone = team.from_leader(alone)
    ranks = ranks or [alone]
    joules = [None if each is None else each.joules for each in ranks]
    known = [each for each in joules if each is not None]
    return {
        "device_utilization": tuple(None if each is None else each.utilization for each in ranks),
        "energy_joules": sum(known) if len(known) == len(ranks) else None,
        "plain_energy_joules": None if alone is None else alone.joules,
    }


def _use(step: Callable[[], None], step_s: float, device: Device, seconds: float) -> Use:
    """Counters are read before and after a number of steps while the device still has others to do.

    So both readings lag behind equal work.
    """
    given = deque[Moment]()

    def run(count: int, after_step: Callable[[], None] = lambda: None) -> None:
        for _ in range(count):
            step()
            given.append(device.moment())
            if len(given) > STEPS_AHEAD:
                given.popleft().synchronize()
            after_step()

    run(STEPS_AHEAD + math.ceil(LEAD_S / step_s))
    meter = device.utilization_meter(1)
    before, steps = device.energy_joules(), math.ceil(seconds / step_s)
    run(steps, meter.after_step)
    after = device.energy_joules()
    device.synchronize()
    joules = None if before is None or after is None or seconds < LEAST_S else (after - before) / steps
    return Use(meter.mean(), joules)


@dataclass(frozen=True)
class CoresUsed:
    """Between two looks on one rank: cores' worth of time."""

    host: float | None  # of all processes on this rank's host; None: unknown
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
        own_s = host.own_core_seconds(with_children=self._has_children)
        return perf_counter(), host.busy_core_seconds(), own_s


class OtherLoad:
    """Adds up the ranks of a host, so that what is left of its use is others'."""

    def __init__(self, team: Team) -> None:
        """A collective call."""
        places: list[tuple[str, int]] = team.gather((host_id(), len(allowed_cores())))
        self._hosts = [host for host, _ in places]
        self.hosts = numbered(self._hosts)  # of each rank, the leader's is 0
        self.host_cores = tuple(cores for _, cores in places)  # of each rank's host

    def of_round(self, used: Sequence[CoresUsed]) -> tuple[float | None, ...]:
        """Cores' worth of time that others took on each rank's host; ``used`` is of every rank."""
        return tuple(self._others_on(host, used) for host in self._hosts)

    def _others_on(self, host: str, used: Sequence[CoresUsed]) -> float | None:
        of_host = [each for name, each in zip(self._hosts, used, strict=True) if name == host]
        if of_host[0].host is None:
            return None
        return max(0.0, of_host[0].host - sum(each.own for each in of_host))
