"""What more devices would bring, and cost, and measurements made elsewhere: sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from raybench.analysis.labels import devices_words
from raybench.analysis.scaling import Status
from raybench.analysis.simulate.outlook import Limited, Outlook, Way
from raybench.analysis.simulate.predict import FARTHEST, FEWEST_SIZES
from raybench.analysis.simulate.steps import Expected, MeasuredScaling, Shape
from raybench.analysis.stats.statistics import Estimate
from raybench.report.format import (
    duration_unit,
    figures,
    interval,
    percent,
    plain_lasting,
    sentence,
    time_unit,
    times,
)
from raybench.report.table import MOST_WIDTH, NONE, Column, Table, empty_table, known, make_table, rich_table
from raybench.spec.knobs import KnobValue

if TYPE_CHECKING:
    from rich.console import Console

Each = TypeVar("Each")
TRADEOFF = "Time and cost"
MOST_BATCHES = 3  # that a sentence names


def outlook_sentences(outlook: Outlook) -> list[str]:
    """What an outlook means, a line each: how it scales, limits, what devices bring, what was refused."""
    measured = [f"measured: {'; '.join(measured_words(outlook))}"] if outlook.scalings else []
    return [*measured, *_limits(outlook), *bring_words(outlook)]


def bring_words(outlook: Outlook) -> list[str]:
    """What further devices brought, or by a law would bring, and what was refused."""
    return [*returns_words(outlook), *_laws(outlook), *refusals_words(outlook)]


def measured_words(outlook: Outlook) -> Iterator[str]:
    """The largest world size of each batch, of many batches a few."""
    of_all = "global " if outlook.group.scaling == "strong" else ""
    largest: dict[int, MeasuredScaling] = {}
    for each in outlook.scalings:
        known = largest.get(each.batch_size)
        if known is None or each.shape.world_size > known.shape.world_size:
            largest[each.batch_size] = each
    for each in few(list(largest.values())):
        at = f"{devices_words(each.shape.world_size)} at {of_all}batch {each.batch_size:,}"
        if each.speedup is None or each.efficiency is None or each.status is None:
            yield f"{at}: no other world size to compare with"
            continue
        status = "negative scaling" if each.status is Status.NEGATIVE else str(each.status)
        over = "" if each.baseline_world_size == 1 else f" over {each.baseline_world_size}"
        yield f"{at}: {each.speedup.value:.2f}x{over}, efficiency {percent(each.efficiency)}, {status}"


def way_words(way: Way, outlook: Outlook) -> str:
    """16 devices on 4 nodes at batch 128 (predicted)."""
    shape, expected = way.expected.shape, way.expected
    nodes = f" on {shape.nodes} nodes" if shape.nodes > 1 else ""
    of_all = "global " if outlook.scaling == "strong" else ""
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
    best = f"{way_words(found.way, outlook)}: {_spent(found.way)}"
    has_interval = found.way.run.time_s.low < found.way.run.time_s.high
    chance = f", {_chance(found)} {limit}" if has_interval else " (nobody said how sure that is)"
    if not found.keeps:
        return f"{head}: none of what was measured or predicted; nearest is {best}{chance}"
    words = f"{head}: {best}{chance}"
    if found.surer is None or not has_interval:
        return words
    return f"{words}; for 95% {way_words(found.surer, outlook)}: {_spent(found.surer)}"


def _chance(found: Limited) -> str:
    if found.probability > 0.995:
        return "more than 99% likely"
    return "less than 1% likely" if found.probability < 0.005 else f"{found.probability:.0%} likely"


def _spent(way: Way) -> str:
    """What a run takes."""
    run = way.run
    money = f", cost {interval(run.money)}" if run.money is not None else ""
    unit, unit_s = duration_unit(run.device_s.value)
    return f"{plain_lasting(run.time_s)}, {figures(run.device_s.value / unit_s)} device-{unit}{money}"


def duration(seconds: float) -> str:
    """A time limit, in the unit that suits it: 2 h, 90 min, 45 s."""
    unit, unit_s = duration_unit(seconds)
    return f"{seconds / unit_s:g} {unit}"


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
    of_all = "global " if outlook.group.scaling == "strong" else ""
    for batch, found in few(list(outlook.laws.items())):
        shown = [f"{times(speedup)} on {size}" for size, speedup in found.speedups]
        yield (
            f"by {found.law}'s law, f = {percent(found.fraction)} from {found.measured_on} devices at "
            f"{of_all}batch {batch:,}, without what a larger network costs: {', '.join(shown)}"
        )


def refusals_words(outlook: Outlook) -> Iterator[str]:
    """Each reason once, with where it holds."""
    places: dict[str, list[str]] = {}
    for each in outlook.predicted:
        if each.refused:
            reason = refusal_words(each, outlook)
            places.setdefault(reason, []).append(f"{each.shape.world_size:,}")
    for reason, sizes in places.items():
        yield f"refused at {', '.join(dict.fromkeys(sizes))} devices: {reason}"


def refusal_words(row: Expected, outlook: Outlook) -> str:
    """Why there is no prediction; empty where there is one."""
    shape, sizes = row.shape, outlook.group.world_sizes
    if row.refused == "too few world sizes":
        return (
            f"a prediction takes measurements on {FEWEST_SIZES} numbers of devices, such as 1, 2 and 4 "
            f"(here on {', '.join(map(str, sizes))})"
        )
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


def prediction_table(outlook: Outlook, title: str) -> Table:
    """The predictions, by batch and world size."""
    prices = outlook.prices
    known_s = [row.step_time_s.value for row in outlook.predicted if row.step_time_s is not None]
    unit, per_s = time_unit(max(known_s, default=1e-3))

    def step_time(row: Expected) -> str:
        return known(row.step_time_s, lambda step_s: interval(step_s.scaled(per_s)), "refused")

    def law(row: Expected, seconds: float | None) -> str:
        """What is refused is not answered by a simpler law either."""
        return NONE if row.step_time_s is None else known(seconds, lambda value: figures(value * per_s))

    def cost(row: Expected) -> str:
        return known(_money(outlook, row), lambda paid: figures(paid.value))

    columns: list[Column[Expected]] = [
        Column("devices/ nodes", lambda row: place_words(row.shape), right=True),
        Column(_batch(outlook), lambda row: f"{row.batch_size:,}", right=True),
        Column(f"step time, {unit}", step_time, right=True),
        Column("naive", lambda row: law(row, row.naive_step_time_s), right=True),
        *(
            [Column[Expected]("Amdahl", lambda row: law(row, row.amdahl_step_time_s), right=True)]
            if outlook.fitted.amdahl
            else []
        ),
        Column("efficiency", lambda row: known(row.efficiency, percent), right=True),
        *([Column("cost", cost, right=True)] if prices.are_known else []),
    ]
    paid = f" Cost: of {outlook.run.name}." if prices.are_known else ""
    caption = f"{CAPTION}{BY_AMDAHL if outlook.fitted.amdahl else ''}{paid}"
    return make_table(title, caption, columns, outlook.predicted)


def tradeoff_table(outlook: Outlook) -> Table:
    """What a run takes on every measured and predicted number of devices."""
    if not outlook.ways:
        return empty_table(TRADEOFF)
    unit, unit_s = duration_unit(median(way.run.time_s.value for way in outlook.ways))
    priced = outlook.prices.are_known

    def place(way: Way) -> str:
        return f"{'* ' if way.on_front else ''}{place_words(way.expected.shape)}"

    def money(way: Way) -> str:
        return known(way.run.money, interval)

    def kilojoules(way: Way) -> str:
        return known(way.run.energy_joules, lambda joules: figures(joules / 1e3))

    columns: list[Column[Way]] = [
        Column("devices/ nodes", place, right=True),
        Column(_batch(outlook), lambda way: f"{way.expected.batch_size:,}", right=True),
        Column("step", lambda way: "measured" if way.expected.is_measured else "predicted"),
        Column(f"run, {unit}", lambda way: interval(way.run.time_s.scaled(1 / unit_s)), right=True),
        Column(f"device- {unit}", lambda way: figures(way.run.device_s.value / unit_s), right=True),
        *([Column[Way]("cost", money, right=True)] if priced else []),
        *(
            [Column[Way]("energy, kJ", kilojoules, right=True)]
            if any(way.run.energy_joules for way in outlook.ways)
            else []
        ),
    ]
    caption = (
        f"A run is {outlook.run.name}: steps alone. *: on the front of time and "
        f"{'money' if priced else 'device time'}: no other way is as good in both and better in one beyond "
        f"the intervals; a time without one counts as exact."
    )
    return make_table(TRADEOFF, caption, columns, outlook.ways)


def _batch(outlook: Outlook) -> str:
    return "global batch" if outlook.scaling == "strong" else "batch"


def prediction_rows(outlooks: Sequence[Outlook]) -> list[dict[str, KnobValue]]:
    """Rows of predict's CSV file: the columns of docs/reference.md."""
    rows = []
    for outlook in outlooks:
        for each in outlook.predicted:
            paid = _money(outlook, each)
            row: dict[str, KnobValue] = {
                "model": outlook.group.model,
                "nodes": each.shape.nodes,
                "world_size": each.shape.world_size,
                "batch_size": each.batch_size,
                **step_columns(each.step_time_s, each.efficiency),
                "naive_step_time_s": each.naive_step_time_s,
                "cost": paid.value if paid else None,
                "refused": refusal_words(each, outlook) or None,
                "how": "fit",
            }
            rows.append({name: row[name] for name in PREDICTION_COLUMNS})
    return rows


