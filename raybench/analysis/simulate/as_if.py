"""What more devices would bring: measured as if there were so many, simulated, or required of a network.

Measured: the variants ``as_if`` of a trial, in whose steps only the time of a collective is assumed. Their
interval holds that of the rounds, and the network's from as slow to as fast as it may be, as the simulated
step carries it over. Simulated: the trial's own gradients, buckets and overlap with the all-reduce of a
network, where nothing was measured as if. Required: what a step may take at an efficiency is that of the
slowest device over a free network and what the network adds; the bus bandwidth that adds no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from raybench.analysis.collectives import bus_factor
from raybench.analysis.laws import DOUBLINGS
from raybench.analysis.resolve import Facts
from raybench.analysis.simulate.timeline import StepModel, Wire
from raybench.analysis.simulate.what_if import MODEL_ERROR, can_be_asked, step_model
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.units import as_if_unit, baseline_unit, level_unit
from raybench.records.record import TrialRecord
from raybench.records.requests import AsIf
from raybench.spec.network import Line, Network

TARGET_STEP = 0.05  # of the efficiency that is required
NEAR_CEILING = 0.02  # nearer to a free network's none is required: any bandwidth would be needed
CURVE_POINTS = 25
BISECTIONS = 60
LEAST_BYTES_PER_S, MOST_BYTES_PER_S = 1e6, 1e13  # of a network


@dataclass(frozen=True)
class OnMore:
    """A step of the headline's setting on more devices. Efficiency and speed-up are over one device."""

    asked: AsIf
    how: Literal["as if", "simulated"]
    batch_size: int  # as the study counts it: of each device, under strong scaling of all
    batch_per_device: float
    step_time_s: Estimate
    throughput_samples_per_s: Estimate
    speedup: Estimate | None
    efficiency: Estimate | None
    network_share: float  # of the variance behind the interval, that is the network's
    held_s: float | None = None  # by which a step's collectives were held longer
    waited_s: float | None = None  # for the slowest device, in a step


@dataclass(frozen=True)
class Requirement:
    """What a network has to bring so many devices, under weak scaling."""

    world_size: int
    ceiling: Estimate  # efficiency over a free network: the slowest device alone
    target: float | None  # efficiency below it; None: communication leaves nothing to require
    bus_bytes_per_s: float | None  # that reaches it, of all links of a node; None: none does, or any
    curve: tuple[tuple[float, float], ...]  # bus bandwidth in bytes/s, and efficiency; around what is needed


@dataclass(frozen=True)
class MoreDevices:
    """What more devices would bring to the headline's setting."""

    record: TrialRecord
    points: tuple[OnMore, ...]  # by world size
    requirements: tuple[Requirement, ...]  # by world size; empty: no timeline, or strong scaling


def more_devices(
    results: Facts, network: Network | None = None, sizes: Sequence[int] | None = None
) -> MoreDevices | None:
    """What more devices would bring to the headline; None where it is of one device, or nothing is known.

    ``network``: to simulate ``sizes`` on, where they were not measured as if on it.
    """
    headline = results.headline
    if headline is None or headline.config.world_size == 1 or headline.config.oversubscribed:
        return None
    seen = _Seen(results, headline)
    measured = list(seen.measured())
    known = {each.asked for each in measured}
    waits = {each.asked.world_size: each.waited_s or 0.0 for each in reversed(measured)}
    asked = (
        []
        if network is None
        else [as_if_on(network, size, headline.config.device) for size in sizes or seen.next_sizes]
    )
    simulated = [
        seen.simulated(each) for each in asked if each.lines and each not in known and seen.can_simulate
    ]
    if network is not None:
        measured = [each for each in measured if each.asked in asked]
    points = sorted((*measured, *simulated), key=lambda each: each.asked.world_size)
    required = sizes or [each.asked.world_size for each in points] or seen.next_sizes
    requirements = (
        tuple(seen.requirement(size, waits.get(size, 0.0)) for size in dict.fromkeys(required))
        if seen.can_simulate
        else ()
    )
    return MoreDevices(headline, tuple(points), requirements) if points or requirements else None


