"""What more devices would bring, cost and need, and measurements made elsewhere: sentences, tables, plot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.text import Text

from raybench.analysis.cost import Work
from raybench.analysis.labels import devices_of, devices_words
from raybench.analysis.simulate.as_if import LINKS, OF_CEILING, MoreDevices, Requirement
from raybench.analysis.simulate.fit import FARTHEST, FEWEST_SIZES
from raybench.analysis.simulate.outlook import Outlook, cost_of_run
from raybench.analysis.simulate.steps import Expected, Input, Measurement, ScalingMode, Shape
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.summary import model_name
from raybench.report.format import (
    GIGA,
    aligned,
    bit_rate_words,
    factor,
    figures,
    gigabytes_per_s,
    interval,
    milliseconds,
    percent,
    plain_lasting,
    rate_words,
    run_words,
    sentence,
    time_unit,
    times,
)
from raybench.report.plot import COLORS, GREY, STYLES, legend_below, make_figure, write_title
from raybench.report.table import NONE, Column, Table, known, make_table, numbers, print_table
from raybench.spec.knobs import KnobValue
from raybench.spec.study import MOST_AS_IF
from raybench.spec.workloads import ScriptSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Each = TypeVar("Each")
MOST_BATCHES = 3  # that a sentence names


def outlook_sentences(outlook: Outlook) -> list[str]:
    """What an outlook means, a line each: how it scales, what devices bring, what was refused."""
    measured = [f"measured: {'; '.join(measured_words(outlook))}"] if outlook.group.scalings else []
    return [*measured, *returns_words(outlook), *_laws(outlook), *refusals_words(outlook)]


def measured_words(outlook: Outlook) -> Iterator[str]:
    """The largest world size of each batch, of many batches a few."""
    batch = batch_word(outlook.group.scaling)
    by_batch = itertools.groupby(outlook.group.scalings, lambda each: each.batch_size)
    # on as few nodes as it was measured on, as the returns of doublings are
    largest = [max(same, key=lambda each: (each.shape.world_size, -each.shape.nodes)) for _, same in by_batch]
    for each in few(largest):
        at = f"{devices_words(each.shape.world_size)} at {batch} {each.batch_size:,}"
        is_base = each.shape.world_size == each.baseline_world_size
        if each.speedup is None or each.efficiency is None or is_base:
            yield f"{at}: no other world size to compare with"
            continue
        over = "" if each.baseline_world_size == 1 else f" over {each.baseline_world_size}"
        yield f"{at}: {each.speedup.value:.2f}x{over}, efficiency {percent(each.efficiency)}"


def few(batches: Sequence[Each]) -> list[Each]:
    """The smallest batch, the largest, and one between, where there are many."""
    if len(batches) <= MOST_BATCHES:
        return list(batches)
    return [batches[0], batches[len(batches) // 2], batches[-1]]


def returns_words(outlook: Outlook) -> Iterator[str]:
    """The marginal return of each doubling, a line for each batch."""
    for batch, found in few(outlook.returns):
        shares = [percent(each.each) for each in found]
        shares[0] += " of one"
        shown = [f"{share} ({each.fewer} to {each.more})" for share, each in zip(shares, found, strict=True)]
        at = f" at batch {batch:,}" if len(outlook.returns) > 1 else ""
        yield f"each further device brought{at}: {', '.join(shown)}"


def _laws(outlook: Outlook) -> Iterator[str]:
    """What a law makes of each batch, where nothing could be predicted."""
    if outlook.answered:
        return
    for batch, found in few(list(outlook.laws.items())):
        at = f"{found.measured_on} devices at {batch_word(outlook.group.scaling)} {batch:,}"
        shown = ", ".join(f"{times(speedup)} on {size}" for size, speedup in found.speedups)
        yield (
            f"by {found.law}'s law, f = {percent(found.fraction)} from {at}, without what a larger network "
            f"costs: {shown}"
        )


def refusals_words(outlook: Outlook) -> Iterator[str]:
    """Each reason once, with where it holds."""
    places: dict[str, list[str]] = {}
    for each in outlook.predicted:
        if reason := refusal_words(each, outlook):
            places.setdefault(reason, []).append(f"{each.shape.world_size:,}")
    for reason, sizes in places.items():
        yield f"refused at {', '.join(dict.fromkeys(sizes))} devices: {reason}"


REFUSED = {
    "too few world sizes": (
        f"a fit takes measurements on {FEWEST_SIZES} numbers of devices, such as 1, 2 and 4 (here {{sizes}})"
    ),
    "too many devices": (
        f"{{size}} devices are more than {FARTHEST} times the largest measured world size, {{largest}}"
    ),
    "network not crossed": "nothing was measured between nodes, neither steps nor a sweep",
    "no sample for each device": (
        "a global batch of {samples:,.0f} has no sample for each of {size:,} devices"
    ),
    "samples do not scale": "the samples of a step neither grow with the devices nor stay the same",
}


def refusal_words(row: Expected, outlook: Outlook) -> str:
    """Why there is no prediction; empty where there is one."""
    if not row.refused:
        return ""
    size, sizes = row.shape.world_size, outlook.group.world_sizes
    return REFUSED[row.refused].format(
        size=size, samples=row.question.samples, sizes=", ".join(map(str, sizes)), largest=sizes[-1]
    )


def prediction_table(outlook: Outlook, *, costs: bool = False) -> Table:
    """The predictions, by batch and world size; with ``costs`` what a run takes."""

    def by_law(row: Expected) -> Estimate | None:
        law = outlook.laws.get(row.batch_size) if row.step_time_s and outlook.scaling == "strong" else None
        return dict(law.speedups).get(row.shape.world_size) if law else None

    def naive(row: Expected) -> Estimate | None:
        """What is refused is not answered by a simpler law either."""
        step_s = row.naive_step_time_s if row.step_time_s else None
        return Estimate(step_s, step_s, step_s, 0) if step_s else None

    columns: list[Column[Expected]] = [
        numbers("devices/ nodes", lambda row: row.shape, place_words),
        numbers(batch_word(outlook.scaling), lambda row: row.batch_size, "{:,}".format),
        _time_column("step time", lambda row: row.step_time_s, outlook.predicted, "refused"),
        _time_column("naive", naive, outlook.predicted),
        numbers("speed-up by Amdahl's law", by_law, factor),
        numbers("efficiency", lambda row: row.efficiency, percent),
    ]
    of_runs = _run_columns(outlook.predicted, outlook.run, outlook.price) if costs else []
    caption = f"A run is {run_words(outlook.run.epochs)}: steps alone." if of_runs else ""
    return make_table(title_of(outlook), caption, [*columns, *of_runs], outlook.predicted)


def _time_column(
    heading: str,
    of: Callable[[Expected], Estimate | None],
    points: Sequence[Expected],
    otherwise: str = NONE,
) -> Column[Expected]:
    """Times in the unit of the longest, in s."""
    unit, unit_s = time_unit(max((time_s.value for each in points if (time_s := of(each))), default=1e-3))
    return numbers(f"{heading}, {unit}", of, lambda time_s: interval(time_s.scaled(1 / unit_s)), otherwise)


def _run_columns(points: Sequence[Expected], work: Work, price: float | None) -> list[Column[Expected]]:
    """What a run takes at each of ``points``, and with a price what it costs; none where it is not known."""
    found = {each: run for each in points if (run := cost_of_run(work, each, price))}
    if not found:
        return []
    time = _time_column("run", lambda each: found[each].time_s if each in found else None, points)
    cost = numbers("cost of a run", found.get, lambda run: known(run.money, interval))
    return [time] if price is None else [time, cost]


def batch_word(scaling: ScalingMode) -> str:
    """What a batch is of one device, or of all."""
    return "global batch" if scaling == "strong" else "batch"


def prediction_rows(outlooks: Sequence[Outlook]) -> list[dict[str, KnobValue]]:
    """Rows of predict's CSV file: the columns of docs/reference.md."""
    return [
        prediction_row(found.group.model, each, found.run, found.price, refusal_words(each, found))
        for found in outlooks
        for each in found.predicted
    ]