def step_columns(step_s: Estimate | None, efficiency: Estimate | None) -> dict[str, KnobValue]:
    """The columns of a step."""
    return {
        "step_time_s": step_s.value if step_s else None,
        "step_time_low_s": step_s.low if step_s else None,
        "step_time_high_s": step_s.high if step_s else None,
        "efficiency": efficiency.value if efficiency else None,
    }


def _money(outlook: Outlook, row: Expected) -> Estimate | None:
    """What a run costs there; None where the step is refused, or without a price."""
    if row.step_time_s is None:
        return None
    place = row.batch_size, row.shape
    ways = (way for way in outlook.ways if (way.expected.batch_size, way.expected.shape) == place)
    return next((way.run.money for way in ways), None)


def place_words(shape: Shape) -> str:
    """16/4: sixteen devices on four nodes."""
    return f"{shape.world_size:,}/{shape.nodes:,}"


def print_outlooks(
    outlooks: Sequence[Outlook], console: Console, *, costs: bool, quiet: bool = False
) -> None:
    """Each model's tables and sentences.

    ``costs`` adds what runs take, ``quiet`` leaves the tables out.
    """
    from rich.text import Text

    for outlook in outlooks:
        if not quiet:
            print_table(prediction_table(outlook, title_of(outlook)), console)
            table = tradeoff_table(outlook)
            if costs and table.rows:
                print_table(table, console)
                console.print(Text(f"{table.caption}\n"))
        for line in outlook_sentences(outlook):
            console.print(Text(line))
        console.print()


