"""What more devices would bring: measured as if there were so many, simulated, fitted, required of a network.

Measured: the variants ``as_if`` of a trial, in whose steps only the time of a collective is assumed.
Simulated: the trial's own gradients, buckets and overlap with the all-reduce of a network, and the wait for
the slowest, where nothing was measured as if. Fitted: by the steps on other numbers of devices (``outlook``).
Required: what a step may take at an efficiency is that of the slowest device over a free network and what the
network adds; the bus bandwidth that adds no more. Where none of these says anything a law does.

Intervals are of joint draws of every input: the steps here by the pool, latency and bandwidth of a network
each within its range, how delays of ranks are distributed, and one of the models that all say of the trial
what was measured. A network changes a step that was measured as if by as much as the simulated one. Where no
network is named, what collectives are held for is a guess from the devices here, with an error of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from raybench.analysis.collectives import bus_factor
from raybench.analysis.labels import devices_words
from raybench.analysis.laws import DOUBLINGS, ByLaw, by_law
from raybench.analysis.resolve import Facts
from raybench.analysis.simulate.fit import expected_maximum
from raybench.analysis.simulate.outlook import Outlook
from raybench.analysis.simulate.steps import Expected, How, Input, Question, ScalingMode, Shape
from raybench.analysis.simulate.timeline import StepModel, Wire, crossing
from raybench.analysis.simulate.what_if import MODEL_ERROR, step_models
from raybench.analysis.stats.pool import NUM_DRAWS, SEED, Array, Unit, Weights
from raybench.analysis.stats.rounds import blocks_of
from raybench.analysis.stats.statistics import (
    CONFIDENCE,
    NORMAL_95,
    Estimate,
    inverse,
    typical_over_mean,
    unpaired_ratio,
)
from raybench.analysis.units import as_if_unit, baseline_unit, level_unit
from raybench.records.record import TrialRecord
from raybench.records.requests import AS_IF, AsIf
from raybench.records.results import HeldSteps
from raybench.spec.network import Line, Network, links_needed, within

OF_CEILING = 0.95  # what is required of the efficiency over a free network: all of it no bandwidth brings
CURVE_POINTS, RATES = 25, 32
LOG_RATES = math.log(1e6), math.log(1e13)  # of a network, in bytes/s: the least, and the most
# of a range, from worst to best: where it is drawn, and how often; the ends are within a 95% interval
RANGE, WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.125, 0.25, 0.25, 0.25, 0.125)
MIDDLE = 2
# The pool draws by SEED, and each input by a number after it: of one seed two would be drawn alike.

# Relative, a standard deviation, of what a step is held for where no network is named. benchmarks/as_if.py:
# 0.20 and 0.28 in two runs of 36 cases on gloo, whose ring loses more between its chunks with more nodes.
HELD_ERROR = 0.25
LEAST_SHORTER = 0.01  # of a step: all-reduces that may be shorter by more make it an upper bound

LINKS = {"cpu": ("tcp-25", "tcp-100"), "cuda": ("tcp-100", "infiniband-400")}  # what nodes are sold with


@dataclass(frozen=True)
class Requirement:
    """What a network has to bring so many devices, under weak scaling."""

    world_size: int
    ceiling: Estimate  # efficiency over a free network: the slowest device alone
    bus_bytes_per_s: Estimate | None = None  # of all links of a node, for the target; None: none does, or any
    curve: tuple[tuple[float, float], ...] = ()  # bus bandwidth in bytes/s, and efficiency; around that
    links: tuple[tuple[str, int], ...] = ()  # presets, and how many of each a node needs


@dataclass(frozen=True)
class MoreDevices:
    """What more devices would bring to the headline's setting."""

    record: TrialRecord
    devices_per_node: int  # of a node
    points: tuple[Expected, ...]  # by world size
    requirements: tuple[Requirement, ...]  # by world size; empty: no timeline, or strong scaling
    law: ByLaw | None = None  # what one makes of the headline's speed-up, whatever says the points
    fitted: Outlook | None = None
    bus_bytes_per_s: float | None = None  # of the headline's all-reduces alone, on several nodes
    missing: tuple[tuple[int, str], ...] = ()  # numbers of devices that were not measured as if, and why

    def devices(self, number: int) -> str:
        """So many of them, in words."""
        return devices_words(number, self.record.config.device)


