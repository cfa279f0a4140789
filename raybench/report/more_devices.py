"""More devices in one table, whatever says it, and what a network has to bring; plot and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raybench.analysis.cost import Work, cost_of
from raybench.analysis.labels import devices_of, devices_words
from raybench.analysis.laws import ByLaw
from raybench.analysis.objectives import Prices
from raybench.analysis.simulate.as_if import (
    LINKS,
    OF_CEILING,
    Input,
    MoreDevices,
    OnMore,
    Requirement,
)
from raybench.analysis.summary import model_name
from raybench.report.format import (
    aligned,
    duration_unit,
    factor,
    figures,
    gigabytes_per_s,
    interval,
    percent,
    plain_lasting,
    sentence,
    time_unit,
    times,
)
from raybench.report.plot import COLORS, GREY, legend_below, make_figure, write_title
from raybench.report.prediction import (
    PREDICTION_COLUMNS,
    prediction_rows,
    refusal_words,
    refusals_words,
    step_columns,
)
from raybench.report.table import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.knobs import KnobValue
from raybench.spec.study import MOST_AS_IF
from raybench.spec.workloads import ScriptSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from raybench.analysis.simulate.outlook import Outlook

GIGA, LEAST_GIGA = 1e9, 0.1
HALF = 0.5  # of the variance, from which on one input carries most of the width
WIDE = 0.05  # half an interval, relative: a narrower one is not worth a measurement
ON_NETWORK = ("as if", "simulated")  # how a point was found, where a network is assumed
MORE, REQUIRED = "More devices", "What the network must bring"


def more_table(more: MoreDevices | None, work: Work, prices: Prices) -> Table:
    """The headline's setting on more devices, and ``work``, a run."""
    if more is None or not more.points:
        return empty_table(MORE)
    known_s = [each.step_time_s.value for each in more.points if each.step_time_s]
    unit, per_s = time_unit(max(known_s, default=1e-3))
    runs = {
        each: cost_of(
            work,
            each.total_step_s.scaled(work.samples / each.samples),
            each.asked.world_size,
            each.asked.nodes or -(-each.asked.world_size // more.devices_per_node),
            prices,
        )
        for each in more.points
        if each.total_step_s is not None
    }
    run_unit, run_unit_s = duration_unit(max((run.time_s.value for run in runs.values()), default=1.0))
    law = more.by_law if more.law is None else None
    laws = dict(law.speedups) if law else {}

    def how(each: OnMore) -> str:
        return f"{each.how}, {each.asked.network or 'joined as here'}" if each.how in ON_NETWORK else each.how

    def step_time(each: OnMore) -> str:
        return known(each.step_time_s, lambda step_s: interval(step_s.scaled(per_s)))

    def epoch_time(each: OnMore) -> str:
        return known(runs.get(each), lambda run: plain_lasting(run.time_s.scaled(1 / work.epochs)))

    def by_law(each: OnMore) -> str:
        return known(laws.get(each.asked.world_size), times)

    def run_time(each: OnMore) -> str:
        return known(runs.get(each), lambda run: interval(run.time_s.scaled(1 / run_unit_s)))

    def cost(each: OnMore) -> str:
        run = runs.get(each)
        return known(run.money if run else None, interval)

    columns: list[Column[OnMore]] = [
        Column("devices", lambda each: f"{each.asked.world_size:,}", right=True),
        Column("how", how),
        Column("batch per device", lambda each: f"{each.batch_per_device:g}", right=True),
        Column("epoch", epoch_time, right=True)
        if work.epochs
        else Column(f"step, {unit}", step_time, right=True),
        Column("speed-up", lambda each: known(each.speedup, factor), right=True),
        Column("efficiency", lambda each: known(each.efficiency, percent), right=True),
        *([Column[OnMore](f"by {law.law}'s law", by_law, right=True)] if law else []),
        Column("cost of a run", cost, right=True)
        if prices.are_known
        else Column(f"run, {run_unit}", run_time, right=True),
    ]
    a_run = f" A run is {work.name.removeprefix('a run of ')}." if runs else ""
    a_law = f" {_law_words(law)}" if law else ""
    return make_table(MORE, f"{how_words(more)}{a_law}{a_run}", columns, more.points)


def _law_words(law: ByLaw) -> str:
    """What the column rests on."""
    f = law.fraction
    most = f", at most {figures(1 / f.value)}x (1/f)" if law.law == "Amdahl" and f.value else ""
    return f"{law.law}'s law, not a prediction: f = {percent(f)} on {devices_words(law.measured_on)}{most}."


HOW_WORDS = {
    "as if": "As if: measured in the rounds of {here}, whose all-reduces were held for as long as that many "
    "devices need, and whose steps waited for the slowest of them.",
    "simulated": "Simulated: from the gradients and buckets of {here}, with a wait for the slowest of them "
    "(`scaling --as-if` measures it).",
    "fit": "Fit: a model of the step, to all measured numbers of devices; intervals of a new run.",
}
SWEEP = "`communication` on two nodes of it measures it"
# what an interval's width may be from, and the measurement that narrows it
WIDTH_WORDS: dict[Input, str] = {
    "rounds": "the noise of the steps measured here: four times as many visits (`measure.visits`) halve that",
    "latency": f"the network's latency: {SWEEP}",
    "bandwidth": f"the network's bandwidth: {SWEEP}",
    "stragglers": "the wait for the slowest device: `scaling --as-if` measures it",
    "model": "the simulation: `scaling --as-if` measures the step",
}


def how_words(more: MoreDevices) -> str:
    """How the points were found, and what carries the width of their intervals."""
    here, hows = devices_of(more.record.config), {each.how for each in more.points}
    found = [words.format(here=here) for how, words in HOW_WORDS.items() if how in hows]
    if more.law is not None:
        f = more.law.fraction
        found.append(
            f"By {more.law.law}'s law, not predicted: f = {percent(f)} by the speed-up of {here}. What the "
            "network between more devices costs is not in it."
        )
        if more.law.law == "Amdahl" and f.value:
            found.append(f"No number of devices reaches more than {figures(1 / f.value)} (1/f).")
    on_network = [each for each in more.points if each.how in ON_NETWORK]
    if any(each.asked.network is None for each in on_network):
        found.append("Further devices are taken to be joined as these are (`--network` says otherwise).")
    slow = [each for each in on_network if each.asked.lines and each.held_s == 0]
    if slow:
        found.append(
            f"All-reduces here already take longer than over {slow[0].asked.network}: such a step is an "
            "upper bound."
        )
    found += _width_words(on_network)
    if more.fitted is not None:
        refused = refusals_words(more.fitted) if "fit" in hows else ()
        found += [f"{sentence(each)}." for each in refused]
    return " ".join(found)


def _width_words(points: Sequence[OnMore]) -> Iterator[str]:
    """What the widest interval is from, and the measurement that would narrow it."""
    wide = [each for each in points if each.step_time_s and each.step_time_s.log_half_width > WIDE]
    if not wide:
        return
    widest = max(wide, key=lambda each: each.step_time_s.log_half_width if each.step_time_s else 0.0)
    name, share = max(widest.shares, key=lambda each: each[1])
    if share >= HALF:
        yield (
            f"At {widest.asked.world_size:,} devices {share:.0%} of the interval's variance is from "
            f"{WIDTH_WORDS[name]}."
        )


def required_table(more: MoreDevices | None) -> Table:
    """What efficiency a free network would give, and the bandwidth that comes near it, next to today's."""
    if more is None or not more.requirements:
        return empty_table(REQUIRED)
    today = more.bus_bytes_per_s

    def in_bits(each: Requirement) -> str:
        return known(each.bus_bytes_per_s, lambda rate: bit_rate_words(rate.value))

    columns: list[Column[Requirement]] = [
        Column("devices", lambda each: f"{each.world_size:,}", right=True),
        Column("ceiling", lambda each: percent(each.ceiling), right=True, stays=True),
        Column("speed-up", lambda each: times(each.ceiling.scaled(each.world_size)), right=True),
        Column(
            f"for {OF_CEILING:.0%} of it, GB/s",
            lambda each: known(each.bus_bytes_per_s, gigabytes_per_s),
            right=True,
        ),
        Column("in bits", in_bits, right=True),
        Column("links of a node", lambda each: links_words(each) or NONE),
    ]
    caption = (
        "Ceiling, and speed-up: over a network that takes no time; stragglers, DDP's copies and contention "
        f"remain. Then what all links of a node must carry for {OF_CEILING:.0%} of it at no latency, as "
        "nccl-tests counts it. Links of a node: as many of a preset as carry that."
    )
    if today is not None:
        here = devices_of(more.record.config)
        caption += f" Today {here} reach {rate_words(today)}, {bit_rate_words(today)}, by all-reduces alone."
    links = next((each.links for each in more.requirements if each.links), ())
    if links:
        sizes = [each.world_size for each in more.requirements]
        caption += f" {sentence(_command_words(more, sizes, links))}."
    return make_table(REQUIRED, caption, columns, more.requirements)


def links_words(each: Requirement) -> str:
    """3 tcp-100 or 1 infiniband-400."""
    return " or ".join(f"{number} {name}" for name, number in each.links)


def rate_words(rate: float, unit: str = "B") -> str:
    """18 GB/s, or 48 MB/s."""
    if rate >= LEAST_GIGA * GIGA:
        return f"{figures(rate / GIGA)} G{unit}/s"
    return f"{figures(rate / 1e6)} M{unit}/s"


def bit_rate_words(bytes_per_s: float) -> str:
    """144 Gbit/s."""
    return rate_words(8 * bytes_per_s, "bit")


def more_sentences(more: MoreDevices | None) -> list[str]:
    """The answer on more devices, by what knows most; or nothing.

    As if or simulated: of the first and the last point. Else of the first fitted one, what a network must
    bring, a law, or why there is nothing.
    """
    if more is None:
        return []
    surely = [each for each in more.points if each.speedup is not None and each.speedup.low > 0]
    on_network = [each for each in surely if each.how in ON_NETWORK]
    if on_network:
        return [_point_words(each, more) for each in dict.fromkeys((on_network[0], on_network[-1]))]
    required = next((each for each in more.requirements if each.bus_bytes_per_s is not None), None)
    refused = _refusal(more)
    if surely and surely[0].how == "fit":
        return [_point_words(surely[0], more)]
    if required is not None:
        speedup, many = required.ceiling.high * required.world_size, more.devices(required.world_size)
        most = f"{many} train at most {speedup:.2f} times as fast as one, whatever the network"
        return [most, *_network_words(required, more.bus_bytes_per_s)]
    if surely:
        words = f"{_point_words(surely[0], more)}; what the network between more devices costs is not in it"
        config = more.record.config
        if config.setting.strategy == "ddp" and not isinstance(config.workload, ScriptSpec):
            links = [(LINKS[config.device][-1], 1)]
            return [words, _command_words(more, [each.asked.world_size for each in surely], links)]
        return [words, *([f"they are not predicted: {refused}"] if refused else [])]
    return [f"what more devices would bring is not predicted: {refused}"] if refused else []


def _network_words(required: Requirement, today: float | None) -> Iterator[str]:
    """What the network must bring, where that is known to be more than the one here brings."""
    needed = required.bus_bytes_per_s
    if needed is None:
        return
    if today is None or today < needed.low:
        reach = f", and these reach {bit_rate_words(today)}" if today else ""
        least = bit_rate_words(needed.value)
        yield f"for {OF_CEILING:.0%} of what is expected each node needs at least {least}{reach}"
    elif today > needed.high:
        share = f"{OF_CEILING:.0%} of what is expected"
        yield f"an interconnect as fast as this one brings {share} if its latency is small"


def _command_words(more: MoreDevices, sizes: Sequence[int], links: Sequence[tuple[str, int]]) -> str:
    """What measures so many, the largest of them, over as few links of a node as there may be."""
    sizes = [size for size in sizes if size >= more.record.config.world_size][-MOST_AS_IF:]
    name, number = min(links, key=lambda each: each[1])
    network = f"{more.devices_per_node}x{name if number == 1 else f'{number}x{name}'}"
    return f"to measure it as if: `--as-if {','.join(map(str, sizes))} --network {network}`"


def _point_words(each: OnMore, more: MoreDevices) -> str:
    assert each.speedup is not None
    _, low, high = aligned(each.speedup.value, each.speedup.low, each.speedup.high)
    law = f"by {more.law.law}'s law " if more.law is not None else ""
    over = ""
    if each.how in ON_NETWORK:
        over = f" over {each.asked.network}" if each.asked.network else " joined like these"
        over += " (simulated)" if each.how == "simulated" else ""
    many = more.devices(each.asked.world_size)
    return f"{law}{many}{over} would train {low} to {high} times as fast as one"


def _refusal(more: MoreDevices) -> str:
    """Why the headline's batch is not predicted; empty where it is, or nothing was fitted."""
    if more.fitted is None:
        return ""
    batch, found = more.record.config.setting.batch_size, more.fitted
    refused = (refusal_words(each, found) for each in found.predicted if each.batch_size == batch)
    return next(filter(None, refused), "")


def required_plot(more: MoreDevices | None) -> MoreDevices | None:
    """What ``draw_required`` takes; None where no network is required."""
    return more if more is not None and any(each.bus_bytes_per_s for each in more.requirements) else None


def draw_required(more: MoreDevices) -> Figure:
    """Efficiency over the network's bandwidth, a line for each number of devices."""
    figure, (axes,) = make_figure(6.6, 4.2)
    shown = [each for each in more.requirements if each.bus_bytes_per_s is not None]
    for index, each in enumerate(shown):
        color = COLORS[index % len(COLORS)]
        x, y = zip(*each.curve, strict=True)
        rates, shares = [rate / GIGA for rate in x], [100 * value for value in y]
        axes.plot(rates, shares, color=color, linewidth=1.6, label=more.devices(each.world_size))
        needed = each.bus_bytes_per_s
        if needed and each.target:
            value, low, high = (end / GIGA for end in (needed.value, needed.low, min(needed.high, x[-1])))
            ends = [[value - low], [max(high - value, 0.0)]]
            axes.errorbar(value, 100 * each.target, xerr=ends, color=color, marker="o", capsize=3)
    if more.bus_bytes_per_s is not None:
        axes.axvline(more.bus_bytes_per_s / GIGA, color=GREY, linestyle=(0, (4, 2)), linewidth=1.2)
        axes.annotate(
            "today", (more.bus_bytes_per_s / GIGA, 1), xycoords=("data", "axes fraction"), xytext=(4, -4),
            textcoords="offset points", va="top", color=GREY,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, 100)
    axes.set_xlabel("bus bandwidth of all-reduces: all links of a node (GB/s; bars: 95% intervals)")
    axes.set_ylabel("scaling efficiency (%)")
    last = shown[-1]
    rate = known(last.bus_bytes_per_s, lambda rate: rate_words(rate.value))
    words = f"{more.devices(last.world_size)} need {rate} over each node's links"
    write_title(figure, f"{words} for {OF_CEILING:.0%} of their ceiling")
    legend_below(figure, axes)
    return figure


def more_rows(fitted: Outlook | None, more: MoreDevices | None) -> list[dict[str, KnobValue]]:
    """Rows of ``predictions.csv``, those of the fit first: the columns of ``PREDICTION_COLUMNS``."""
    rows = prediction_rows([fitted]) if fitted and fitted.answered else []
    on_network = [each for each in more.points if each.how in ON_NETWORK] if more else []
    return rows + [_row(more, each) for each in on_network if more]


def _row(more: MoreDevices, each: OnMore) -> dict[str, KnobValue]:
    return {
        **dict.fromkeys(PREDICTION_COLUMNS),
        "model": model_name(more.record.config.workload),
        "nodes": each.asked.nodes,
        "world_size": each.asked.world_size,
        "batch_size": int(more.record.config.setting.batch_size),
        **step_columns(each.step_time_s, each.efficiency),
        "how": each.how.replace(" ", "_"),
    }
