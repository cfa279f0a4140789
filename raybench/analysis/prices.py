"""Prices of devices and nodes: what an hour on a shape costs."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.spec.study import Study

HOUR_S = 3600.0


@dataclass(frozen=True)
class Prices:
    """In any currency, for an hour; None where there is no such price. Where both are set both are paid."""

    per_device_hour: float | None = None
    per_node_hour: float | None = None

    @property
    def are_known(self) -> bool:
        """Whether there is any."""
        return self.per_device_hour is not None or self.per_node_hour is not None

    def of_second(self, devices: int, nodes: int) -> float | None:
        """What a second of so many devices on so many nodes costs; None without a price."""
        if not self.are_known:
            return None
        return (devices * (self.per_device_hour or 0.0) + nodes * (self.per_node_hour or 0.0)) / HOUR_S


def prices_of(study: Study) -> Prices:
    """Those of ``[cost]``."""
    return Prices(study.cost.price_per_device_hour, study.cost.price_per_node_hour)