def print_table(table: Table, console: Console) -> None:
    """No wider than it has to be."""
    console.print(rich_table(table, tight=True), width=min(console.width, MOST_WIDTH))


def title_of(outlook: Outlook) -> str:
    """A model, its setting and how it scales."""
    group = outlook.group
    setting = f", {group.setting}" if group.setting else ""
    return f"{group.model}{setting}: {outlook.scaling} scaling"


def imported_table(model: Outlook) -> Table:
    """One model's measured steps, the smallest batch first."""
    group = model.group
    batch = "global batch" if group.scaling == "strong" else "batch"
    columns: list[Column[MeasuredScaling]] = [
        Column("devices/ nodes", lambda row: place_words(row.shape), right=True),
        Column(batch, lambda row: f"{row.batch_size:,}", right=True),
        Column("step time, ms", lambda row: interval(row.step_time_s.scaled(1e3)), right=True),
        Column("samples/s", lambda row: figures(row.throughput_samples_per_s.value), right=True),
        Column("speed-up", lambda row: known(row.speedup, lambda each: f"{each.value:.2f}x"), right=True),
        Column("efficiency", lambda row: known(row.efficiency, percent), right=True),
        Column("status", lambda row: str(row.status) if row.status else ""),
    ]
    of = "step time" if group.scaling == "strong" else "throughput"
    caption = (
        f"Over the smallest world size that was measured with the same batch; the speed-up is that of the "
        f"{of}, efficiency is over the ratio of world sizes. Intervals stand where the file has those of the "
        "step times."
    )
    return make_table(title_of(model), caption, columns, model.scalings)


def print_imported(models: Sequence[Outlook], console: Console) -> None:
    """The measured steps of each model, what more devices would bring, then the answer."""
    from rich.text import Text

    for model in models:
        print_table(imported_table(model), console)
        for line in bring_words(model):
            console.print(Text(f"{sentence(line)}."))
    console.print(Text(imported_answer(models), style="bold"))


def imported_answer(models: Sequence[Outlook]) -> str:
    """How each model scales: a line, its clauses separated by semicolons."""
    named = len(models) > 1
    clauses = []
    for model in models:
        name = f"{model.group.model}: " if named else ""
        clauses += [f"{name}{words}" for words in measured_words(model)]
    return "; ".join(clauses)
