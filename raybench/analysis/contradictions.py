"""Where a write-up contradicts itself: arithmetic rules that run over its published figures.

Each figure is the span of numbers that would be printed so. What a rule makes of other figures is a span
too, and only spans that do not meet are a contradiction: rounding is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from raybench.analysis.published import UNITS, Figure, in_words
from raybench.analysis.words import devices_words, figures

SLACK = 1e-9  # relative, of floating point


class Rule(StrEnum):
    """Every rule there is."""

    ONE_VALUE = "one quantity has one value"
    RATIO = "speed-up = time(1) / time(n) = throughput(n) / throughput(1)"
    EFFICIENCY = "efficiency = speed-up / n"
    THROUGHPUT = "throughput = global batch / step time = samples / epoch time"
    EPOCHS = "total time = epochs x epoch time"
    LAST_EPOCH = "the result is the last epoch's"
    COST = "cost = price x devices x time"
    DEVICE_TIME = "device time(n) / device time(1) = n / speed-up"
    PHASES = "phases add up to the epoch"
    SHARE = "a phase's share = its time / the epoch's"
    GAIN = "share of the gain = (t(1) - t(n)) / (T(1) - T(n))"
    AMDAHL = "Amdahl: speed-up = 1 / ((1 - p) + p/n)"
    LINEAR = "linear rule: learning rate ~ global batch"
    SAVINGS = "time saved = runs x (time(1) - time(n))"


@dataclass(frozen=True)
class Contradiction:
    """One figure, or several, that the write-up's other figures say otherwise of."""

    rule: Rule
    world_size: int | None
    stated: tuple[Figure, ...]
    expected: float | None  # in the unit of the first of ``stated``; None: they only differ
    evidence: str


@dataclass(frozen=True)
class _Span:
    value: float
    low: float
    high: float

    def over(self, other: _Span) -> _Span:
        return _Span(self.value / other.value, self.low / other.high, self.high / other.low)

    def times(self, factor: float) -> _Span:
        return _Span(self.value * factor, self.low * factor, self.high * factor)

    def less(self, other: _Span) -> _Span:
        return _Span(self.value - other.value, self.low - other.high, self.high - other.low)

    def meets(self, other: _Span) -> bool:
        slack = SLACK * max(abs(self.high), abs(other.high))
        return self.low <= other.high + slack and other.low <= self.high + slack


def contradictions(published: Sequence[Figure]) -> tuple[Contradiction, ...]:
    """All that the rules find, rule by rule."""
    return tuple(found for rule in _RULES for found in rule(published))


def _span(figure: Figure) -> _Span:
    return _Span(figure.value, figure.low, figure.high)


def _check(rule: Rule, figure: Figure, expected: _Span, how: str) -> Iterator[Contradiction]:
    """A contradiction where ``expected``, made as ``how`` says, does not meet the figure."""
    if expected.meets(_span(figure)):
        return
    value = expected.value / UNITS[figure.unit]
    evidence = f"{_name(figure)}: {figure.words} stated, {how} makes {in_words(figures(value), figure.unit)}"
    yield Contradiction(rule, figure.world_size, (figure,), value, evidence)


def _name(figure: Figure) -> str:
    words = figure.quantity.replace("_", " ").replace("speedup", "speed-up")
    if figure.of and figure.quantity != "speedup":
        words += f" of {figure.of}"
    if figure.world_size is None:
        return words
    batch = f", batch {figure.batch_size:,}" if figure.batch_size else ""
    return f"{words} on {devices_words(figure.world_size)}{batch}"


def _where(figure: Figure) -> tuple[object, ...]:
    return figure.model, figure.strategy, figure.world_size, figure.batch_size, figure.bound


def _all(published: Sequence[Figure], quantity: str) -> list[Figure]:
    return [each for each in published if each.quantity == quantity]


