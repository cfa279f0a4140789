"""Numbers, intervals, times and sizes as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from raybench.analysis.stats.statistics import Estimate
from raybench.spec.plural import plural

UNITS = (  # how many seconds each has, and from how many on it is used; what is less is rounding
    ("h", 3600.0, 7200.0), ("min", 60.0, 120.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("µs", 1e-6, 1e-9)
)  # fmt: skip
GIGA, LEAST_GIGA = 1e9, 0.1
MOST_DECIMALS = 5
SMALL = 0.25  # half an interval, relative: one that is wider is not symmetric
MOST_TIMES = 100  # the value: an interval that ends further away says so, and no number


def figures(value: float) -> str:
    """A value with three significant figures or more: 0.0123, 1.66, 45.1, 5,120."""
    if value == 0 or not abs(value) < float("inf"):
        return f"{value:g}"
    size = abs(value)
    if size >= 99.95:  # as it is rounded
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def times(estimate: Estimate) -> str:
    """A speed-up: "1.66x [1.64, 1.69]"; without its interval where there is none, as in all of these."""
    digits = _factor_digits(estimate)
    return with_ends(estimate, factor(estimate), lambda end: f"{end:.{digits}f}")


def with_ends(estimate: Estimate, value: str, text: Callable[[float], str]) -> str:
    """A value, and the ends of its interval in brackets where there is one."""
    if not _has_interval(estimate):
        return value
    high, beyond = _upper_end(estimate)
    return f"{value} [{text(estimate.low)}, {beyond}{text(high)}]"


def _has_interval(estimate: Estimate) -> bool:
    """Not of fewer than three seeds, and where nobody said how sure a value is."""
    return estimate.low < estimate.high


def _upper_end(estimate: Estimate) -> tuple[float, str]:
    """The interval's upper end, and ">" where it is further: a few very noisy rounds allow 10^5 times.

    Of what is never below 0; a difference may be any number of times a value near 0.
    """
    furthest = MOST_TIMES * estimate.value
    return (furthest, ">") if estimate.low > 0 and furthest < estimate.high else (estimate.high, "")


def relative_words(estimate: Estimate) -> str:
    """Half of the interval as a share of the value: "±3%"."""
    relative = estimate.relative_half_width
    return f"±>{MOST_TIMES:.0%}" if relative > MOST_TIMES else f"±{relative:.0%}"


def plus_minus(estimate: Estimate, suffix: str = "") -> str:
    """A value with half of its interval where that is small: "61.3 µs ±1%"; else with both ends."""
    if estimate.relative_half_width > SMALL:
        return interval(estimate, suffix)
    return f"{figures(estimate.value)}{suffix} {relative_words(estimate)}"


def factor(estimate: Estimate) -> str:
    """A speed-up where its interval stands beside it, as that of the efficiency: "1.66x"."""
    return f"{estimate.value:.{_factor_digits(estimate)}f}x"


def _factor_digits(estimate: Estimate) -> int:
    return 2 if estimate.value < 10 else 1


def interval(estimate: Estimate, suffix: str = "") -> str:
    """A value with its interval, all with the digits that the interval's width leaves meaningful."""
    if not _has_interval(estimate):
        return f"{figures(estimate.value)}{suffix}"
    end, beyond = _upper_end(estimate)
    value, low, high = aligned(estimate.value, estimate.low, end)
    return f"{value}{suffix} [{low}, {beyond}{high}]"


def milliseconds(estimate: Estimate) -> str:
    """A time in s as ms, with its interval: "12.3 [12.1, 12.6]"."""
    return interval(estimate.scaled(1e3))