def more_devices(
    results: Facts,
    network: Network | None = None,
    sizes: Sequence[int] | None = None,
    fitted: Outlook | None = None,
    devices_per_node: int = 1,
) -> MoreDevices | None:
    """What more devices would bring to the headline; None where it is of one device, or nothing is known.

    ``network``: to simulate ``sizes`` on, where they were not measured as if on it. ``fitted``: what is
    predicted of the headline's setting by its steps on other numbers of devices. ``devices_per_node``: that
    a node has room for, where that is known.
    """
    headline = results.headline
    if headline is None or headline.config.world_size == 1 or headline.config.oversubscribed:
        return None
    mode = fitted.group.scaling if fitted else headline.config.scaling
    seen = _Seen(results, headline, mode, network, devices_per_node)
    found = {asked: point for asked, point in seen.measured() if not sizes or asked.world_size in sizes}
    if network is not None:
        on = [size for size in sizes or seen.next_sizes if network.joins(size)]
        on_it = [as_if_on(network, size, headline.config.device) for size in on]
        able = [each for each in on_it if each in found or (each.lines and seen.can_simulate)]
        found = {each: found[each] if each in found else seen.simulated(each) for each in able}
    points = sorted(found.values(), key=lambda each: each.shape.world_size)
    required = sizes or [each.shape.world_size for each in points] or seen.next_sizes
    requirements = tuple(
        seen.requirement(size)
        for size in dict.fromkeys(required if seen.can_simulate else ())
        # else no link between nodes is in it, or less than was measured
        if size >= headline.config.world_size
        and size > (network.devices_per_node if network else seen.per_node)
    )
    law = seen.law([each.shape.world_size for each in points] or required)
    if fitted is not None:
        batch = headline.config.setting.batch_size
        points += [each for each in fitted.answered if each.batch_size == batch]
        if not fitted.answered and not points and law is not None and batch in fitted.laws:
            points = [seen.by_law(*each) for each in law.speedups]
    if not points and not requirements and fitted is None:
        return None
    here = results.waterfall.bus_bandwidth_bytes_per_s if results.waterfall else None
    # what joins devices of one node says nothing of a network
    today = here.value if here and (headline.nodes or 1) > 1 else None
    missing = tuple((size, why) for size, why in seen.missing.items() if not sizes or size in sizes)
    return MoreDevices(headline, seen.per_node, tuple(points), requirements, law, fitted, today, missing)


def as_if_on(network: Network, world_size: int, device: str) -> AsIf:
    """So many devices of a kind on a network. Raises ``ValueError`` where it has fewer.

    gloo's all-reduce is a ring. On one node whose own links are not known they are joined as those here are.
    """
    nodes = network.nodes(world_size)
    if not network.says(world_size):
        return AsIf(world_size=world_size)
    if device == "cpu":
        network = network.model_copy(update={"algorithms": ("ring",)})
    return AsIf(
        world_size=world_size,
        nodes=nodes,
        network=network.name,
        lines=network.lines(world_size),
        slow_lines=network.lines(world_size, 0.0),
        fast_lines=network.lines(world_size, 1.0),
    )