def prediction_row(
    model: str, each: Expected, work: Work, price: float | None, refused: str = ""
) -> dict[str, KnobValue]:
    """One of them; ``work``: the run that costs are of."""
    step_s, efficiency, run = each.step_time_s, each.efficiency, cost_of_run(work, each, price)
    return {
        #: the model's name; of a file without that column the file's
        "model": model,
        #: number of nodes
        "nodes": each.shape.nodes if each.how == "fit" or each.network else None,
        #: number of devices
        "world_size": each.shape.world_size,
        #: samples per device, under strong scaling of all devices; one row for each measured batch
        "batch_size": each.batch_size,
        #: step time of the slowest rank; empty where it is refused
        "step_time_s": step_s.value if step_s else None,
        #: lower end of the 95% interval of a new measurement
        "step_time_low_s": step_s.low if step_s else None,
        #: upper end of its interval
        "step_time_high_s": step_s.high if step_s else None,
        #: step time if the step stays as at the largest measured world size of this batch
        "naive_step_time_s": each.naive_step_time_s,
        #: efficiency over one device, of the throughput or, under strong scaling, of the step time
        "efficiency": efficiency.value if efficiency else None,
        #: cost of the run in the price's currency; empty without a price
        "cost": run.money.value if run and run.money else None,
        #: why there is no prediction; else empty
        "refused": refused or None,
        #: `fit` to several world sizes, measured `as_if` on that many, or `simulated` over a network
        "how": each.how.replace(" ", "_"),
    }