def as_if_on(network: Network, world_size: int, device: str) -> AsIf:
    """So many devices of a kind on a network. Raises ``ValueError`` where it has fewer.

    gloo's all-reduce is a ring. On one node whose own links are not known they are joined as those here are.
    """
    if network.nodes(world_size) == 1 and network.local_bytes_per_s is None:
        return AsIf(world_size=world_size)
    if device == "cpu":
        network = network.model_copy(update={"algorithms": ("ring",)})
    return AsIf(
        world_size=world_size,
        nodes=network.nodes(world_size),
        network=network.name,
        lines=network.lines(world_size),
        slow_lines=network.lines(world_size, 0.0),
        fast_lines=network.lines(world_size, 1.0),
    )


class _Seen:
    """The headline's setting, as its trials have shown it."""

    def __init__(self, results: Facts, headline: TrialRecord) -> None:
        self._results, self._fit, self._pool = results, results.fit, results.fit.pool
        self._config, self._buckets = headline.config, results.fit.buckets
        self._visits = self._fit.visits(headline)
        self._shown = next((each for each in self._visits if can_be_asked(each)), None)
        self._base = baseline_unit(self._config)

    @property
    def next_sizes(self) -> list[int]:
        """The next doublings."""
        return [self._config.world_size * factor for factor in DOUBLINGS]

    @cached_property
    def _model(self) -> StepModel | None:
        return None if self._shown is None else step_model(self._shown, self._results.measured, self._fit)

    @property
    def can_simulate(self) -> bool:
        """Whether the step is known without transfers, at the batch that more devices would have."""
        return self._config.scaling == "weak" and self._model is not None and self._pool.has(self._base)

    def measured(self) -> Iterator[OnMore]:
        """What was measured as if on more devices, in any visit."""
        found: dict[object, tuple[AsIf, list[tuple[float, ...]]]] = {}
        for record in self._visits:
            request, steps = record.request, record.steps
            if request.kind != "steps" or steps is None:
                continue
            for asked, held in zip(request.as_if, steps.held, strict=False):
                unit = as_if_unit(self._config, self._buckets, asked)
                if self._pool.has(unit):
                    added = held.held_s, held.slow_held_s, held.fast_held_s, held.waited_s
                    found.setdefault(unit, (asked, []))[1].append(added)
        for unit, (asked, of_visits) in found.items():
            held_s, slow_s, fast_s, waited_s = np.mean(of_visits, axis=0).tolist()
            step_s = self._pool.time(unit)
            over = self._pool.contrast({self._base: 1.0, unit: -1.0}) if self._pool.has(self._base) else None
            share = 1.0 if self._config.scaling == "weak" else 1 / asked.world_size
            yield self._on_more(
                asked,
                "as if",
                step_s,
                over.ratio(share) if over else None,
                self._network_ends(asked, step_s.value, (slow_s - held_s, fast_s - held_s)),
                held_s=held_s,
                waited_s=waited_s,
            )

    def simulated(self, asked: AsIf) -> OnMore:
        """The step over a network, by its schedule alone."""
        step_s = self._step_s(self._no_faster(asked.lines, asked))
        own = self._pool.time(self._fit.unit(self._visits[0]))
        half = math.hypot(own.log_half_width, MODEL_ERROR)
        estimate = Estimate(step_s, step_s * math.exp(-half), step_s * math.exp(half), own.n)
        ratio = inverse(estimate).scaled(self._pool.time(self._base).value)
        return self._on_more(asked, "simulated", estimate, ratio, self._network_ends(asked, step_s))

    def requirement(self, world_size: int, waited_s: float) -> Requirement:
        """What so many devices need that wait so long for the slowest."""
        slowest = level_unit(self._config, self._buckets, "local slowest")
        local_s = self._pool.time(slowest).value
        share = local_s / (local_s + waited_s)
        ceiling = self._pool.contrast({self._base: 1.0, slowest: -1.0}).ratio(share)
        target = math.floor((ceiling.value - NEAR_CEILING) / TARGET_STEP + 1e-9) * TARGET_STEP
        base_s, factor = self._pool.time(self._base).value, bus_factor("all_reduce", world_size)

        free_s, simulated_free_s = base_s / ceiling.value, self._step_s(((0.0, 0.0),))

        def efficiency(bytes_per_s: float) -> float:
            exposed_s = self._step_s(((0.0, factor / bytes_per_s),)) - simulated_free_s
            return base_s / (free_s + max(exposed_s, 0.0))

        needed = _least(efficiency, target) if target > 0 else None
        grid = np.geomspace(needed / 30, needed * 30, CURVE_POINTS).tolist() if needed else []
        curve = tuple((each, efficiency(each)) for each in grid)
        return Requirement(world_size, ceiling, target if needed else None, needed, curve)

    def _on_more(
        self,
        asked: AsIf,
        how: Literal["as if", "simulated"],
        step_s: Estimate,
        efficiency: Estimate | None,
        ends: tuple[float, float],
        held_s: float | None = None,
        waited_s: float | None = None,
    ) -> OnMore:
        """``ends``: the logarithm of the step over the slowest network, and over the fastest."""
        n, steps = asked.world_size, self._visits[0].steps
        assert steps is not None
        weak = self._config.scaling == "weak"
        samples = steps.samples_per_step * (n / self._config.world_size if weak else 1)
        batch = int(self._config.setting.batch_size)
        own, far = step_s.log_half_width, max(map(abs, ends))
        wide = _widened(step_s, ends)
        return OnMore(
            asked=asked,
            how=how,
            batch_size=batch,
            batch_per_device=batch if weak else batch / n,
            step_time_s=wide,
            throughput_samples_per_s=inverse(wide).scaled(samples),
            speedup=None if efficiency is None else _narrowed(efficiency, ends).scaled(n),
            efficiency=None if efficiency is None else _narrowed(efficiency, ends),
            network_share=far**2 / (far**2 + own**2) if far else 0.0,
            held_s=held_s,
            waited_s=waited_s,
        )

    def _network_ends(
        self, asked: AsIf, step_s: float, more_s: tuple[float, float] = (0.0, 0.0)
    ) -> tuple[float, float]:
        """The logarithm of the step over the slowest network over the middle one's, and over the fastest.

        ``more_s``: by how much all-reduces are held longer there, all of it in the step if none is simulated.
        """
        if not asked.slow_lines:
            return 0.0, 0.0
        if not self.can_simulate:
            slow, fast = (math.log(max(step_s + each, step_s / 2) / step_s) for each in more_s)
            return slow, fast
        middle_s, slow_s, fast_s = (
            self._step_s(self._no_faster(lines, asked))
            for lines in (asked.lines, asked.slow_lines, asked.fast_lines)
        )
        return math.log(slow_s / middle_s), math.log(fast_s / middle_s)

    def _no_faster(self, lines: Sequence[Line], asked: AsIf) -> tuple[Line, ...]:
        """``lines``, where devices share nodes no faster than these share theirs."""
        assert self._model is not None
        if asked.nodes == asked.world_size:
            return tuple(lines)
        n, here = self._config.world_size, self._model.wire.s_per_byte
        least = here * bus_factor("all_reduce", asked.world_size) / bus_factor("all_reduce", n)
        return tuple((latency_s, max(s_per_byte, least)) for latency_s, s_per_byte in lines)

    def _step_s(self, lines: Sequence[Line]) -> float:
        """The simulated step each of whose all-reduces takes the fastest of ``lines``."""
        model = self._model
        assert model is not None
        first, *others = lines
        wire = Wire(*first, model.wire.at_once, model.wire.slowdown, tuple(others))
        return replace(model, wire=wire).step_s(self._config.setting.bucket_cap_mb)


def _least(efficiency: Callable[[float], float], target: float) -> float | None:
    """The least bandwidth that reaches ``target``; None where none does, or the least of all."""
    low, high = math.log(LEAST_BYTES_PER_S), math.log(MOST_BYTES_PER_S)
    if efficiency(math.exp(high)) < target or efficiency(math.exp(low)) >= target:
        return None
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if efficiency(math.exp(middle)) >= target else (middle, high)
    return math.exp(high)


def _widened(step_s: Estimate, ends: tuple[float, float]) -> Estimate:
    """The interval of a time with that of the network: independent, so logarithms add in squares."""
    slow, fast = max(ends[0], 0.0), max(-ends[1], 0.0)

    def wide(low: float, high: float) -> tuple[float, float]:
        up = math.hypot(math.log(high / step_s.value), slow)
        down = math.hypot(math.log(step_s.value / low), fast)
        return step_s.value * math.exp(-down), step_s.value * math.exp(up)

    low, high = wide(step_s.low, step_s.high)
    return replace(step_s, low=low, high=high, again=step_s.again and wide(*step_s.again))


def _narrowed(rate: Estimate, ends: tuple[float, float]) -> Estimate:
    """The same of what falls where the time grows."""
    return inverse(_widened(inverse(rate), ends))
