"""What studies on one machine have shown of how much trials and starts differ: what the next one begins with.

Each report leaves ``spreads.json``. Trials and units are the geometric mean over studies. Starts are what
runs of one study differ by: their variance, drawn to the typical one with six degrees of freedom.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import geometric_mean, variance
from typing import Any

from raybench.analysis.resolve import Facts
from raybench.analysis.stats.pool import POOLED_DEGREES, TYPICAL, Spreads
from raybench.machine.environment import Environment, KnownSpreads
from raybench.machine.host import DeviceKind

SHOWN = "spreads.json"  # in a report
LEAST_TRIALS = 6  # fewer show nothing of what trials differ by


def machine_of(environment: Environment, device: DeviceKind) -> dict[str, Any]:
    """What must be equal where a study is to know of another one's spreads."""
    name = environment.device_name(device)
    return {
        "device": device,
        "name": name,
        "cores": environment.usable_cores,
        "nodes": len(environment.nodes),
    }


def shown(facts: Facts, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Its spreads, and the default's step time and efficiency, which other runs of the study have too."""
    found: dict[str, Any] = {
        "machine": dict(machine),
        "trials": len(facts.measured),
        "spreads": asdict(facts.pool.spreads),
    }
    if facts.default is not None:
        scaling = facts.scaling(facts.default)
        efficiency = scaling.efficiency.value if scaling.efficiency else None
        found |= {
            "default": facts.default.trial_id,
            "step_time_s": scaling.step_time_s.value,
            "efficiency": efficiency,
        }
    return found


def known_spreads(machine: Mapping[str, Any], every: Iterable[Mapping[str, Any]]) -> KnownSpreads | None:
    """What ``every`` study on the same machine says; None where none was large enough."""
    there = [
        each for each in every if each.get("machine") == machine and each.get("trials", 0) >= LEAST_TRIALS
    ]
    if not there:
        return None
    typical = TYPICAL[machine["device"]]
    runs = defaultdict[str, list[Mapping[str, Any]]](list)
    for each in there:
        if each.get("default") and each.get("efficiency"):
            runs[each["default"]].append(each)
    return KnownSpreads(
        trial=geometric_mean(each["spreads"]["trial"] for each in there),
        unit=geometric_mean(each["spreads"]["unit"] for each in there),
        start=_between(runs.values(), "step_time_s", typical.start),
        # an efficiency is a ratio of two units
        start_unit=_between(runs.values(), "efficiency", math.sqrt(2) * typical.start_unit) / math.sqrt(2),
        studies=len(there),
    )


def _between(groups: Iterable[Sequence[Mapping[str, Any]]], name: str, typical: float) -> float:
    """The standard deviation of a logarithm between runs of one study, over all that ran more than once."""
    several = [[math.log(each[name]) for each in group] for group in groups if len(group) > 1]
    degrees = sum(len(each) - 1 for each in several)
    squares = sum(variance(each) * (len(each) - 1) for each in several)
    return math.sqrt((POOLED_DEGREES * typical**2 + squares) / (POOLED_DEGREES + degrees))


def spreads_of(environment: Environment) -> Spreads | None:
    """Those that the study in ``environment`` began with; None: typical ones."""
    known = environment.spreads
    return Spreads(known.trial, known.unit, known.start, known.start_unit) if known else None