def _find(
    published: Sequence[Figure],
    quantity: str,
    like: Figure,
    *,
    size: int | None = None,
    of: str | None = None,
) -> Figure | None:
    """The figure of ``quantity`` in the configuration of ``like``, in its table before others.

    With ``size``: on so many devices, at the same batch per device, else at the same global batch.
    """
    wanted = like.world_size if size is None else size
    batches = [like.batch_size]
    if size is not None and like.batch_size and like.world_size:
        batches.append(like.batch_size * like.world_size // size)
    fitting = [
        each
        for each in _all(published, quantity)
        if each.world_size == wanted
        and each.model == like.model
        and each.batch_size in batches
        and each.epoch is None
        and each.bound == like.bound
        and (of is None or each.of == of)
        and (wanted == 1 or each.strategy == like.strategy)
    ]
    return min(
        fitting,
        key=lambda each: (each.table != like.table, batches.index(each.batch_size)),
        default=None,
    )


def _fact(published: Sequence[Figure], quantity: str) -> Figure | None:
    return next(iter(_all(published, quantity)), None)


def _one_value(published: Sequence[Figure]) -> Iterator[Contradiction]:
    def key(figure: Figure) -> tuple[object, ...]:
        basis = "" if figure.quantity == "speedup" else figure.of  # whatever it is the ratio of
        return figure.quantity, basis, *_where(figure)

    groups: dict[tuple[object, ...], list[Figure]] = {}
    for figure in published:
        if figure.epoch is None:
            groups.setdefault(key(figure), []).append(figure)
    for group in groups.values():
        apart = _distinct(group)
        if len(apart) > 1:
            evidence = f"{_name(apart[0])}: {' beside '.join(each.words for each in apart)}"
            yield Contradiction(Rule.ONE_VALUE, apart[0].world_size, tuple(apart), None, evidence)


def _ratios(published: Sequence[Figure]) -> Iterator[Contradiction]:
    for figure in _all(published, "speedup"):
        many = _find(published, figure.of, figure) if figure.of else None
        one = _find(published, figure.of, figure, size=1) if figure.of else None
        if one is None or many is None:
            continue
        top, bottom = (many, one) if figure.of == "throughput" else (one, many)
        how = f"{top.words} over {bottom.words}"
        yield from _check(Rule.RATIO, figure, _span(top).over(_span(bottom)), how)


def _efficiencies(published: Sequence[Figure]) -> Iterator[Contradiction]:
    for figure in {each.words: each for each in _all(published, "efficiency")}.values():
        others = _distinct(each for each in _all(published, "speedup") if _where(each) == _where(figure))
        made = {each.words: _span(each).times(1 / (figure.world_size or 1)) for each in others}
        against = {words: span for words, span in made.items() if not span.meets(_span(figure))}
        if against:
            words = ", ".join(f"{speedup} makes {span.value:.1%}" for speedup, span in against.items())
            first = next(iter(against.values())).value / UNITS[figure.unit]
            evidence = f"{_name(figure)}: {figure.words} stated, {words}"
            yield Contradiction(Rule.EFFICIENCY, figure.world_size, (figure,), first, evidence)


def _throughputs(published: Sequence[Figure]) -> Iterator[Contradiction]:
    samples = _fact(published, "samples")
    for figure in _all(published, "throughput"):
        step, epoch = _find(published, "step_time", figure), _find(published, "epoch_time", figure)
        if step is not None and figure.batch_size and figure.world_size:
            batch = figure.batch_size * figure.world_size
            made = _Span(batch, batch, batch).over(_span(step))
            how = f"a global batch of {batch:,} in {step.words}"
            yield from _check(Rule.THROUGHPUT, figure, made, how)
        if epoch is not None and samples is not None:
            made = _Span(*(samples.value,) * 3).over(_span(epoch))
            how = f"{samples.words} samples in {epoch.words}"
            yield from _check(Rule.THROUGHPUT, figure, made, how)


def _totals(published: Sequence[Figure]) -> Iterator[Contradiction]:
    count = _fact(published, "epochs")
    if count is None:
        return
    for figure in _distinct_each(_all(published, "total_time")):
        single = [
            each
            for each in _all(published, "epoch_time")
            if each.epoch is not None and _where(each) == _where(figure)
        ]
        epoch = _find(published, "epoch_time", figure)
        if len(single) == count.value:
            sums = (sum(getattr(each, end) for each in single) for end in ("value", "low", "high"))
            how = " + ".join(each.words for each in single)
            yield from _check(Rule.EPOCHS, figure, _Span(*sums), how)
        elif epoch is not None:
            how = f"{count.words} epochs of {epoch.words}"
            yield from _check(Rule.EPOCHS, figure, _span(epoch).times(count.value), how)


def _distinct(group: Iterable[Figure]) -> list[Figure]:
    """Figures of one kind that do not meet: the one stated most often first, then those apart from it."""
    stated = list(group)
    often = Counter(each.words for each in stated)
    kept: list[Figure] = []
    for figure in sorted(stated, key=lambda each: (-often[each.words], each.high - each.low)):
        if not any(_span(figure).meets(_span(other)) for other in kept):
            kept.append(figure)
    return kept


def _distinct_each(published: Sequence[Figure]) -> list[Figure]:
    """The same, configuration by configuration."""
    keys = dict.fromkeys(_where(each) for each in published)
    return [found for key in keys for found in _distinct(e for e in published if _where(e) == key)]


def _last_epochs(published: Sequence[Figure]) -> Iterator[Contradiction]:
    for figure in published:
        if figure.epoch is not None or figure.quantity not in ("accuracy", "train_accuracy"):
            continue
        same = [
            each
            for each in _all(published, figure.quantity)
            if each.epoch is not None and _where(each) == _where(figure)
        ]
        if same:
            last = max(same, key=lambda each: each.epoch or 0)
            yield from _check(Rule.LAST_EPOCH, figure, _span(last), f"epoch {last.epoch}")


def _costs(published: Sequence[Figure]) -> Iterator[Contradiction]:
    price = _fact(published, "price")
    for figure in (*_all(published, "cost"), *_all(published, "device_minutes")):
        time = _find(published, "total_time", figure)
        if time is None or figure.world_size is None:
            continue
        made, how = _span(time).times(figure.world_size), f"{figure.world_size} x {time.words}"
        if figure.quantity == "cost":
            if price is None:
                continue
            made, how = made.times(price.value), f"{how} at {price.words}"
        yield from _check(Rule.COST, figure, made, how)


def _device_times(published: Sequence[Figure]) -> Iterator[Contradiction]:
    for figure in _all(published, "device_minutes"):
        one, size = _find(published, "device_minutes", figure, size=1), figure.world_size
        if one is None or size is None or size == 1:
            continue
        for speedup in _distinct(e for e in _all(published, "speedup") if _where(e) == _where(figure)):
            made = _span(one).times(size).over(_span(speedup))
            how = f"{one.words} x {size} at {speedup.words}"
            yield from _check(Rule.DEVICE_TIME, figure, made, how)


def _phases(published: Sequence[Figure]) -> Iterator[Contradiction]:
    times = _all(published, "phase_time")
    for epoch in _all(published, "epoch_time"):
        own = [each for each in times if _where(each) == _where(epoch) and each.table == epoch.table]
        if own:
            sums = _Span(*(sum(getattr(each, end) for each in own) for end in ("value", "low", "high")))
            yield from _check(Rule.PHASES, epoch, sums, f"the sum of {len(own)} phases")
    for figure in _all(published, "phase_share"):
        time = _find(published, "phase_time", figure, of=figure.of)
        whole = _find(published, "epoch_time", figure)
        if time is not None and whole is not None:
            made = _span(time).over(_span(whole))
            yield from _check(Rule.SHARE, figure, made, f"{time.words} of {whole.words}")


def _gains(published: Sequence[Figure]) -> Iterator[Contradiction]:
    shares = _all(published, "gain_share")
    for figure in (*_all(published, "phase_speedup"), *shares):
        one, many = (
            _find(published, "phase_time", figure, size=size, of=figure.of) for size in (1, figure.world_size)
        )
        if one is None or many is None:
            continue
        how = f"{one.words} and {many.words}"
        if figure.quantity == "phase_speedup":
            yield from _check(Rule.RATIO, figure, _span(one).over(_span(many)), how)
            continue
        totals = [_find(published, "epoch_time", one), _find(published, "epoch_time", many)]
        if totals[0] is not None and totals[1] is not None:
            gain = _span(totals[0]).less(_span(totals[1]))
            how = f"({one.words} - {many.words}) of ({totals[0].words} - {totals[1].words})"
            yield from _check(Rule.GAIN, figure, _span(one).less(_span(many)).over(gain), how)
    for total in (each for each in shares if each.of == "total"):
        parts = [each for each in shares if each.of != "total" and _where(each) == _where(total)]
        sums = _Span(*(sum(getattr(each, end) for each in parts) for end in ("value", "low", "high")))
        yield from _check(Rule.GAIN, total, sums, " + ".join(each.words for each in parts))


def _amdahl(published: Sequence[Figure]) -> Iterator[Contradiction]:
    fraction = _fact(published, "parallel_fraction")
    if fraction is None:
        return
    for figure in _all(published, "amdahl_speedup"):
        made = _amdahl_span(fraction, figure.world_size or 1)
        yield from _check(Rule.AMDAHL, figure, made, f"a parallel fraction of {fraction.words}")
    for figure in _all(published, "speedup"):
        made = _amdahl_span(fraction, figure.world_size or 1)
        if figure.projected and figure.low > made.high and figure.table == fraction.table:
            how = f"at most what a parallel fraction of {fraction.words}"
            yield from _check(Rule.AMDAHL, figure, made, how)


def _amdahl_span(fraction: Figure, size: int) -> _Span:
    """Amdahl (1967), "Validity of the single processor approach", AFIPS 30."""
    ends = (1 / ((1 - p) + p / size) for p in (fraction.value, fraction.low, fraction.high))
    return _Span(*ends)


def _learning_rates(published: Sequence[Figure]) -> Iterator[Contradiction]:
    """Goyal et al. (2017), arXiv:1706.02677, section 2.1: with k times the global batch, k times the rate."""
    for figure in _all(published, "linear_learning_rate"):
        one = _find(published, "linear_learning_rate", figure, size=1)
        if one is None or figure is one or not (figure.batch_size and figure.world_size and one.batch_size):
            continue
        batches = (one.batch_size, figure.batch_size * figure.world_size)
        how = f"{one.words} at a global batch of {batches[0]:,}, now {batches[1]:,},"
        yield from _check(Rule.LINEAR, figure, _span(one).times(batches[1] / batches[0]), how)


def _savings(published: Sequence[Figure]) -> Iterator[Contradiction]:
    runs = _fact(published, "runs")
    for figure in (*_all(published, "time_saved"), *_all(published, "time_saved_in_runs")):
        one = _find(published, "total_time", figure, size=1)
        many = _find(published, "total_time", figure)
        count = 1.0 if figure.quantity == "time_saved" else runs.value if runs else None
        if one is not None and many is not None and count is not None:
            made = _span(one).less(_span(many)).times(count)
            how = f"{count:g} x ({one.words} - {many.words})"
            yield from _check(Rule.SAVINGS, figure, made, how)


_RULES: tuple[Callable[[Sequence[Figure]], Iterator[Contradiction]], ...] = (
    _one_value,
    _ratios,
    _efficiencies,
    _throughputs,
    _totals,
    _last_epochs,
    _costs,
    _device_times,
    _phases,
    _gains,
    _amdahl,
    _learning_rates,
    _savings,
)
