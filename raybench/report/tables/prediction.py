"""What other numbers of devices would bring: step times, what they cost, and predict's CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.prediction.forecast import Expected
from raybench.analysis.prediction.points import Shape
from raybench.analysis.prediction.tradeoff import Outlook, Way
from raybench.report.format import (
    duration_unit,
    figures,
    interval,
    percent,
    plain_interval,
    sentence,
    time_unit,
)
from raybench.report.outlook_words import bring_words
from raybench.report.tables.base import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.knobs import KnobValue

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
)
CAPTION = (
    "95% intervals for a new measurement. Naive: the step stays as at the largest measured world size. "
    "Amdahl: his law, fitted to the same steps. Efficiency is over one device."
)


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
        Column("Amdahl", lambda row: law(row, row.amdahl_step_time_s), right=True),
        Column("efficiency", lambda row: known(row.efficiency, percent), right=True),
        *([Column("cost", cost, right=True)] if priced else []),
        *([Column[Expected]("refused", lambda row: row.refused)] if refusals else []),
    ]
    paid = f" Cost: of {_run_of(outlook)}." if priced else ""
    words = [f"{sentence(each)}." for each in bring_words(outlook)] if refusals else []
    return make_table(title, " ".join([CAPTION + paid, *words]), columns, forecast.predicted)


def _refusal_table(outlook: Outlook, title: str) -> Table:
    """Why nothing is predicted: each shape once where the reason is that of all its batches."""
    reasons: dict[tuple[Shape, str], list[int]] = {}
    for row in outlook.forecast.predicted:
        reasons.setdefault((row.shape, row.refused), []).append(row.batch_size)
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
    told = [f"{len(ways) - best} that are not"] if len(ways) > best else []
    told += [f"{best} more that {'is' if best == 1 else 'are'}"] if best else []
    return f" Left out: {' and '.join(told)}." if told else ""


def prediction_rows(outlooks: Sequence[Outlook]) -> list[dict[str, KnobValue]]:
    """Rows of predict's CSV file: the columns of docs/contract.md."""
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
                each.refused or None,
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