def plain_lasting(estimate: Estimate, words: Callable[[Estimate, str], str] = interval) -> str:
    """A time in s in the unit that suits it, with its interval if any: "2.21 h [1.94, 2.51]"."""
    unit, unit_s = time_unit(estimate.value)
    return words(estimate.scaled(1 / unit_s), f" {unit}")


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which a time is said, and how many seconds it has."""
    size = abs(seconds)
    return next(((name, unit_s) for name, unit_s, least_s in UNITS if size >= least_s), ("s", 1.0))


def gigabytes_per_s(estimate: Estimate) -> str:
    """A bandwidth in bytes/s as GB/s (10^9 bytes/s, as nccl-tests has them), with its interval."""
    return interval(estimate.scaled(1 / GIGA))


def rate_words(*rates: float, unit: str = "B") -> str:
    """A bandwidth in bytes/s, or from one to another: "48 MB/s", "5.97 to 18 GB/s"."""
    name, size = ("G", GIGA) if max(rates) >= LEAST_GIGA * GIGA else ("M", 1e6)
    return f"{range_words(rates, lambda rate: figures(rate / size))} {name}{unit}/s"


def bit_rate_words(*bytes_per_s: float) -> str:
    """The same in bits: "144 Gbit/s"."""
    return rate_words(*(8 * each for each in bytes_per_s), unit="bit")


def size_words(size_bytes: int) -> str:
    """The size of a message: 256 MiB, 1.5 KiB, 1,020 B."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit and size_bytes * 8 % unit == 0:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes:,} B"


def aligned(value: float, low: float, high: float) -> tuple[str, str, str]:
    """The three numbers with one number of decimals: three figures of the largest."""
    size = max(abs(value), abs(high), abs(low))
    decimals = min(max(2 - math.floor(math.log10(size)), 0), MOST_DECIMALS) if 0 < size < math.inf else 0
    texts = [f"{each:,.{decimals}f}" for each in (value, low, high)]
    plain = ["0" if float(text.replace(",", "")) == 0 else text for text in texts]
    return plain[0], plain[1], plain[2]


def percent(estimate: Estimate, sign: bool = False) -> str:
    """A relative value in percent with its interval: "+14% [11, 17]"."""
    plus = "+" if sign else ""
    is_whole = 100 * estimate.half_width >= 0.5 if _has_interval(estimate) else abs(estimate.value) >= 0.1
    digits = 0 if is_whole else 1
    value = _no_negative_zero(f"{100 * estimate.value:{plus}.{digits}f}")

    def text(end: float) -> str:
        return _no_negative_zero(f"{100 * end:.{digits}f}")

    return with_ends(estimate, f"{value}%", text)


def plain_share(value: float) -> str:
    """A relative value in percent: "37.2%"; what rounds to nothing has no sign."""
    return f"{_no_negative_zero(f'{100 * value:.1f}')}%"


def share(value: float) -> str:
    """A relative value that was asked for, in percent: "3%", "2.5%"."""
    return f"{100 * value:g}%"


def run_words(epochs: float) -> str:
    """How long a run is that is paid for: "3 epochs"; of 0, which is not known, "a million samples"."""
    return f"{epochs:g} epoch{'' if epochs == 1 else 's'}" if epochs else "a million samples"


def number_words(numbers: Sequence[int], unit: str) -> str:
    """How many there are of each: "5 to 12 rounds", "1 round" where all have as many."""
    few, many = min(numbers, default=0), max(numbers, default=0)
    return plural(many, unit) if few == many else f"{few:,} to {many:,} {unit}s"


def range_words(values: Sequence[float], words: Callable[[float], str] = "{:,}".format) -> str:
    """The smallest and the largest value, or one where both are shown alike: "2 to 5"; empty without one."""
    ends = (min(values), max(values)) if values else ()
    return " to ".join(dict.fromkeys(map(words, ends)))


def _no_negative_zero(text: str) -> str:
    return text.replace("-", "+" if text.startswith("+") else "") if float(text) == 0 else text


def sentence(words: str) -> str:
    """The words with a capital first, where a sentence begins with them; bf16 and static_graph stay."""
    first = words.split(maxsplit=1)[0] if words else ""
    is_value = any(each.isdigit() or each in "_=" for each in first)
    return words if is_value else f"{words[:1].upper()}{words[1:]}"


def duration_words(seconds: float) -> str:
    """A time with its unit: 450 µs, 12.3 ms, 1.25 s."""
    unit, unit_s = time_unit(seconds)
    return f"{figures(seconds / unit_s)} {unit}"


def clock(seconds: float) -> str:
    """A span of time as a person says it: 40 s, 3 min, 2 h 5 min."""
    return exact_clock(seconds if seconds < 100 else 60 * round(seconds / 60))


def exact_clock(seconds: float) -> str:
    """A span of time to the second: 40 s, 2 min 50 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60) if minutes >= 100 else (0, minutes)
    parts = ((hours, "h"), (minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)
