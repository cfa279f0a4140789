"""What ``predict`` prints: the tables of each model, then what they mean in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raybench.analysis.labels import devices_words
from raybench.analysis.prediction.tradeoff import LEAST_RETURN, Limited, Outlook, Way, Worth
from raybench.report.rich_tables import rich_table
from raybench.report.tables.base import Table
from raybench.report.tables.prediction import (
    HOUR_S,
    MINUTE_S,
    plain_interval,
    prediction_table,
    tradeoff_table,
)
from raybench.report.terminal import MOST_WIDTH
from raybench.report.wording import figures, percent, times

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 16  # of the table of costs
MOST_BATCHES = 3  # of which the number of devices is told in a sentence


def print_outlooks(
    outlooks: Sequence[Outlook], console: Console, *, costs: bool, quiet: bool = False
) -> None:
    """Each model's tables and sentences.

    ``costs`` adds what epochs and runs take, ``quiet`` leaves the tables out.
    """
    from rich.text import Text

    for outlook in outlooks:
        if not quiet:
            _print_table(prediction_table(outlook, _title(outlook)), console)
            table = tradeoff_table(outlook, most_rows=MOST_ROWS)
            if costs and table.rows:
                _print_table(table, console)
                console.print(Text(f"{table.caption}\n"))
        for line in outlook_sentences(outlook, costs=costs):
            console.print(Text(line))
        console.print()


def _print_table(table: Table, console: Console) -> None:
    """No wider than it has to be."""
    drawn = rich_table(table, min(console.width, MOST_WIDTH), tight=True)
    drawn.width = None
    console.print(drawn, width=min(console.width, MOST_WIDTH))


def outlook_sentences(outlook: Outlook, *, costs: bool) -> list[str]:
    """What a forecast means, a line each: limits, what devices bring, how sure, what was left out."""
    return [
        *_limits(outlook),
        *([worth_words(each, outlook) for each in _few(outlook.worth)] if costs else []),
        *_amdahl(outlook),
        *_refusals(outlook),
        *_held_out(outlook),
        *(f"helps most: {advice}" for advice in outlook.forecast.advice),
        *(f"note: {note}" for note in outlook.forecast.group.notes),
    ]


def worth_words(worth: Worth, outlook: Outlook) -> str:
    """How many devices for this batch, with the numbers that say so."""
    at, run = way_words(worth.way, outlook), _spent(worth.way)
    if worth.way is worth.fewest:
        words = f"use {at}: {run}"
    else:
        few = devices_words(worth.fewest.expected.shape.world_size)
        words = f"use {at}: {run}, {times(worth.speedup)} as fast as {few} ({_spent(worth.fewest)})"
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


def _title(outlook: Outlook) -> str:
    forecast = outlook.forecast
    setting = f", {forecast.group.setting}" if forecast.group.setting else ""
    return f"{forecast.group.model}{setting}: {forecast.scaling} scaling"


def _few(worth: Sequence[Worth]) -> list[Worth]:
    """The smallest batch, the largest, and one between, where there are many."""
    if len(worth) <= MOST_BATCHES:
        return list(worth)
    return [worth[0], worth[len(worth) // 2], worth[-1]]


def _limits(outlook: Outlook) -> Iterator[str]:
    if outlook.within is not None:
        limit = duration(outlook.within.limit)
        yield _limited(outlook.within, outlook, f"cheapest within {limit}", f"within {limit}")
    if outlook.at_most is not None:
        limit = f"{outlook.at_most.limit:g}"
        yield _limited(outlook.at_most, outlook, f"fastest for at most {limit}", f"for at most {limit}")


def _limited(found: Limited, outlook: Outlook, head: str, limit: str) -> str:
    told = f"{way_words(found.way, outlook)}: {_spent(found.way)}"
    if not found.keeps:
        return f"{head}: none of what was measured or predicted; nearest is {told}, {_chance(found)} {limit}"
    words = f"{head}: {told}, {_chance(found)} {limit}"
    if found.surer is None:
        return words
    return f"{words}; for 95% {way_words(found.surer, outlook)}: {_spent(found.surer)}"


def _chance(found: Limited) -> str:
    if found.probability > 0.995:
        return (
            "more than 99% likely" if found.way.run.time_s.low < found.way.run.time_s.high else "as measured"
        )
    if found.probability < 0.005:
        return "less than 1% likely"
    return f"{found.probability:.0%} likely"


def _spent(way: Way) -> str:
    """What a run takes."""
    run = way.run
    time_s, device_h = run.time_s, figures(run.device_s.value / HOUR_S)
    money = f", cost {plain_interval(run.money)}" if run.money is not None else ""
    unit, unit_s = _unit(time_s.value)
    return f"{plain_interval(time_s.scaled(1 / unit_s))} {unit}, {device_h} device-hours{money}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it: 2 h, 90 s."""
    unit, unit_s = _unit(seconds)
    return f"{seconds / unit_s:g} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    if seconds >= HOUR_S:
        return "h", HOUR_S
    return ("min", MINUTE_S) if seconds >= 2 * MINUTE_S else ("s", 1.0)


def _amdahl(outlook: Outlook) -> Iterator[str]:
    amdahl, most = outlook.forecast.amdahl, outlook.amdahl_devices
    if amdahl is None:
        return
    words = f"Amdahl's law: f = {percent(amdahl.serial_fraction)}"
    if most is None:
        yield f"{words}; every device brings a whole one"
        return
    yield f"{words}; more than {devices_words(most)} return less than {LEAST_RETURN:.0%} of one each"


def _refusals(outlook: Outlook) -> Iterator[str]:
    """Each reason once, with where it holds."""
    places: dict[str, list[str]] = {}
    for each in outlook.forecast.predicted:
        if each.refused:
            places.setdefault(each.refused, []).append(f"{each.shape.world_size:,}")
    for reason, sizes in places.items():
        yield f"refused at {', '.join(dict.fromkeys(sizes))} devices: {reason}"


def _held_out(outlook: Outlook) -> Iterator[str]:
    error = outlook.forecast.fitted.held_out_error
    if error is not None:
        yield f"error of the fit on world sizes that it was not shown: {error:.0%} in the mean"
