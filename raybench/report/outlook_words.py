"""What a forecast means, in sentences: limits, what devices bring, how sure, what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from raybench.analysis.estimates.efficiency import Status
from raybench.analysis.labels import devices_words
from raybench.analysis.prediction.measured_scaling import MeasuredScaling
from raybench.analysis.prediction.tradeoff import LEAST_RETURN, Limited, Outlook, SerialFraction, Way, Worth
from raybench.report.format import (
    duration_unit,
    figures,
    plain_interval,
    plain_percent,
    plain_times,
    serial_fraction_words,
)

Each = TypeVar("Each")
MOST_BATCHES = 3  # of which a sentence tells something


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
    """Amdahl's law, the error of the fit, the measurement that helps most."""
    advice = outlook.forecast.advice
    return [*_amdahl(outlook), *_held_out(outlook), *([f"helps most: {advice}"] if advice else [])]


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
    told = f"{way_words(found.way, outlook)}: {_spent(found.way)}"
    has_interval = found.way.run.time_s.low < found.way.run.time_s.high
    chance = f", {_chance(found)} {limit}" if has_interval else " (nobody said how sure that is)"
    if not found.keeps:
        return f"{head}: none of what was measured or predicted; nearest is {told}{chance}"
    words = f"{head}: {told}{chance}"
    if found.surer is None or not has_interval:
        return words
    return f"{words}; for 95% {way_words(found.surer, outlook)}: {_spent(found.surer)}"


def _without_restarts(outlook: Outlook) -> str:
    """What a run of epochs takes beside its steps, and is not known of other numbers of devices."""
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
    """A time that was asked for, in the unit that suits it: 2 h, 90 min, 45 s."""
    unit, unit_s = duration_unit(seconds)
    return f"{seconds / unit_s:g} {unit}"


def _amdahl(outlook: Outlook) -> Iterator[str]:
    """Amdahl's f of each batch, by the definition of the report."""
    told = [_fraction_words(each, outlook) for each in few(outlook.serial_fractions)]
    if told:
        yield f"Amdahl's law: f = {'; '.join(told)}"


def _fraction_words(found: SerialFraction, outlook: Outlook) -> str:
    value, is_fit = found.fraction, found.world_size is None
    is_slower = is_fit and value.value >= 1  # by a fit f stays a share
    is_share = 0 <= value.value <= 1 and not is_slower
    words = plain_percent(value) if is_share and value.low >= value.high else serial_fraction_words(value)
    words = "none: slower than one" if is_slower else words
    if not is_fit or len(outlook.serial_fractions) > 1:
        of_all = "global " if outlook.forecast.group.scaling == "strong" else ""
        words += f" at {of_all}batch {found.batch_size:,}"
    if found.world_size is not None:
        words += f" by the speed-up on {devices_words(found.world_size)}"
    if not is_share:
        return words
    if found.devices is None:
        return f"{words}, every device brings a whole one"
    verb = "returns" if found.devices == 1 else "return"
    most = devices_words(found.devices)
    return f"{words}, more than {most} {verb} less than {LEAST_RETURN:.0%} of one each"


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
        shown = "world sizes that it was not shown, by which its form was chosen"
        yield f"error of the fit on {shown}: {error:.0%} in the mean"
