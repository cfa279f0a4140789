"""What more devices would bring, and cost: sentences, tables, plot, the CSV file of ``predict``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from raybench.analysis.labels import devices_words
from raybench.analysis.scaling import Status
from raybench.analysis.simulate.outlook import (
    LEAST_RETURN,
    Expected,
    Forecast,
    Limited,
    Outlook,
    Way,
    Worth,
)
from raybench.analysis.simulate.predict import FARTHEST, FEWEST_SIZES
from raybench.analysis.simulate.steps import MeasuredScaling, Shape
from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import (
    duration_unit,
    figures,
    interval,
    percent,
    plain_interval,
    plain_percent,
    plain_times,
    sentence,
    time_unit,
    times,
)
from raybench.report.plot import (
    COLORS,
    GREY,
    MARKERS,
    Line,
    legend_below,
    legend_height,
    log2_axis,
    log_y,
    make_figure,
    make_line,
    percent_axis,
    shown_ends,
    write_title,
)
from raybench.report.table import MOST_WIDTH, NONE, Column, Table, empty_table, known, make_table, rich_table
from raybench.spec.knobs import KnobValue
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

    from raybench.analysis.results import StudyResults

Each = TypeVar("Each")
MOST_BATCHES = 3  # that a sentence names


def outlook_sentences(outlook: Outlook, *, costs: bool) -> list[str]:
    """What a forecast means, a line each: limits, what devices bring, how sure, what was left out."""
    return [
        *([f"measured: {'; '.join(measured_words(outlook))}"] if outlook.scalings else []),
        *_limits(outlook),
        *(_one_answer(outlook) if costs else ()),
        *([worth_words(each, outlook) for each in few(outlook.worth)] if costs else []),
        *_refusals(outlook),
        *bring_words(outlook),
    ]


def bring_words(outlook: Outlook) -> list[str]:
    """What further devices brought, or by a law would bring."""
    return [*_returns(outlook), *_laws(outlook)]


def measured_words(outlook: Outlook) -> Iterator[str]:
    """The largest world size of each batch, of many the smallest batch and the largest."""
    of_all = "global " if outlook.forecast.group.scaling == "strong" else ""
    largest: dict[int, MeasuredScaling] = {}
    for each in outlook.scalings:
        known = largest.get(each.batch_size)
        if known is None or each.shape.world_size > known.shape.world_size:
            largest[each.batch_size] = each
    shown = list(largest.values())
    for each in shown if len(shown) <= MOST_BATCHES else (shown[0], shown[-1]):
        at = f"{devices_words(each.shape.world_size)} at {of_all}batch {each.batch_size:,}"
        if each.speedup is None or each.efficiency is None or each.status is None:
            yield f"{at}: no other world size to compare with"
            continue
        status = "negative scaling" if each.status is Status.NEGATIVE else str(each.status)
        over = "" if each.baseline_world_size == 1 else f" over {each.baseline_world_size}"
        yield f"{at}: {each.speedup.value:.2f}x{over}, efficiency {plain_percent(each.efficiency)}, {status}"


def _one_answer(outlook: Outlook) -> Iterator[str]:
    """Over all batches: the fastest way and the cheapest."""
    if len(outlook.worth) < 2:
        return
    fastest = min(outlook.ways, key=lambda way: way.run.time_s.value)
    cheapest = min(outlook.ways, key=lambda way: way.spent.value)
    head, best = f"of all batches, for a run{_without_restarts(outlook)}", way_words(fastest, outlook)
    if cheapest is fastest:
        yield f"{head}: fastest and cheapest is {best}: {_spent(fastest)}"
        return
    other = f"{way_words(cheapest, outlook)}: {_spent(cheapest)}"
    yield f"{head}: fastest is {best}: {_spent(fastest)}; cheapest is {other}"


def worth_words(worth: Worth, outlook: Outlook) -> str:
    """How many devices for this batch, with the numbers that say so."""
    at, run = way_words(worth.way, outlook), _spent(worth.way)
    head = f"for a run{_without_restarts(outlook)} use"
    if worth.way is worth.fewest:
        words = f"{head} {at}: {run}"
    else:
        few = devices_words(worth.fewest.expected.shape.world_size)
        speedup, against = plain_times(worth.speedup), _spent(worth.fewest)
        words = f"{head} {at}: {run}, {speedup} as fast as {few} ({against})"
    if worth.further is None or worth.returns is None:
        return f"{words}; more were neither measured nor predicted"
    size = devices_words(worth.further.expected.shape.world_size)
    if worth.returns <= 0:
        return f"{words}; {size} are no faster ({_spent(worth.further)})"
    return (
        f"{words}; on {size} each further device brings {worth.returns:.0%} of one, less than "
        f"{LEAST_RETURN:.0%} ({_spent(worth.further)})"
    )


def way_words(way: Way, outlook: Outlook) -> str:
    """16 devices on 4 nodes at batch 128 (predicted)."""
    shape, expected = way.expected.shape, way.expected
    nodes = f" on {shape.nodes} nodes" if shape.nodes > 1 else ""
    of_all = "global " if outlook.forecast.scaling == "strong" else ""
    kind = "measured" if expected.is_measured else "predicted"
    return f"{devices_words(shape.world_size)}{nodes} at {of_all}batch {expected.batch_size:,} ({kind})"


def few(batches: Sequence[Each]) -> list[Each]:
    """The smallest batch, the largest, and one between, where there are many."""
    if len(batches) <= MOST_BATCHES:
        return list(batches)
    return [batches[0], batches[len(batches) // 2], batches[-1]]


def _limits(outlook: Outlook) -> Iterator[str]:
    if outlook.within is not None:
        limit = duration(outlook.within.limit)
        yield _limited(outlook.within, outlook, f"cheapest within {limit}", f"within {limit}")
    if outlook.at_most is not None:
        limit = f"{outlook.at_most.limit:g}"
        yield _limited(outlook.at_most, outlook, f"fastest for at most {limit}", f"for at most {limit}")


def _limited(found: Limited, outlook: Outlook, head: str, limit: str) -> str:
    head += _without_restarts(outlook)
    best = f"{way_words(found.way, outlook)}: {_spent(found.way)}"
    has_interval = found.way.run.time_s.low < found.way.run.time_s.high
    chance = f", {_chance(found)} {limit}" if has_interval else " (nobody said how sure that is)"
    if not found.keeps:
        return f"{head}: none of what was measured or predicted; nearest is {best}{chance}"
    words = f"{head}: {best}{chance}"
    if found.surer is None or not has_interval:
        return words
    return f"{words}; for 95% {way_words(found.surer, outlook)}: {_spent(found.surer)}"


def _without_restarts(outlook: Outlook) -> str:
    """What a run of epochs takes besides its steps, and is not known of other numbers of devices."""
    epochs = any(work.is_run and work.epochs for work in outlook.work)
    return " (without restarts of the loader)" if epochs else ""


def _chance(found: Limited) -> str:
    if found.probability > 0.995:
        return "more than 99% likely"
    return "less than 1% likely" if found.probability < 0.005 else f"{found.probability:.0%} likely"


def _spent(way: Way) -> str:
    """What a run takes."""
    run = way.run
    money = f", cost {plain_interval(run.money)}" if run.money is not None else ""
    unit, unit_s = duration_unit(run.time_s.value)
    device_unit, device_unit_s = duration_unit(run.device_s.value)
    device_time = f"{figures(run.device_s.value / device_unit_s)} device-{device_unit}"
    return f"{plain_interval(run.time_s.scaled(1 / unit_s))} {unit}, {device_time}{money}"


def duration(seconds: float) -> str:
    """A time limit, in the unit that suits it: 2 h, 90 min, 45 s."""
    unit, unit_s = duration_unit(seconds)
    return f"{seconds / unit_s:g} {unit}"


def _returns(outlook: Outlook) -> Iterator[str]:
    """The marginal return of each doubling, a line for each batch."""
    for batch, found in few(outlook.returns):
        shares = [plain_percent(each.each) for each in found]
        shares[0] += " of one"
        shown = [f"{share} ({each.fewer} to {each.more})" for share, each in zip(shares, found, strict=True)]
        at = f" at batch {batch:,}" if len(outlook.returns) > 1 else ""
        yield f"each further device brought{at}: {', '.join(shown)}"


def _laws(outlook: Outlook) -> Iterator[str]:
    """What a law makes of each batch, where nothing could be predicted."""
    of_all = "global " if outlook.forecast.group.scaling == "strong" else ""
    for batch, found in few(list(outlook.laws.items())):
        shown = [f"{plain_times(speedup)} on {size}" for size, speedup in found.speedups]
        yield (
            f"by {found.law}'s law, f = {plain_percent(found.fraction)} from {found.measured_on} devices at "
            f"{of_all}batch {batch:,}, without what a larger network costs: {', '.join(shown)}"
        )


def _refusals(outlook: Outlook) -> Iterator[str]:
    """Each reason once, with where it holds."""
    places: dict[str, list[str]] = {}
    for each in outlook.forecast.predicted:
        if each.refused:
            reason = refusal_words(each, outlook.forecast)
            places.setdefault(reason, []).append(f"{each.shape.world_size:,}")
    for reason, sizes in places.items():
        yield f"refused at {', '.join(dict.fromkeys(sizes))} devices: {reason}"


def refusal_words(row: Expected, forecast: Forecast) -> str:
    """Why there is no prediction; empty where there is one."""
    shape, sizes = row.shape, forecast.fitted.world_sizes
    if row.refused == "too few world sizes":
        measured = f"measured at {plural(len(sizes), 'world size')} ({', '.join(map(str, sizes))})"
        return f"{measured}: a prediction needs {FEWEST_SIZES}"
    if row.refused == "too many devices":
        return (
            f"{shape.world_size} devices are more than {FARTHEST} times the largest measured world size, "
            f"{sizes[-1]}"
        )
    if row.refused == "network not crossed":
        return (
            f"asked for {shape.nodes} nodes, but all points are from one node: the network between nodes "
            "was never crossed, and no sweep of it is given"
        )
    if row.refused == "no sample for each device":
        return f"a global batch of {row.batch_size:,} has no sample for each of {shape.world_size:,} devices"
    return ""


#: model: the model's name; of a file without that column the file's
#: nodes: number of nodes
#: world_size: number of devices
#: batch_size: samples per device, under strong scaling of all devices; one row for each measured batch
#: step_time_s: step time of the slowest rank; empty where it is refused
#: step_time_low_s: lower end of the 95% interval of a new measurement
#: step_time_high_s: upper end of its interval
#: naive_step_time_s: step time if the step stays as at the largest measured world size of this batch
#: efficiency: efficiency over one device, of the throughput or, under strong scaling, of the step time
#: cost: cost of the run in the price's currency; empty without a price
#: refused: why there is no prediction; else empty
#: how: `fit` to several world sizes, measured `as_if` there were so many, or `simulated` over a network
PREDICTION_COLUMNS = (
    "model",
    "nodes",
    "world_size",
    "batch_size",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "naive_step_time_s",
    "efficiency",
    "cost",
    "refused",
    "how",
)
CAPTION = (
    "95% intervals for a new measurement. Naive: the step stays as at the largest measured world size. "
    "Efficiency is over one device."
)
BY_AMDAHL = " Amdahl: his law, fitted to the same steps."


def prediction_table(outlook: Outlook | None, title: str = "Predicted", *, refusals: bool = False) -> Table:
    """The predictions, by batch and world size.

    ``refusals``, for documents: a column says why there is none, the caption what the predictions mean.
    """
    if outlook is None:
        return empty_table(title)
    forecast, priced = outlook.forecast, outlook.prices.are_known
    if refusals and all(row.step_time_s is None for row in forecast.predicted):
        return _refusal_table(outlook, title)
    batch = "global batch" if forecast.scaling == "strong" else "batch"
    costs = {(way.expected.batch_size, way.expected.shape): way for way in outlook.ways}

    def cost(row: Expected) -> str:
        way = costs.get((row.batch_size, row.shape))
        money = way.run.money if way is not None and row.step_time_s is not None else None
        return known(money, lambda paid: figures(paid.value))

    unit, unit_s = _step_unit(forecast.predicted)

    def step_time(row: Expected) -> str:
        return known(row.step_time_s, lambda step_s: interval(step_s.scaled(1 / unit_s)), "refused")

    def law(row: Expected, seconds: float | None) -> str:
        """What is refused is not answered by a simpler law either."""
        return NONE if row.step_time_s is None else known(seconds, lambda value: figures(value / unit_s))

    columns: list[Column[Expected]] = [
        Column("devices/ nodes", lambda row: place_words(row.shape), right=True),
        Column(batch, lambda row: f"{row.batch_size:,}", right=True),
        Column(f"step time, {unit}", step_time, right=True),
        Column("naive", lambda row: law(row, row.naive_step_time_s), right=True),
        *(
            [Column[Expected]("Amdahl", lambda row: law(row, row.amdahl_step_time_s), right=True)]
            if forecast.amdahl
            else []
        ),
        Column("efficiency", lambda row: known(row.efficiency, percent), right=True),
        *([Column("cost", cost, right=True)] if priced else []),
        *([Column[Expected]("refused", lambda row: refusal_words(row, forecast))] if refusals else []),
    ]
    paid = f"{BY_AMDAHL if forecast.amdahl else ''}{f' Cost: of {_run_of(outlook)}.' if priced else ''}"
    words = [f"{sentence(each)}." for each in bring_words(outlook)] if refusals else []
    return make_table(title, " ".join([CAPTION + paid, *words]), columns, forecast.predicted)


def law_table(results: StudyResults) -> Table:
    """What a law makes of more devices, where nothing could be predicted."""
    found, headline = results.by_law, results.headline
    title = f"By {found.law}'s law" if found else "By a law"
    known_better = results.more_devices is not None and results.more_devices.points
    if found is None or headline is None or known_better:
        return empty_table(title)
    batch = int(headline.config.setting.batch_size)
    is_strong, f = headline.config.scaling == "strong", found.fraction
    most = (
        f" No number of devices reaches more than {figures(1 / f.value)} (1/f)."
        if is_strong and f.value
        else ""
    )
    columns: list[Column[tuple[int, Estimate]]] = [
        Column("devices", lambda row: str(row[0]), right=True),
        Column(
            "batch per device", lambda row: f"{batch / row[0]:g}" if is_strong else f"{batch:,}", right=True
        ),
        Column("speed-up", lambda row: times(row[1]), right=True),
        Column("efficiency", lambda row: percent(row[1].scaled(1 / row[0])), right=True),
    ]
    caption = (
        f"A law, not a prediction: f = {percent(f)} by the speed-up of {found.measured_on} devices. What the "
        f"network between more devices costs is not in it.{most}"
    )
    return make_table(title, caption, columns, found.speedups)


def _refusal_table(outlook: Outlook, title: str) -> Table:
    """Why nothing is predicted: each shape once where the reason is that of all its batches."""
    reasons: dict[tuple[Shape, str], list[int]] = {}
    for row in outlook.forecast.predicted:
        reasons.setdefault((row.shape, refusal_words(row, outlook.forecast)), []).append(row.batch_size)
    of_all = "global " if outlook.forecast.scaling == "strong" else ""

    def batches(sizes: Sequence[int]) -> str:
        return ", ".join(f"{size:,}" for size in sorted(sizes))

    columns: list[Column[tuple[tuple[Shape, str], list[int]]]] = [
        Column("devices/ nodes", lambda row: place_words(row[0][0]), right=True),
        Column(f"{of_all}batch", lambda row: batches(row[1]), right=True),
        Column("refused", lambda row: row[0][1]),
    ]
    words = [f"{sentence(each)}." for each in bring_words(outlook)]
    return make_table(title, " ".join(["Nothing could be predicted.", *words]), columns, reasons.items())


def tradeoff_table(
    outlook: Outlook | None, title: str = "Time and cost", most_rows: int | None = None
) -> Table:
    """What an epoch and a run take on every measured and predicted number of devices.

    ``most_rows``, for a terminal: of more those alone that are on the front, and fewer intervals.
    """
    if outlook is None or not outlook.ways:
        return empty_table(title)
    shown = outlook.ways
    if most_rows is not None and len(shown) > most_rows:
        shown = tuple(way for way in shown if way.on_front)[:most_rows]
    unit, unit_s = duration_unit(median(way.run.time_s.value for way in shown))
    epoch = any(way.epoch for way in outlook.ways)
    metered = any(way.run.energy_joules for way in outlook.ways)
    batch = "global batch" if outlook.forecast.scaling == "strong" else "batch"

    def short(found: Estimate) -> str:
        """In a terminal its interval is as wide as the run's."""
        return figures(found.value) if most_rows else plain_interval(found)

    def epoch_words(way: Way) -> str:
        return known(way.epoch, lambda cost: short(cost.time_s.scaled(1 / unit_s)))

    def kind(way: Way) -> str:
        return "measured" if way.expected.is_measured else "predicted"

    def run_time(way: Way) -> str:
        about = "~" if most_rows and not way.expected.is_measured else ""
        return about + plain_interval(way.run.time_s.scaled(1 / unit_s))

    def place(way: Way) -> str:
        return f"{'* ' if way.on_front else ''}{place_words(way.expected.shape)}"

    def money(way: Way) -> str:
        return known(way.run.money, short)

    columns: list[Column[Way]] = [
        Column("devices/ nodes", place, right=True),
        Column(batch, lambda way: f"{way.expected.batch_size:,}", right=True),
        *([] if most_rows else [Column("step", kind)]),
        *([Column[Way](f"epoch, {unit}", epoch_words, right=True)] if epoch else []),
        Column(f"run, {unit}", run_time, right=True),
        Column(f"device- {unit}", lambda way: figures(way.run.device_s.value / unit_s), right=True),
        *([Column[Way]("cost", money, right=True)] if outlook.prices.are_known else []),
        *([Column[Way]("energy, kJ", _kilojoules, right=True)] if metered else []),
    ]
    against = "money" if outlook.prices.are_known else "device time"
    others = _left_out([way for way in outlook.ways if way not in shown])
    others += " ~: predicted." if most_rows else ""
    caption = (
        f"A run is {_run_of(outlook)}: steps alone. *: on the front of time and {against}: no other way is "
        f"as good in both and better in one beyond the intervals; a time without one counts as exact.{others}"
    )
    return make_table(title, caption, columns, shown)


