"""What more devices would bring: measured as if there were so many, simulated, fitted, required of a network.

Measured: the variants ``as_if`` of a trial, in whose steps only the time of a collective is assumed. Their
interval holds that of the rounds, and the network's from as slow to as fast as it may be, as the simulated
step carries it over. Simulated: the trial's own gradients, buckets and overlap with the all-reduce of a
network, where nothing was measured as if. Fitted: by the steps on other numbers of devices (``outlook``).
Required: what a step may take at an efficiency is that of the slowest device over a free network and what the
network adds; the bus bandwidth that adds no more. Where none of these says anything a law does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from raybench.analysis.collectives import bus_factor
from raybench.analysis.laws import DOUBLINGS, ByLaw
from raybench.analysis.resolve import Facts
from raybench.analysis.simulate.outlook import Outlook
from raybench.analysis.simulate.steps import Expected
from raybench.analysis.simulate.timeline import StepModel, Wire, crossing
from raybench.analysis.simulate.what_if import MODEL_ERROR, can_be_asked, step_model
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.units import as_if_unit, baseline_unit, level_unit
from raybench.records.record import TrialRecord
from raybench.records.requests import AsIf
from raybench.spec.network import Line, Network

OF_CEILING = 0.95  # what is required of the efficiency over a free network: all of it no bandwidth brings
CURVE_POINTS = 25
LOG_RATES = math.log(1e6), math.log(1e13)  # of a network, in bytes/s: the least, and the most

How = Literal["as if", "simulated", "fit", "law"]


@dataclass(frozen=True)
class OnMore:
    """The headline's setting on more devices. Efficiency and speed-up are over one device."""

    asked: AsIf
    how: How
    batch_per_device: float
    speedup: Estimate | None
    efficiency: Estimate | None
    step_time_s: Estimate | None = None
    total_step_s: Estimate | None = None  # of which totals are made
    samples: float = 0.0  # of all devices in a step
    network_share: float = 0.0  # of the variance behind the interval, that is the network's
    held_s: float | None = None  # by which a step's collectives were held longer
    waited_s: float | None = None  # for the slowest device, in a step


@dataclass(frozen=True)
class Requirement:
    """What a network has to bring so many devices, under weak scaling."""

    world_size: int
    ceiling: Estimate  # efficiency over a free network: the slowest device alone
    target: float | None  # OF_CEILING of it; None: communication leaves nothing to require
    bus_bytes_per_s: float | None  # that reaches it, of all links of a node; None: none does, or any
    curve: tuple[tuple[float, float], ...]  # bus bandwidth in bytes/s, and efficiency; around what is needed


@dataclass(frozen=True)
class MoreDevices:
    """What more devices would bring to the headline's setting."""

    record: TrialRecord
    points: tuple[OnMore, ...]  # by world size
    requirements: tuple[Requirement, ...]  # by world size; empty: no timeline, or strong scaling
    law: ByLaw | None = None  # that of the points, where nothing better is known
    fitted: Outlook | None = None
    bus_bytes_per_s: float | None = None  # of the headline's all-reduces alone, on the devices there are