def place_words(shape: Shape) -> str:
    """16/4: sixteen devices on four nodes."""
    return f"{shape.world_size:,}/{shape.nodes:,}"


def print_outlooks(outlooks: Sequence[Outlook], console: Console, tables: Sequence[Table]) -> None:
    """Each model's table, where there is one, and sentences."""
    for outlook, table in itertools.zip_longest(outlooks, tables):
        if table is not None:
            print_table(table, console)
        for line in outlook_sentences(outlook):
            console.print(Text(line))
        console.print()


def title_of(outlook: Outlook) -> str:
    """A model, its setting and how it scales."""
    group = outlook.group
    setting = f", {group.setting}" if group.setting else ""
    return f"{group.model}{setting}" + ("" if group.refused else f": {outlook.scaling} scaling")


def imported_table(model: Outlook) -> Table:
    """One model's measured steps, the smallest batch first."""
    columns: list[Column[Measurement]] = [
        numbers("devices/ nodes", lambda row: row.shape, place_words),
        numbers(batch_word(model.group.scaling), lambda row: row.batch_size, "{:,}".format),
        numbers("step time, ms", lambda row: row.step_time_s, milliseconds),
        numbers("samples/s", lambda row: row.throughput_samples_per_s.value, figures),
        numbers("speed-up", lambda row: row.speedup and row.speedup.value, "{:.2f}x".format),
        numbers("efficiency", lambda row: row.efficiency, percent),
    ]
    caption = "Speed-up: over the smallest world size that was measured with the same batch."
    return make_table(title_of(model), caption, columns, model.group.scalings)


# --- the headline's setting on more devices

MOST_RATE = 1e12  # of a node, in bytes/s: an end beyond it is not worth a word
HALF = 0.5  # of the variance, from which on one input carries most of the width
WIDE = 0.05  # half an interval, relative: a narrower one is not worth a measurement
ON_NETWORK = ("as if", "simulated")  # how a point was found, where a network is assumed
MORE, REQUIRED = "More devices", "What the network must bring"


