"""What the rounds of trials say by themselves, of many at once: step times, and speed-ups over one device."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.estimates.many import Estimates, Floats, geometrics, measured
from raybench.analysis.estimates.stacked import Stacked
from raybench.records.requests import Variant


@dataclass(frozen=True)
class BesideOneDevice:
    """One device alone in the same rounds, and the speed-ups over it."""

    alone_s: Estimates
    speedups: Estimates


def step_times(rows: Stacked, *, several: bool) -> Estimates:
    """``efficiency.step_time`` of each trial, all of them on one device or all on ``several``."""
    variants: tuple[Variant, ...] = ("synced", "plain") if several else ("plain", "synced")
    for variant in variants:
        values = rows.series(variant)
        if values is not None:
            return geometrics(measured(values))
    raise ValueError(f"no rounds of {' or '.join(variants)}")


def beside_one_device(rows: Stacked, world_sizes: Floats, *, strong: bool) -> BesideOneDevice | None:
    """One device and the speed-up over it in the same rounds; None where two rounds have not both.

    Under ``strong`` scaling one device at the global batch; under weak n devices do n times the samples.
    """
    alone, synced = rows.series("base" if strong else "plain"), rows.series("synced")
    if alone is None or synced is None:
        return None
    ratios = measured(alone / synced)
    if ratios.shape[1] < 2:
        return None
    speedups = geometrics(ratios).scaled(1.0 if strong else world_sizes)
    return BesideOneDevice(geometrics(measured(alone)), speedups)
