"""More devices: as if measured, simulated, or what a network has to bring; tables, plot and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybench.analysis.cost import Cost, Work, cost_of
from raybench.analysis.labels import devices_words
from raybench.analysis.objectives import Prices
from raybench.analysis.simulate.as_if import MoreDevices, OnMore, Requirement
from raybench.analysis.stats.statistics import inverse
from raybench.analysis.summary import model_name
from raybench.report.format import (
    aligned,
    duration_unit,
    figures,
    interval,
    percent,
    plain_interval,
    plain_percent,
    time_unit,
    times,
)
from raybench.report.plot import COLORS, GREY, legend_below, make_figure, write_title
from raybench.report.prediction import PREDICTION_COLUMNS, prediction_rows
from raybench.report.table import Column, Table, empty_table, known, make_table
from raybench.spec.knobs import KnobValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from raybench.analysis.simulate.outlook import Outlook

GIGA, LEAST_GIGA = 1e9, 0.1
HALF = 0.5  # of the variance, from which on the network carries most of the width
ON_MORE, REQUIRED = "On more devices", "What the network must bring"


def on_more_table(more: MoreDevices | None, work: Work, prices: Prices) -> Table:
    """A step of the headline's setting on more devices, and ``work``."""
    if more is None or not more.points:
        return empty_table(ON_MORE)
    unit, per_s = time_unit(max(each.step_time_s.value for each in more.points))
    runs = {
        each: cost_of(
            work,
            inverse(each.throughput_samples_per_s).scaled(work.samples),
            each.asked.world_size,
            each.asked.nodes or _nodes_like_here(more, each),
            prices,
            None,
        )
        for each in more.points
    }
    run_unit, run_unit_s = duration_unit(max(run.time_s.value for run in runs.values()))

    def cost(each: OnMore) -> str:
        run: Cost = runs[each]
        return known(run.money, plain_interval)

    def run_time(each: OnMore) -> str:
        return plain_interval(runs[each].time_s.scaled(1 / run_unit_s))

    columns: list[Column[OnMore]] = [
        Column("devices", lambda each: f"{each.asked.world_size:,}", right=True),
        Column("network", lambda each: each.asked.network or "as here"),
        Column("batch per device", lambda each: f"{each.batch_per_device:g}", right=True),
        Column(f"step, {unit}", lambda each: interval(each.step_time_s.scaled(per_s)), right=True),
        Column("speed-up", lambda each: known(each.speedup, times), right=True),
        Column("efficiency", lambda each: known(each.efficiency, percent), right=True),
        Column(f"run, {run_unit}", run_time, right=True),
        *([Column[OnMore]("cost", cost, right=True)] if prices.are_known else []),
    ]
    return make_table(ON_MORE, f"{how_words(more)} A run is {work.name}.", columns, more.points)