def _left_out(ways: Sequence[Way]) -> str:
    best = sum(way.on_front for way in ways)
    words = [f"{len(ways) - best} that are not"] if len(ways) > best else []
    words += [f"{best} more that {'is' if best == 1 else 'are'}"] if best else []
    return f" Left out: {' and '.join(words)}." if words else ""


def prediction_rows(outlooks: Sequence[Outlook]) -> list[dict[str, KnobValue]]:
    """Rows of predict's CSV file: the columns of docs/reference.md."""
    rows = []
    for outlook in outlooks:
        costs = {(way.expected.batch_size, way.expected.shape): way.run.money for way in outlook.ways}
        for each in outlook.forecast.predicted:
            step_s, paid = each.step_time_s, costs.get((each.batch_size, each.shape))
            values: tuple[KnobValue, ...] = (
                outlook.forecast.group.model,
                each.shape.nodes,
                each.shape.world_size,
                each.batch_size,
                step_s.value if step_s else None,
                step_s.low if step_s else None,
                step_s.high if step_s else None,
                each.naive_step_time_s,
                each.efficiency.value if each.efficiency else None,
                paid.value if paid and step_s else None,
                refusal_words(each, outlook.forecast) or None,
                "fit",
            )
            rows.append(dict(zip(PREDICTION_COLUMNS, values, strict=True)))
    return rows


