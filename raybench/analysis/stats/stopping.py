"""When a trial has been measured for long enough: one rule, for the worker, the fake and the coverage tests.

Imported by the workers, so: numpy and scipy only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raybench.analysis.stats.rounds import device_effects, slowest_rank_s
from raybench.analysis.stats.statistics import geometric, trimmed_mean
from raybench.records.requests import Variant
from raybench.records.results import MessageRound, Round, StopReason
from raybench.spec.study import MeasureSpec
from raybench.spec.sweep import SweepMeasureSpec

DEFAULT_HALF_WIDTH = {"cpu": 0.05, "cuda": 0.02}  # relative, where the study asks for none
LEAST_MEASURED = 3  # rounds, whatever the time; of two alone nothing is stopped
PATIENCE = 2.0  # times max_seconds, after which even too few rounds must do
# Against what the interval is requested: one device at the global batch, one device, another setting.
REFERENCES: tuple[Variant, ...] = ("base", "plain", "anchor")


@dataclass(frozen=True)
class Decision:
    """What is known after a round."""

    half_width: float | None  # relative, of the watched ratio; None: too few rounds
    stop: StopReason | None  # None: go on


def asked_half_width(measure: MeasureSpec, device: str) -> float:
    """The relative half-width that the study asks for on ``device`` ("cpu" or "cuda")."""
    return measure.half_width or DEFAULT_HALF_WIDTH[device]


def decide(rounds: Sequence[Round], measure: MeasureSpec, device: str, elapsed_s: float) -> Decision:
    """Whether to go on after ``rounds``, the last of which ended ``elapsed_s`` after the first began."""
    half_width = reached_half_width(rounds)
    return Decision(half_width, _stop(len(rounds), half_width, measure, device, elapsed_s))


def reached_half_width(rounds: Sequence[Round]) -> float | None:
    """Half of the interval of the watched ratio, relative; None for fewer than three rounds."""
    if len(rounds) < LEAST_MEASURED:
        return None
    devices = device_effects([(0, rounds)])
    return trimmed_mean([_watched(each, devices) for each in rounds]).half_width


def _stop(
    num_rounds: int, half_width: float | None, measure: MeasureSpec, device: str, elapsed_s: float
) -> StopReason | None:
    if measure.steps is not None:
        return "steps" if num_rounds >= measure.min_rounds else None
    if num_rounds >= LEAST_MEASURED and elapsed_s >= PATIENCE * measure.max_seconds:
        return "max_seconds"
    if num_rounds < measure.min_rounds:
        return None
    if half_width is not None and half_width <= asked_half_width(measure, device):
        return "half_width"
    return "max_seconds" if elapsed_s >= measure.max_seconds else None


def decide_sweep(
    rounds: Sequence[MessageRound], measure: SweepMeasureSpec, device: str, elapsed_s: float
) -> StopReason | None:
    """The same of a sweep's rounds: every message's interval is to be narrow enough."""
    if len(rounds) % measure.min_rounds == 0:
        times = defaultdict[tuple[str, int], list[float]](list)
        for block in (block for each in rounds for block in each.blocks):
            times[block.collective, block.message_bytes].append(block.slowest_s)
        widest = max(geometric(series).log_half_width for series in times.values())
        if widest <= (measure.half_width or DEFAULT_HALF_WIDTH[device]):
            return "half_width"
    return "max_seconds" if len(rounds) >= LEAST_MEASURED and elapsed_s >= measure.max_seconds else None


def _watched(round_: Round, devices: Mapping[tuple[int, int], float]) -> float:
    """The logarithm of what the interval is asked of, without what the device alone differs by.

    The efficiency, without one device the gain over the anchor; the step time where nothing is compared.
    """
    reference = next((block for name in REFERENCES if (block := round_.block(name))), None)
    measured = round_.block("ddp") or round_.block("plain")
    assert measured is not None, "a round has ddp or, on one device, plain"
    log = math.log(slowest_rank_s(measured))
    if reference is None or reference.variant == measured.variant:
        return log
    device = devices.get((0, reference.ranks[0]), 0.0) if len(reference.ranks) == 1 else 0.0
    return math.log(slowest_rank_s(reference)) - device - log