def more_table(more: MoreDevices | None, work: Work, price: float | None) -> Table:
    """The headline's setting on more devices, and ``work``, a run."""
    if more is None or not more.points:
        return Table(MORE)
    of_runs = _run_columns(more.points, work, price)
    law = more.law if any(each.how != "law" for each in more.points) else None

    def how(each: Expected) -> str:
        return f"{each.how}, {each.network or 'joined as here'}" if each.how in ON_NETWORK else each.how

    def batch(each: Expected) -> float:
        is_global = each.question.global_batch_size is not None
        return each.question.samples / each.shape.world_size if is_global else each.batch_size

    def epoch_time(each: Expected) -> Estimate | None:
        run = cost_of_run(work, each, price)
        return run.time_s.scaled(1 / work.epochs) if run and work.epochs else None

    def by_law(each: Expected) -> Estimate | None:
        return dict(law.speedups).get(each.shape.world_size) if law else None

    columns: list[Column[Expected]] = [
        numbers("devices", lambda each: each.shape.world_size, "{:,}".format),
        Column("how", how),
        numbers("batch per device", batch, "{:g}".format),
        numbers("epoch", epoch_time, plain_lasting)
        if work.epochs
        else _time_column("step", lambda each: each.step_time_s, more.points),
        numbers("speed-up", lambda each: each.speedup, factor),
        numbers("efficiency", lambda each: each.efficiency, percent),
        *([numbers(f"by {law.law}'s law", by_law, times)] if law else []),
        *of_runs,
    ]
    a_run = f" A run is {run_words(work.epochs)}." if of_runs else ""
    return make_table(MORE, f"{how_words(more)}{a_run}", columns, more.points)


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
    "held": "the network between more devices: `--network` names it",
    "stragglers": "the wait for the slowest device: `scaling --as-if` measures it",
    "model": "the simulation: `scaling --as-if` measures the step",
}


def how_words(more: MoreDevices) -> str:
    """How the points were found, and what carries the width of their intervals."""
    here, hows = devices_of(more.record.config), {each.how for each in more.points}
    found = [words.format(here=here) for how, words in HOW_WORDS.items() if how in hows]
    on_network = _on_network(more)
    if any(each.network is None for each in on_network):
        found.append("Further devices are taken to be joined as these are (`--network` says otherwise).")
    slow = [each.network for each in on_network if each.is_bound]
    if slow:
        found.append(
            f"All-reduces take longer here than over {slow[0]}: steps there take at most as long as these."
        )
    found += _width_words(on_network)
    found += [f"{sentence(each)}." for each in _missing_words(more)]
    if (law := more.law) is not None:
        f = law.fraction
        most = f", at most {figures(1 / f.value)}x (1/f)" if law.law == "Amdahl" and f.value else ""
        found.append(
            f"By {law.law}'s law, not predicted: f = {percent(f)} by the speed-up of {here}{most}. What the "
            "network between more devices costs is not in it."
        )
    if more.fitted is not None:
        refused = refusals_words(more.fitted) if "fit" in hows else ()
        found += [f"{sentence(each)}." for each in refused]
    return " ".join(found)


def _on_network(more: MoreDevices) -> list[Expected]:
    return [each for each in more.points if each.how in ON_NETWORK]


def _width_words(points: Sequence[Expected]) -> Iterator[str]:
    """What the widest interval is from, and the measurement that would narrow it."""
    wide = [each for each in points if each.step_time_s and each.step_time_s.log_half_width > WIDE]
    if not wide:
        return
    widest = max(wide, key=lambda each: each.step_time_s.log_half_width if each.step_time_s else 0.0)
    name, share = max(widest.shares, key=lambda each: each[1])
    if name == "model" and widest.how == "as if":  # how the models differ over the network's range
        name = "bandwidth"
    if share >= HALF:
        yield (
            f"At {widest.shape.world_size:,} devices {share:.0%} of the interval's variance is from "
            f"{WIDTH_WORDS[name]}."
        )