def place_words(shape: Shape) -> str:
    """16/4: sixteen devices on four nodes."""
    return f"{shape.world_size:,}/{shape.nodes:,}"


def _run_of(outlook: Outlook) -> str:
    return next(work.name for work in outlook.work if work.is_run)


def _step_unit(rows: Sequence[Expected]) -> tuple[str, float]:
    """The unit that suits the longest step of a table."""
    known_s = [row.step_time_s.value for row in rows if row.step_time_s is not None]
    unit, per_s = time_unit(max(known_s, default=1e-3))
    return unit, 1 / per_s


def _kilojoules(way: Way) -> str:
    joules = way.run.energy_joules
    return figures(joules / 1e3) if joules else NONE


MOST_BANDS = 4  # more lie on each other


@dataclass(frozen=True)
class PredictedLine:
    """One batch: what was measured, and what is predicted from the largest measured world size on."""

    measured: Line
    predicted: Line


@dataclass(frozen=True)
class PredictionPlot:
    """Throughput in samples/s and efficiency over the world size, a line for each batch."""

    model: str
    world_sizes: tuple[int, ...]
    throughput: tuple[PredictedLine, ...]
    efficiency: tuple[PredictedLine, ...]
    num_left_out: int  # batches beyond those that a plot can hold

    @property
    def largest_measured(self) -> int:
        """Where the band begins."""
        return int(max(point.x for line in self.throughput for point in line.measured.points))


