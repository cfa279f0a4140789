"""Figures that others published of a study's experiment.

``studies/published/NAME.csv`` has one row for each figure of the write-up that study NAME repeats. Columns:
``source``; ``table``, where in the write-up; ``hardware``, ``model``, ``strategy``, ``world_size``,
``batch_size`` (per device) and ``epoch``, empty where it says none; ``quantity``; ``of``, what a speed-up is
the ratio of, or a phase's name; ``unit``; ``value`` as printed, the time of day's notation in s; ``within``,
half of what the print leaves open, empty: half of the last digit; ``bound``, low or high, of a range;
``origin``, see ``Origin``; ``note``. ``studies/published/sources.csv`` has a row for each write-up;
docs/published.md says where they contradict themselves.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from raybench.spec.load import studies_folder

# measured, or the ratio of two measured figures; computed by the write-up from others, with a price or a
# number of epochs; projected or expected; chosen, so that there is nothing to measure.
Origin = Literal["measured", "computed", "projected", "chosen"]
UNITS = {  # of the file, in the units of a record
    "": 1.0,
    "x": 1.0,
    "%": 0.01,
    "s": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "h": 3600.0,
    "samples/s": 1.0,
    "GB": 1e9,
    "device-min": 60.0,
    "USD": 1.0,
    "USD/h": 1 / 3600.0,
}


@dataclass(frozen=True)
class Figure:
    """One published figure; None where the write-up does not say."""

    source: str
    table: str
    hardware: str
    model: str
    strategy: str | None
    world_size: int | None
    batch_size: int | None  # per device
    epoch: int | None
    quantity: str
    of: str
    unit: str
    printed: str
    within: float  # half of what the print leaves open, in ``unit``
    bound: str
    origin: Origin
    note: str

    @property
    def value(self) -> float:
        """In the units of a record: s, bytes, samples/s, ratios."""
        return float(self.printed) * UNITS[self.unit]

    @property
    def low(self) -> float:
        """The least that is printed so, in the unit of ``value``."""
        return (float(self.printed) - self.within) * UNITS[self.unit]

    @property
    def high(self) -> float:
        """The most that is printed so."""
        return (float(self.printed) + self.within) * UNITS[self.unit]

    @property
    def words(self) -> str:
        """The figure with its unit, as printed: 1.78x, 87.5%, 12,369 samples/s."""
        whole, point, decimals = self.printed.partition(".")
        number = f"{int(whole):,}{point}{decimals}" if whole.isdigit() else self.printed
        return in_words(number, self.unit)


def in_words(number: str, unit: str) -> str:
    """A number with its unit as people write it."""
    return f"{number}{unit}" if unit in ("x", "%", "") else f"{number} {unit}"


def published_path(study: str) -> Path | None:
    """The file of published figures of a study's experiment; None where there is none."""
    folder = studies_folder()
    path = folder / "published" / f"{study}.csv" if folder else None
    return path if path is not None and path.is_file() else None


@cache
def sources() -> dict[str, str]:
    """Every write-up by its name, as figures have it: title, author, place, date, a remark."""
    words = {}
    for row in rows_of("sources"):
        who = f"by {row['author']}" if row["author"] else "author not named"
        said = [who, row["place"] or "place not named", row["date"] or "undated", row["remark"]]
        words[row["source"]] = f'"{row["title"]}" ({", ".join(filter(None, said))})'
    return words


def load_figures(study: str) -> tuple[Figure, ...]:
    """The published figures of a study's experiment, in the file's order; empty where there are none."""
    return tuple(_figure(row) for row in rows_of(study))


def fact(figures: Sequence[Figure], quantity: str) -> float | None:
    """A figure that holds for the whole experiment, such as its number of epochs."""
    return next((each.value for each in figures if each.quantity == quantity), None)


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of ``published/NAME.csv``, none where there is no such file."""
    path = published_path(name)
    if path is None:
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _origin(word: str) -> Origin:
    return next(known for known in get_args(Origin) if known == word)


def _figure(row: dict[str, str]) -> Figure:
    return Figure(
        source=row["source"],
        table=row["table"],
        hardware=row["hardware"],
        model=row["model"],
        strategy=row["strategy"] or None,
        world_size=int(row["world_size"]) if row["world_size"] else None,
        batch_size=int(row["batch_size"]) if row["batch_size"] else None,
        epoch=int(row["epoch"]) if row["epoch"] else None,
        quantity=row["quantity"],
        of=row["of"],
        unit=row["unit"],
        printed=row["value"],
        within=float(row["within"]) if row["within"] else half_digit(row["value"]),
        bound=row["bound"],
        origin=_origin(row["origin"]),
        note=row["note"],
    )


def half_digit(printed: str) -> float:
    """Half of the last digit of a printed number: 0.005 for 1.78, 0.5 for 41."""
    mantissa, _, exponent = printed.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return 0.5 * 10.0**-decimals