def required_table(more: MoreDevices | None) -> Table:
    """What efficiency a free network would give, and the bandwidth that comes near it, next to today's."""
    if more is None or not more.requirements:
        return Table(REQUIRED)
    today = more.bus_bytes_per_s
    columns: list[Column[Requirement]] = [
        numbers("devices", lambda each: each.world_size, "{:,}".format),
        numbers("ceiling", lambda each: each.ceiling, percent, stays=True),
        numbers("speed-up", lambda each: each.ceiling.scaled(each.world_size), times),
        numbers(f"for {OF_CEILING:.0%} of it, GB/s", lambda each: each.bus_bytes_per_s, gigabytes_per_s),
        numbers("in bits", lambda each: each.bus_bytes_per_s, lambda rate: bit_rate_words(rate.value)),
        Column("links of a node", lambda each: " or ".join(f"{n} {name}" for name, n in each.links) or NONE),
    ]
    caption = (
        "Ceiling and its speed-up: over a network that takes no time; stragglers, DDP's copies and "
        f"contention remain. For {OF_CEILING:.0%} of it: the bus bandwidth (as in nccl-tests) of all links "
        "of a node together, at no latency. Links of a node: how many of a kind bring that."
    )
    if today is not None:
        here = devices_of(more.record.config)
        caption += f" Today {here} reach {rate_words(today)}, {bit_rate_words(today)}, by all-reduces alone."
    links = next((each.links for each in more.requirements if each.links), ())
    here_or_more = (each.world_size for each in more.requirements)
    sizes = [size for size in here_or_more if size >= more.record.config.world_size]
    if links and sizes and not _on_network(more) and not more.missing:  # else it is known, or was asked for
        caption += f" {sentence(_command_words(more, sizes, links))}."
    return make_table(REQUIRED, caption, columns, more.requirements)


def _missing_words(more: MoreDevices) -> list[str]:
    return [f"steps as if on {more.devices(size)} were not measured: {why}" for size, why in more.missing]


def more_sentences(more: MoreDevices | None) -> list[str]:
    """The answer on more devices, by what knows most; or nothing.

    As if or simulated: of the first and the last point. Else of the first fitted one, what a network must
    bring, a law, or why there is nothing.
    """
    if more is None:
        return []
    surely = [each for each in more.points if each.speedup is not None and each.speedup.low > 0]
    here, every = more.record.config.world_size, [each for each in surely if each.how in ON_NETWORK]
    on_network = [each for each in every if each.shape.world_size > here] or every
    if on_network:
        ends = dict.fromkeys((on_network[0], on_network[-1]))
        return [*(_point_words(each, more) for each in ends), *_missing_words(more)]
    required = next((each for each in more.requirements if each.bus_bytes_per_s is not None), None)
    refused = _refusal(more)
    if surely and surely[0].how == "fit":
        return [_point_words(surely[0], more)]
    if required is not None and required.bus_bytes_per_s is not None:
        size, many = required.world_size, more.devices(required.world_size)
        ceiling = f"a free network lets {many} train {size * required.ceiling.value:.2f} times as fast as one"
        return [ceiling, _network_words(required.bus_bytes_per_s, more), *_missing_words(more)]
    if surely:
        words = f"{_point_words(surely[0], more)}; what the network between more devices costs is not in it"
        config = more.record.config
        if more.missing:
            return [words, *_missing_words(more)]
        if config.setting.strategy == "ddp" and not isinstance(config.workload, ScriptSpec):
            links = [(LINKS[config.device][-1], 1)]
            return [words, _command_words(more, [each.shape.world_size for each in surely], links)]
        return [words, *([refused] if refused else [])]
    if _is_slower(more):
        size = more.record.config.world_size
        return [f"more devices are not expected to beat one at this batch, as {size:,} are slower already"]
    return [f"what more devices would bring is not predicted: {refused}"] if refused else []


def _is_slower(more: MoreDevices) -> bool:
    """Whether the devices of the headline are slower than one with the same global batch.

    Then more of them are: with n devices in a ring at one bus bandwidth communication takes 2 (n - 1) / n of
    what it takes with two, and compute 2 / n, so that the sum stays above one device's step.
    """
    config, found = more.record.config, more.fitted.group.scalings if more.fitted else ()
    return config.scaling == "strong" and any(
        each.speedup is not None and each.speedup.high < 1
        for each in found
        if (each.batch_size, each.shape.world_size) == (config.setting.batch_size, config.world_size)
    )