def _nodes_like_here(more: MoreDevices, each: OnMore) -> int:
    """Nodes as full as those of the trial."""
    record = more.record
    per_node = -(-record.config.world_size // (record.nodes or 1))
    return -(-each.asked.world_size // per_node)


def how_words(more: MoreDevices) -> str:
    """How the points were found, and what carries the width of their intervals."""
    here, found = devices_words(more.record.config.world_size), []
    if any(each.how == "as if" for each in more.points):
        found.append(
            f"Measured in the rounds of {here}, whose all-reduces were held for as long as so many devices "
            "need, and whose steps waited for the slowest of so many."
        )
    if any(each.how == "simulated" for each in more.points):
        found.append(
            f"Simulated from the gradients and buckets of {here}; stragglers among more devices are not in "
            "it (`scaling --as-if` measures them)."
        )
    if any(each.asked.network is None for each in more.points):
        found.append("Further devices are taken to be joined as these are (`--network` says otherwise).")
    slow = [each for each in more.points if each.asked.lines and each.held_s == 0]
    if slow:
        found.append(
            f"All-reduces here already take longer than over {slow[0].asked.network}: such a step is an "
            "upper bound."
        )
    widest = max(more.points, key=lambda each: each.network_share)
    if widest.network_share >= HALF:
        found.append(
            f"At {widest.asked.world_size:,} devices {widest.network_share:.0%} of the interval's "
            "variance is the network's: `communication` on two nodes of it would narrow that."
        )
    return " ".join(found)


def required_table(more: MoreDevices | None) -> Table:
    """What efficiency a free network would give, and the bandwidth that comes near it."""
    if more is None or not more.requirements:
        return empty_table(REQUIRED)
    columns: list[Column[Requirement]] = [
        Column("devices", lambda each: f"{each.world_size:,}", right=True),
        Column("at best", lambda each: percent(each.ceiling), right=True),
        Column("for", lambda each: known(each.target, lambda target: f"{target:.0%}"), right=True),
        Column("bus bandwidth", lambda each: _gigabytes(each), right=True),
        Column("that is", lambda each: _gigabits(each), right=True),
    ]
    caption = (
        "At best: efficiency over a network that takes no time; what the slowest device, DDP's copies and "
        "contention within a node take is left. Bus bandwidth: of all-reduces, as nccl-tests counts it, "
        "which is what all links of a node carry together; latency aside."
    )
    return make_table(REQUIRED, caption, columns, more.requirements)


def _gigabytes(each: Requirement) -> str:
    return known(each.bus_bytes_per_s, rate_words)


def _gigabits(each: Requirement) -> str:
    return known(each.bus_bytes_per_s, lambda rate: rate_words(8 * rate, "bit"))


def rate_words(rate: float, unit: str = "B") -> str:
    """18 GB/s, or 48 MB/s."""
    return (
        f"{figures(rate / GIGA)} G{unit}/s"
        if rate >= LEAST_GIGA * GIGA
        else f"{figures(rate / 1e6)} M{unit}/s"
    )


def more_sentences(more: MoreDevices | None) -> list[str]:
    """The answer on more devices: of first and last point, else what a network must bring; or nothing."""
    if more is None:
        return []
    measured = [each for each in more.points if each.speedup is not None and each.speedup.low > 0]
    if measured:
        first, last = measured[0], measured[-1]
        return [_point_words(each) for each in dict.fromkeys((first, last))]
    required = next((each for each in more.requirements if each.target is not None), None)
    if required is None:
        return []
    assert required.bus_bytes_per_s is not None
    return [
        f"{required.world_size} devices reach at most {plain_percent(required.ceiling)} efficiency; "
        f"{required.target:.0%} takes {rate_words(required.bus_bytes_per_s)} over the links of each node"
    ]


def _point_words(each: OnMore) -> str:
    assert each.speedup is not None
    _, low, high = aligned(each.speedup.value, each.speedup.low, each.speedup.high)
    over = "joined like these" if each.asked.network is None else f"over {each.asked.network}"
    over += " (simulated, without stragglers)" if each.how == "simulated" else ""
    return f"{each.asked.world_size} devices {over} would train {low} to {high} times as fast as one"


def required_plot(more: MoreDevices | None) -> MoreDevices | None:
    """What ``draw_required`` takes; None where no network is required."""
    return more if more is not None and any(each.bus_bytes_per_s for each in more.requirements) else None


def draw_required(more: MoreDevices) -> Figure:
    """Efficiency over the network's bandwidth, a line for each number of devices."""
    figure, (axes,) = make_figure(6.6, 4.2)
    for index, each in enumerate(more.requirements):
        color = COLORS[index % len(COLORS)]
        x, y = zip(*each.curve, strict=True)
        axes.plot(
            [rate / GIGA for rate in x],
            [100 * value for value in y],
            color=color,
            linewidth=1.6,
            label=f"{each.world_size:,} devices",
        )
        if each.bus_bytes_per_s and each.target:
            axes.plot(each.bus_bytes_per_s / GIGA, 100 * each.target, color=color, marker="o", markersize=6)
    axes.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    axes.set_xscale("log")
    axes.set_ylim(0, 105)
    axes.set_xlabel("bus bandwidth of all-reduces: all links of a node (GB/s)")
    axes.set_ylabel("scaling efficiency (%)")
    write_title(figure, _plot_title(more))
    legend_below(figure, axes)
    return figure


def _plot_title(more: MoreDevices) -> str:
    *_, found = (each for each in more.requirements if each.bus_bytes_per_s)
    assert found.bus_bytes_per_s is not None
    rate = rate_words(found.bus_bytes_per_s)
    return f"{found.world_size:,} devices at {found.target:.0%} efficiency need {rate} over each node's links"


def more_rows(fitted: Outlook | None, more: MoreDevices | None) -> list[dict[str, KnobValue]]:
    """Rows of ``predictions.csv``, those of the fit first: the columns of ``PREDICTION_COLUMNS``."""
    rows = prediction_rows([fitted]) if fitted else []
    return rows + [_row(model_name(more.record), each) for each in more.points] if more else rows


def _row(model: str, each: OnMore) -> dict[str, KnobValue]:
    step_s, values = each.step_time_s, dict[str, KnobValue].fromkeys(PREDICTION_COLUMNS)
    return values | {
        "model": model,
        "nodes": each.asked.nodes,
        "world_size": each.asked.world_size,
        "batch_size": each.batch_size,
        "step_time_s": step_s.value,
        "step_time_low_s": step_s.low,
        "step_time_high_s": step_s.high,
        "efficiency": each.efficiency.value if each.efficiency else None,
        "how": each.how.replace(" ", "_"),
    }