class _Seen:
    """The headline's setting, as its trials have shown it."""

    def __init__(
        self,
        results: Facts,
        headline: TrialRecord,
        mode: ScalingMode,
        network: Network | None,
        devices_per_node: int,
    ) -> None:
        self._fit, self._pool = results.fit, results.fit.pool
        self._config, self._buckets = headline.config, results.fit.buckets
        self._visits, self._mode = self._fit.visits(headline), mode
        self.per_node = -(-headline.config.world_size // (headline.nodes or 1))
        if headline.nodes in (None, 1):
            self.per_node = max(self.per_node, devices_per_node)
        # a network that does not say what joins the devices of a node has them joined as those of one here
        is_inside_known = network is not None and network.local_bytes_per_s is not None
        self._is_joined_as_here = headline.nodes in (None, 1) and not is_inside_known
        self._base = baseline_unit(self._config)
        self._scaling = found = results.scaling(headline)
        # slow steps are at least as frequent on more devices, any of which may be the slow one
        self._typical_over_mean = typical_over_mean(found.step_time_s, found.mean_step_s)
        measured = self._visits[0].steps
        assert measured is not None
        self._samples = measured.samples_per_step  # of all devices here
        self.next_sizes = [self._config.world_size * factor for factor in DOUBLINGS]

    @cached_property
    def _models(self) -> tuple[StepModel, ...]:
        """Those that say of the step what was measured, the first the reported one; empty: none does."""
        return next(filter(None, (step_models(each, self._fit) for each in self._visits)), ())

    @property
    def can_simulate(self) -> bool:
        """Whether the step is known without transfers, at the batch that more devices would have."""
        return self._mode == "weak" and bool(self._models) and self._pool.has(self._base)

    @property
    def missing(self) -> dict[int, str]:
        """Why numbers of devices were not measured as if in any visit, where one was asked for them."""
        measured = {asked.world_size for asked, _ in self._as_if.values()}
        return {
            asked.world_size: record.steps.missing[name]
            for record in self._visits
            if record.request.kind == "steps" and record.steps is not None
            for name, asked in zip(AS_IF, record.request.as_if, strict=False)
            if name in record.steps.missing and asked.world_size not in measured
        }

    @cached_property
    def _as_if(self) -> dict[Unit, tuple[AsIf, list[HeldSteps]]]:
        """As which devices it was measured too, and what was added to a step, by visit."""
        found: dict[Unit, tuple[AsIf, list[HeldSteps]]] = {}
        for record in self._visits:
            request, steps = record.request, record.steps
            if request.kind != "steps" or steps is None:
                continue
            for name, asked, held in zip(AS_IF, request.as_if, steps.held, strict=False):
                unit = as_if_unit(self._config, self._buckets, asked)
                if self._pool.has(unit) and name not in steps.missing:
                    found.setdefault(unit, (asked, []))[1].append(held)
        return found

    def measured(self) -> Iterator[tuple[AsIf, Expected]]:
        """What was measured as if on more devices, in any visit."""
        for unit, (asked, of_visits) in self._as_if.items():
            held_s, slow_s, fast_s, waited_s, shorter_s = (
                fmean(getattr(each, name) for each in of_visits)
                for name in ("held_s", "slow_held_s", "fast_held_s", "waited_s", "shorter_s")
            )
            step_s = self._pool.time(unit).value
            drawn: dict[Input, Array]
            if not asked.slow_lines:
                errors = HELD_ERROR * np.random.default_rng(SEED + 3).standard_normal(NUM_DRAWS)
                drawn = {"held": np.log(np.maximum(1 + errors * held_s / step_s, 0.5))}
            else:
                if self.can_simulate:
                    over = self._over_network(asked)
                    over = over - over[:, MIDDLE : MIDDLE + 1, MIDDLE : MIDDLE + 1]  # there it was measured
                else:  # all that is held longer is in the step
                    more_s = np.interp(RANGE, (0.0, 0.5, 1.0), (slow_s - held_s, 0.0, fast_s - held_s))
                    logs = np.log(np.maximum(1 + more_s / step_s, 0.5))
                    over = logs[None, None, :].repeat(len(RANGE), axis=1)
                drawn = _drawn(over)
            drawn["stragglers"] = self._late(asked.world_size, step_s - waited_s, step_s)
            point = self._point(asked, "as if", step_s, unit, drawn)
            yield asked, replace(point, is_bound=shorter_s > LEAST_SHORTER * step_s)

    def simulated(self, asked: AsIf) -> Expected:
        """The step over a network, by its schedule, after the wait for the slowest."""
        alone_s = self._network_step_s(self._models[0], asked)
        step_s = alone_s + self._waits_s(asked.world_size)[MIDDLE]
        drawn = _drawn(self._over_network(asked))
        drawn["stragglers"] = self._late(asked.world_size, alone_s, step_s)
        missed = np.random.default_rng(SEED + 2).standard_normal(NUM_DRAWS)
        drawn["model"] = drawn["model"] + MODEL_ERROR / NORMAL_95 * missed
        point = self._point(asked, "simulated", step_s, self._fit.unit(self._visits[0]), drawn)
        return replace(point, is_bound=list(asked.lines) != self._joined(asked, asked.lines, self._models[0]))

    def _late(self, world_size: int, alone_s: float, step_s: float) -> Array:
        """Draws of what the wait for the slowest of so many does to the logarithm of a step of ``step_s``.

        ``alone_s``: of the step without that wait.
        """
        logs = np.log((alone_s + self._waits_s(world_size)) / step_s)
        return np.asarray(logs[np.random.default_rng(SEED + 4).choice(len(RANGE), NUM_DRAWS, p=WEIGHTS)])

    def _waits_s(self, world_size: int) -> Array:
        """By how much the slowest of so many is later than that of the ranks here, in s: least to most.

        What a rank is always slower by stays. How far the largest of n values is above their mean grows as
        for a normal distribution at least, and at most as for an exponential one, where it is the sum of 1/k
        from 2 to n. What steps as if on so many have waited is in that range too.
        """
        steps = (record.steps for record in self._visits if record.steps)
        blocks = [block for each in steps for block in blocks_of(each.rounds, "local")]
        if not blocks:  # nor steps as if, which take their waits from these
            return np.zeros(len(RANGE))
        ranks_s = np.array([each.step_time_s for each in blocks])
        late_s = np.median([each.slowest_s for each in blocks] - ranks_s.mean(axis=1))
        always_s = np.median(ranks_s - ranks_s.mean(axis=1, keepdims=True), axis=0).max()
        here_s = max(float(late_s - always_s), 0.0)
        sizes = np.array([self._config.world_size, world_size], dtype=np.float64)
        grown = expected_maximum(sizes), np.array([(1 / np.arange(2, n + 1)).sum() for n in sizes])
        waited = [here_s * max(float(more / here) - 1, 0.0) for here, more in grown]
        for asked, held in self._as_if.values():
            waited += [each.waited_s for each in held if asked.world_size == world_size]
        return np.linspace(min(waited), max(waited), len(RANGE))

    def law(self, sizes: Sequence[int]) -> ByLaw | None:
        """What a law makes of the speed-up over one device; None without one."""
        found, setting = self._scaling, self._config.setting
        if found.speedup is None or found.baseline is None or found.baseline.world_size > 1:
            return None
        is_strong = self._mode == "strong"
        most = self._samples / setting.gradient_accumulation if is_strong else math.inf
        return by_law(found.speedup, self._config.world_size, is_strong=is_strong, asked=sizes, most=most)

    def by_law(self, size: int, speedup: Estimate) -> Expected:
        """What a law says."""
        asked, base, mean_s = self._question(AsIf(world_size=size)), self._scaling.baseline, None
        if base is not None and self._pool.has(self._base) and speedup.low > 0:
            # steps of one device for the samples of all
            times = asked.samples / self._samples * self._config.world_size * base.sample_ratio
            step_s = inverse(speedup).scaled(times * self._pool.time(self._base).value)
            mean_s = unpaired_ratio(step_s, self._typical_over_mean)
        return Expected(asked, efficiency=speedup.scaled(1 / size), mean_step_s=mean_s, how="law")

    def _question(self, asked: AsIf) -> Question:
        """The headline's step on more devices, with as many samples for each of a batch as it has here."""
        nodes = asked.nodes or -(-asked.world_size // self.per_node)
        setting = self._config.setting
        step = setting.batch_size, self._mode, setting.gradient_accumulation
        counted = self._samples / Question.of(Shape((self._config.world_size,)), *step).samples
        return Question.of(Shape.even(asked.world_size, nodes), *step, counted)

    def requirement(self, world_size: int) -> Requirement:
        """What so many devices need of a network."""
        slowest = level_unit(self._config, self._buckets, "local slowest")
        real = self._fit.unit(self._visits[0])
        as_if = [unit for unit, (asked, _) in self._as_if.items() if asked.world_size == world_size]
        # a free network is no slower than the one here, or one as if, whatever noise says of the steps
        # without transfers
        over_base: list[Weights] = [{self._base: 1.0, each: -1.0} for each in (slowest, real, *as_if)]
        local_s, base_s = self._pool.time(slowest).value, self._pool.time(self._base).value
        late_s = local_s + self._waits_s(world_size)[MIDDLE]
        waits = np.array([1.0, 1.0, *(0.0 for _ in as_if)])  # those as if have waited
        shares = waits * math.log(local_s / late_s)
        random = np.random.default_rng(SEED + 5)
        late = waits * self._late(world_size, local_s, late_s)[:, None]
        logs = (self._pool.draws(over_base) + shares - late).max(axis=1)
        ratios = zip(self._pool.contrasts(over_base), shares.tolist(), strict=True)
        best, share = max(ratios, key=lambda each: each[0].mean + each[1])
        free, ceiling = np.exp(logs), _estimate(best.ratio(math.exp(share)), logs - share - best.mean)
        free_network = Requirement(world_size, ceiling)
        factor = bus_factor("all_reduce", world_size)

        free_s = [self._step_s(((0.0, 0.0),), model) for model in self._models]

        def exposed_s(log_rate: float, number: int) -> float:
            with_s = self._step_s(((0.0, factor / math.exp(log_rate)),), self._models[number])
            return max(with_s - free_s[number], 0.0)

        def efficiency(log_rate: float) -> float:
            return 1 / (1 / ceiling.value + exposed_s(log_rate, 0) / base_s)

        log_rate = crossing(lambda tried: efficiency(tried) - OF_CEILING * ceiling.value, *LOG_RATES)
        if log_rate in LOG_RATES:
            return free_network
        rates = np.linspace(*LOG_RATES, RATES)
        allowed = base_s / free * (1 / OF_CEILING - 1)  # each draw has its own ceiling
        found, which = np.empty(NUM_DRAWS), random.choice(len(self._models), NUM_DRAWS)
        for number in range(len(self._models)):
            curve = np.maximum.accumulate([exposed_s(each, number) for each in rates[::-1]])
            found[which == number] = np.interp(allowed[which == number], curve, rates[::-1])
        least, most = np.exp(np.quantile(found, ENDS, method="inverted_cdf")).tolist()
        value = math.exp(log_rate)
        bandwidth = Estimate(value, min(least, value), max(most, value), ceiling.n)
        around = np.linspace(log_rate - math.log(30), log_rate + math.log(30), CURVE_POINTS).tolist()
        curve_points = tuple((math.exp(each), efficiency(each)) for each in around)
        presets = LINKS[self._config.device]
        links = tuple((each, links_needed(value, each)) for each in presets)
        return Requirement(world_size, ceiling, bandwidth, curve_points, links)

    def _point(
        self, asked: AsIf, how: How, step_s: float, unit: Unit, drawn: Mapping[Input, Array]
    ) -> Expected:
        """``unit``: of the steps that were measured; ``drawn``: what else changes the step's logarithm."""
        rounds, more = self._pool.contrast({unit: 1.0}), sum(drawn.values())
        own, over_one = rounds.ratio(), None
        (own_draws,) = self._pool.draws([{unit: 1.0}]).T
        time_s = _estimate(replace(own, value=step_s), own_draws - rounds.mean + more)
        if self._pool.has(self._base):
            weights = {self._base: 1.0, unit: -1.0}
            ratio = self._pool.contrast(weights)
            (draws,) = self._pool.draws([weights]).T
            share = 1.0 if self._mode == "weak" else 1 / asked.world_size
            value = share * self._pool.time(self._base).value / step_s
            over_one = _estimate(replace(ratio.ratio(), value=value), draws - ratio.mean - more)
        by_input: dict[Input, Array] = {"rounds": own_draws, **drawn}
        total = sum(float(each.var()) for each in by_input.values())
        return Expected(
            self._question(asked),
            time_s,
            over_one,
            unpaired_ratio(time_s, self._typical_over_mean),
            how=how,
            network=asked.network,
            shares=tuple((name, float(each.var()) / total) for name, each in by_input.items()),
        )

    def _over_network(self, asked: AsIf) -> Array:
        """The logarithm of the step over that of the first model in the middle of the network's ranges.

        Shape ``(models, latencies, bandwidths)``, from the worst of each range to its best.
        """
        slow, fast = asked.slow_lines or asked.lines, asked.fast_lines or asked.lines

        def lines(latency: float, bandwidth: float) -> Sequence[Line]:
            if latency == bandwidth == RANGE[MIDDLE]:
                return asked.lines
            return [
                (within((worst[0], best[0]), latency), within((worst[1], best[1]), bandwidth))
                for worst, best in zip(slow, fast, strict=True)
            ]

        middle_s = self._network_step_s(self._models[0], asked)
        steps_s = [
            [[self._network_step_s(model, asked, lines(one, other)) for other in RANGE] for one in RANGE]
            for model in self._models
        ]
        return np.asarray(np.log(np.array(steps_s) / middle_s))

    def _network_step_s(self, model: StepModel, asked: AsIf, lines: Sequence[Line] | None = None) -> float:
        """The step over ``lines``, those of the network by default."""
        return self._step_s(self._joined(asked, asked.lines if lines is None else lines, model), model)

    def _joined(self, asked: AsIf, lines: Sequence[Line], model: StepModel) -> list[Line]:
        """Those of devices that share nodes: where nothing says how, they are joined no faster than these."""
        if asked.nodes == asked.world_size or not self._is_joined_as_here:
            return list(lines)
        more, here = (bus_factor("all_reduce", n) for n in (asked.world_size, self._config.world_size))
        least = model.wire.s_per_byte * more / here
        return [(latency_s, max(s_per_byte, least)) for latency_s, s_per_byte in lines]

    def _step_s(self, lines: Sequence[Line], model: StepModel) -> float:
        """The simulated step each of whose all-reduces takes the fastest of ``lines``."""
        first, *others = lines
        wire = Wire(*first, model.wire.at_once, model.wire.slowdown, tuple(others))
        return replace(model, wire=wire).step_s(self._config.setting.bucket_cap_mb)


ENDS = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2


def _drawn(over: Array) -> dict[Input, Array]:
    """Draws of a model and of a network, of which ``over`` has what they do to the logarithm of a step.

    What each does alone; what they do together besides is the model's.
    """
    random = np.random.default_rng(SEED + 1)
    model = random.choice(len(over), NUM_DRAWS)
    latency, bandwidth = random.choice(len(RANGE), (2, NUM_DRAWS), p=WEIGHTS)
    by_latency, by_bandwidth = over[0, latency, MIDDLE], over[0, MIDDLE, bandwidth]
    together = over[model, latency, bandwidth]
    return {
        "latency": by_latency,
        "bandwidth": by_bandwidth,
        "model": together - by_latency - by_bandwidth,
    }


def _estimate(own: Estimate, logs: Array) -> Estimate:
    """``own`` with the interval of draws of its logarithm, less that of its value."""
    low, high = np.exp(np.quantile(logs, ENDS)).tolist()
    return replace(own, low=own.value * min(low, 1.0), high=own.value * max(high, 1.0), again=None)