def prediction_plot(outlook: Outlook | None) -> PredictionPlot | None:
    """The batches of a forecast, evenly chosen where there are many; None where nothing was predicted."""
    if outlook is None or not outlook.forecast.answered:
        return None
    forecast = outlook.forecast
    answered = sorted({each.batch_size for each in forecast.answered})
    places = np.unique(np.linspace(0, len(answered) - 1, min(len(answered), MOST_BANDS)).round().astype(int))
    shown = [answered[place] for place in places]
    sizes = {each.shape.world_size for each in forecast.everything if each.batch_size in shown}
    return PredictionPlot(
        model=forecast.group.model,
        world_sizes=tuple(sorted(sizes)),
        throughput=_lines(forecast, shown, lambda each: each.throughput_samples_per_s),
        efficiency=_lines(forecast, shown, lambda each: each.efficiency),
        num_left_out=len(answered) - len(shown),
    )


def draw_prediction(plot: PredictionPlot) -> Figure:
    """Throughput and efficiency side by side: points measured, bands predicted."""
    lines = [line.measured for line in plot.throughput]
    figure, (left, right) = make_figure(9.0, 3.9 + legend_height(9.0, lines), columns=2)
    for index, line in enumerate(plot.throughput):
        _draw(left, line, index, 1.0)
    for index, line in enumerate(plot.efficiency):
        _draw(right, line, index, 100.0)
    right.axhline(100, color=GREY, linestyle=(0, (1, 2)), linewidth=1.2)
    for axes in (left, right):
        log2_axis(axes, plot.world_sizes)
        axes.set_xlabel("world size (devices)")
    points = [
        point for line in plot.throughput for part in (line.measured, line.predicted) for point in part.points
    ]
    log_y(left, shown_ends(point.estimate for point in points))
    percent_axis(right, [part for line in plot.efficiency for part in (line.measured, line.predicted)])
    left.set_ylabel("throughput (samples/s)")
    right.set_ylabel("scaling efficiency (%)")
    note = (
        f" · {plural(plot.num_left_out, 'batch', 'batches')} more in the tables" if plot.num_left_out else ""
    )
    words = f"{plot.model}: measured to {plot.largest_measured} devices (points), predicted beyond"
    write_title(figure, f"{words}\n(dashed; band: 95% interval of a new measurement){note}")
    legend_below(figure, left)
    return figure


