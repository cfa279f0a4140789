"""What the device tells while blocks run: clock, throttling and utilization, and the energy of a step.

Looked at when the last step of a block is given, so that no step is delayed: a GPU is then still at work.
When the blocks of a round are done it idles, and what it tells is of idling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raybench.records.requests import Variant
from raybench.worker.devices.base import Device


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