def _network_words(needed: Estimate, more: MoreDevices) -> str:
    """What a network must bring to come near one that takes no time, and what there is."""
    is_known = needed.high < MOST_RATE
    rate = bit_rate_words(needed.low, needed.high) if is_known else f"at least {bit_rate_words(needed.low)}"
    today = f", and these reach {bit_rate_words(more.bus_bytes_per_s)}" if more.bus_bytes_per_s else ""
    return f"coming near that takes {rate} a node{today}"


def _command_words(more: MoreDevices, sizes: Sequence[int], links: Sequence[tuple[str, int]]) -> str:
    """What measures so many, the largest of them, over as few links of a node as there may be."""
    name, number = min(links, key=lambda each: each[1])
    network = f"{more.devices_per_node}x{name if number == 1 else f'{number}x{name}'}"
    nodes = f"nodes of {more.devices_per_node:,} with {number} {name} each"
    asked = ",".join(map(str, sizes[-MOST_AS_IF:]))
    return f"to measure it as if: `--as-if {asked} --network {network}`, {nodes}"


def _point_words(each: Expected, more: MoreDevices) -> str:
    assert each.speedup is not None
    _, low, high = aligned(each.speedup.value, each.speedup.low, each.speedup.high)
    over, many = "", more.devices(each.shape.world_size)
    if more.law is not None and each.how == "law":  # a straight line, whose errors nobody knows
        about = f"about {each.speedup.value:.1f} times as fast as one"
        return f"by {more.law.law}'s law {many} would train {about}"
    if each.how in ON_NETWORK:
        over = f" over {each.network}" if each.network else " joined like these"
        over += " (simulated)" if each.how == "simulated" else ""
    fast = f"at least {low}" if each.is_bound else f"{low} to {high}"
    return f"{many}{over} would train {fast} times as fast as one"


def _refusal(more: MoreDevices) -> str:
    """Why the headline's batch is not predicted; empty where it is, or nothing was fitted."""
    if more.fitted is None:
        return ""
    batch, found = more.record.config.setting.batch_size, more.fitted
    refused = (refusal_words(each, found) for each in found.predicted if each.batch_size == batch)
    return next(filter(None, refused), "")


def draw_required(more: MoreDevices | None) -> Figure | None:
    """Efficiency over the network's bandwidth, a line for each number of devices; None: none is required."""
    every = more.requirements if more else ()
    shown = [(each, each.bus_bytes_per_s) for each in every if each.bus_bytes_per_s is not None]
    if more is None or not shown:
        return None
    figure, (axes,) = make_figure(6.6, 4.2)
    for index, (each, needed) in enumerate(shown):
        color = COLORS[index % len(COLORS)]
        x, y = zip(*each.curve, strict=True)
        rates, shares = [rate / GIGA for rate in x], [100 * value for value in y]
        dashes = STYLES[index % len(STYLES)]  # told apart in grey
        name = more.devices(each.world_size)
        axes.plot(rates, shares, color=color, linestyle=dashes, linewidth=1.6, label=name)
        value, low, high = (end / GIGA for end in (needed.value, needed.low, min(needed.high, x[-1])))
        ends = [[value - low], [max(high - value, 0.0)]]
        target = 100 * OF_CEILING * each.ceiling.value
        axes.errorbar(value, target, xerr=ends, color=color, marker="o", capsize=3)
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
    most, rate = shown[-1]
    words = f"{more.devices(most.world_size)} need {rate_words(rate.low, rate.high)}"
    write_title(figure, f"{words} over each node's links for {OF_CEILING:.0%} of their ceiling")
    legend_below(figure, axes)
    return figure


def more_rows(
    fitted: Outlook | None, more: MoreDevices | None, work: Work, price: float | None
) -> list[dict[str, KnobValue]]:
    """Rows of ``predictions.csv``, those of the fit first, as ``prediction_row`` has them."""
    rows = prediction_rows([fitted]) if fitted and fitted.answered else []
    model = model_name(more.record.config.workload) if more else ""
    return rows + [prediction_row(model, each, work, price) for each in (_on_network(more) if more else ())]