def more_devices(
    results: Facts,
    network: Network | None = None,
    sizes: Sequence[int] | None = None,
    fitted: Outlook | None = None,
) -> MoreDevices | None:
    """What more devices would bring to the headline; None where it is of one device, or nothing is known.

    ``network``: to simulate ``sizes`` on, where they were not measured as if on it. ``fitted``: what is
    predicted of the headline's setting by its steps on other numbers of devices.
    """
    headline = results.headline
    if headline is None or headline.config.world_size == 1 or headline.config.oversubscribed:
        return None
    seen = _Seen(results, headline)
    points = list(seen.measured())
    waits = {each.asked.world_size: each.waited_s or 0.0 for each in reversed(points)}
    if network is not None:
        asked = [as_if_on(network, size, headline.config.device) for size in sizes or seen.next_sizes]
        known = {each.asked for each in points}
        points = [each for each in points if each.asked in asked]
        if seen.can_simulate:
            points += [seen.simulated(each) for each in asked if each.lines and each not in known]
    points.sort(key=lambda each: each.asked.world_size)
    required = sizes or [each.asked.world_size for each in points] or seen.next_sizes
    requirements = tuple(
        seen.requirement(size, waits.get(size, 0.0))
        for size in dict.fromkeys(required if seen.can_simulate else ())
    )
    law = None
    if fitted is not None:
        batch = int(headline.config.setting.batch_size)
        points += [seen.fitted(each) for each in fitted.answered if each.batch_size == batch]
        if not points and not any(each.target for each in requirements):
            law = fitted.laws.get(batch)
            points += [seen.by_law(*each) for each in law.speedups] if law else []
    if not points and not requirements and fitted is None:
        return None
    here = results.waterfall.bus_bandwidth_bytes_per_s if results.waterfall else None
    return MoreDevices(headline, tuple(points), requirements, law, fitted, here.value if here else None)


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
        self._base = baseline_unit(self._config)

    @property
    def next_sizes(self) -> list[int]:
        """The next doublings."""
        return [self._config.world_size * factor for factor in DOUBLINGS]

    @cached_property
    def _model(self) -> StepModel | None:
        shown = next((each for each in self._visits if can_be_asked(each)), None)
        return None if shown is None else step_model(shown, self._results.measured, self._fit)

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
            ends = self._network_ends(asked, step_s.value, (slow_s - held_s, fast_s - held_s))
            point = self._on_network(asked, "as if", step_s, over.ratio(share) if over else None, ends)
            yield replace(point, held_s=held_s, waited_s=waited_s)

    def simulated(self, asked: AsIf) -> OnMore:
        """The step over a network, by its schedule alone."""
        step_s = self._step_s(self._no_faster(asked.lines, asked))
        own = self._pool.time(self._fit.unit(self._visits[0]))
        half = math.hypot(own.log_half_width, MODEL_ERROR)
        estimate = Estimate(step_s, step_s * math.exp(-half), step_s * math.exp(half), own.n)
        ratio = inverse(estimate).scaled(self._pool.time(self._base).value)
        return self._on_network(asked, "simulated", estimate, ratio, self._network_ends(asked, step_s))

    def fitted(self, each: Expected) -> OnMore:
        """What a fit predicts."""
        size, efficiency = each.shape.world_size, each.efficiency
        return OnMore(
            AsIf(world_size=size, nodes=each.shape.nodes),
            "fit",
            self._batch_per_device(size),
            efficiency.scaled(size) if efficiency else None,
            efficiency,
            each.step_time_s,
            each.total_step_s,
            each.question.samples,
        )

    def by_law(self, size: int, speedup: Estimate) -> OnMore:
        """What a law says."""
        per_device = self._batch_per_device(size)
        return OnMore(AsIf(world_size=size), "law", per_device, speedup, speedup.scaled(1 / size))

    def requirement(self, world_size: int, waited_s: float) -> Requirement:
        """What so many devices need that wait so long for the slowest."""
        slowest = level_unit(self._config, self._buckets, "local slowest")
        local_s = self._pool.time(slowest).value
        share = local_s / (local_s + waited_s)
        ceiling = self._pool.contrast({self._base: 1.0, slowest: -1.0}).ratio(share)
        target = OF_CEILING * ceiling.value
        base_s, factor = self._pool.time(self._base).value, bus_factor("all_reduce", world_size)
        free_s, simulated_free_s = base_s / ceiling.value, self._step_s(((0.0, 0.0),))

        def efficiency(log_rate: float) -> float:
            exposed_s = self._step_s(((0.0, factor / math.exp(log_rate)),)) - simulated_free_s
            return base_s / (free_s + max(exposed_s, 0.0))

        log_rate = crossing(lambda tried: efficiency(tried) - target, *LOG_RATES)
        if log_rate in LOG_RATES:
            return Requirement(world_size, ceiling, None, None, ())
        around = np.linspace(log_rate - math.log(30), log_rate + math.log(30), CURVE_POINTS).tolist()
        curve = tuple((math.exp(each), efficiency(each)) for each in around)
        return Requirement(world_size, ceiling, target, math.exp(log_rate), curve)

    def _batch_per_device(self, world_size: int) -> float:
        batch = int(self._config.setting.batch_size)
        return batch if self._config.scaling == "weak" else batch / world_size

    def _on_network(
        self,
        asked: AsIf,
        how: How,
        step_s: Estimate,
        efficiency: Estimate | None,
        ends: tuple[float, float],
    ) -> OnMore:
        """``ends``: the logarithm of the step over the slowest network, and over the fastest."""
        n, steps = asked.world_size, self._visits[0].steps
        assert steps is not None
        of_each = n / self._config.world_size if self._config.scaling == "weak" else 1
        own, far = step_s.log_half_width, max(map(abs, ends))
        wide = _widened(step_s, ends)
        # what falls where the time grows
        narrowed = inverse(_widened(inverse(efficiency), ends)) if efficiency else None
        return OnMore(
            asked,
            how,
            self._batch_per_device(n),
            speedup=narrowed.scaled(n) if narrowed else None,
            efficiency=narrowed,
            step_time_s=wide,
            total_step_s=wide,
            samples=steps.samples_per_step * of_each,
            network_share=far**2 / (far**2 + own**2) if far else 0.0,
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


def _widened(step_s: Estimate, ends: tuple[float, float]) -> Estimate:
    """The interval of a time with that of the network: independent, so logarithms add in squares."""
    slow, fast = max(ends[0], 0.0), max(-ends[1], 0.0)

    def wide(low: float, high: float) -> tuple[float, float]:
        up = math.hypot(math.log(high / step_s.value), slow)
        down = math.hypot(math.log(step_s.value / low), fast)
        return step_s.value * math.exp(-down), step_s.value * math.exp(up)

    low, high = wide(step_s.low, step_s.high)
    return replace(step_s, low=low, high=high, again=step_s.again and wide(*step_s.again))