def _lines(
    forecast: Forecast, batches: Sequence[int], value: Callable[[Expected], Estimate | None]
) -> tuple[PredictedLine, ...]:
    """For each batch the fullest nodes at each world size; predicted from the last measured point on."""
    kind = "global batch" if forecast.scaling == "strong" else "batch"
    found = []
    for batch in batches:
        measured = _by_size((each for each in forecast.measured if each.batch_size == batch), value)
        predicted = _by_size((each for each in forecast.answered if each.batch_size == batch), value)
        last = measured[-1:] if measured and predicted and measured[-1][0] < predicted[0][0] else []
        label = f"{kind} {batch:,}"
        found.append(PredictedLine(make_line(label, measured), make_line(label, [*last, *predicted])))
    return tuple(found)


def _by_size(
    steps: Iterable[Expected], value: Callable[[Expected], Estimate | None]
) -> list[tuple[float, Estimate | None]]:
    fullest: dict[int, Expected] = {}
    for each in sorted(steps, key=lambda each: each.shape.nodes):
        fullest.setdefault(each.shape.world_size, each)
    return [(size, value(fullest[size])) for size in sorted(fullest)]


def _draw(axes: Axes, line: PredictedLine, index: int, scale: float) -> None:
    color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
    x, (y, low, high) = _arrays(line.measured, scale)
    axes.plot(x, y, color=color, marker=marker, markersize=5, linewidth=1.4, label=line.measured.label)
    axes.errorbar(x, y, yerr=np.vstack([y - low, high - y]), fmt="none", ecolor=color, capsize=3, zorder=1.5)
    x, (y, low, high) = _arrays(line.predicted, scale)
    if len(x):
        axes.plot(x, y, color=color, linestyle="--", linewidth=1.4)
        begin = 1 if line.measured.points and line.measured.points[-1].x == x[0] else 0
        axes.plot(
            x[begin:],
            y[begin:],
            color=color,
            linestyle="",
            marker=marker,
            markersize=5,
            markerfacecolor="white",
        )
        axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def _arrays(line: Line, scale: float) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    x = np.array([point.x for point in line.points])
    ends = ("value", "low", "high")
    return x, tuple(np.array([getattr(point.estimate, end) for point in line.points]) * scale for end in ends)


MOST_ROWS = 16  # of the table of costs


def print_outlooks(
    outlooks: Sequence[Outlook], console: Console, *, costs: bool, quiet: bool = False
) -> None:
    """Each model's tables and sentences.

    ``costs`` adds what epochs and runs take, ``quiet`` leaves the tables out.
    """
    from rich.text import Text

    for outlook in outlooks:
        if not quiet:
            print_table(prediction_table(outlook, _title(outlook)), console)
            table = tradeoff_table(outlook, most_rows=MOST_ROWS)
            if costs and table.rows:
                print_table(table, console)
                console.print(Text(f"{table.caption}\n"))
        for line in outlook_sentences(outlook, costs=costs):
            console.print(Text(line))
        console.print()


def print_table(table: Table, console: Console) -> None:
    """No wider than it has to be."""
    console.print(rich_table(table, tight=True), width=min(console.width, MOST_WIDTH))


def _title(outlook: Outlook) -> str:
    forecast = outlook.forecast
    setting = f", {forecast.group.setting}" if forecast.group.setting else ""
    return f"{forecast.group.model}{setting}: {forecast.scaling} scaling"
