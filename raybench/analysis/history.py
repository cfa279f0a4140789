"""What studies on one machine have shown of how much trials and starts differ: what the next one begins with.

Each report leaves ``spreads.json``. Trials and units are the geometric mean over studies. Starts are what
each run of a study differs by from the one before it, drawn to the typical spread with six degrees of
freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from operator import itemgetter
from statistics import geometric_mean, median
from typing import Any

from raybench.analysis.reference import grouped
from raybench.analysis.resolve import Facts
from raybench.analysis.stats.pool import POOLED_DEGREES, TYPICAL
from raybench.machine.environment import Environment, Spreads
from raybench.machine.host import DeviceKind

SHOWN = "spreads.json"  # in a report
LEAST_TRIALS = 6  # fewer show nothing of what trials differ by
MEDIAN_OF_SQUARES = 0.455  # of a normal deviate, over their mean
LEAST_DIFFERENCES = 3  # between runs: of fewer one that the user made would be the median


def machine_of(environment: Environment, device: DeviceKind) -> dict[str, Any]:
    """What must be equal where a study is to know of another one's spreads."""
    return {
        "device": device,
        "name": environment.device_name(device),
        "cores": environment.usable_cores,
        "nodes": len(environment.nodes),
    }


def shown(facts: Facts, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Its spreads, and the default's step time and efficiency, which other runs of the study have too."""
    found: dict[str, Any] = {
        "machine": dict(machine),
        "trials": len(facts.measured),
        "spreads": asdict(facts.fit.pool.spreads),
    }
    if facts.default is not None:
        scaling = facts.scaling(facts.default)
        is_measured = scaling.efficiency is not None and not scaling.is_baseline  # whose own is 1
        found |= {
            "default": facts.default.trial_id,
            "starts": scaling.step_time_s.starts,
            "step_time_s": scaling.step_time_s.value,
            "efficiency": scaling.efficiency.value if scaling.efficiency and is_measured else None,
        }
    return found


def known_spreads(machine: Mapping[str, Any], every: Iterable[Mapping[str, Any]]) -> Spreads | None:
    """What ``every`` study on the same machine says, the oldest first; None where none was large enough."""
    there = [
        each for each in every if each.get("machine") == machine and each.get("trials", 0) >= LEAST_TRIALS
    ]
    if not there:
        return None
    typical = TYPICAL[machine["device"]]
    runs = grouped((each for each in there if each.get("default")), itemgetter("default"))
    return Spreads(
        trial=geometric_mean(each["spreads"]["trial"] for each in there),
        unit=geometric_mean(each["spreads"]["unit"] for each in there),
        start=_between(runs.values(), "step_time_s", typical.start),
        # an efficiency is a ratio of two units
        start_unit=_between(runs.values(), "efficiency", math.sqrt(2) * typical.start_unit) / math.sqrt(2),
    )


def _between(groups: Iterable[Sequence[Mapping[str, Any]]], name: str, typical: float) -> float:
    """The standard deviation of a logarithm between starts, over all studies that ran more than once.

    By the median of what successive runs differ by: what changed between two of them, as the user's own code
    or a library, is no spread, and counts once.
    """
    squares = list[float]()
    for group in groups:
        known = [each for each in group if each.get(name)]
        for one, other in pairwise(known):
            starts = 1 / one.get("starts", 1) + 1 / other.get("starts", 1)
            squares.append(math.log(one[name] / other[name]) ** 2 / starts)
    if len(squares) < LEAST_DIFFERENCES:
        return typical
    shown = median(squares) / MEDIAN_OF_SQUARES
    degrees = POOLED_DEGREES + len(squares)
    return math.sqrt((POOLED_DEGREES * typical**2 + len(squares) * shown) / degrees)
