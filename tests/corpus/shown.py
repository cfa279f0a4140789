"""What a report shows, read back from its text: tables, and figures with their intervals and digits."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser

# A number, its unit, and its interval: "83,636 [64,281, 108,819]", "+79% [67, 91]", "18.2 s [11.6, 28.8]".
NUMBER = r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?<!,)"
UNITS = "x|%| points| (?:samples/s|ms|s|min|h|µs|GB/s|MiB|kJ)"
FIGURE = re.compile(
    rf"(?<![\w.,/-])(?P<value>{NUMBER})(?P<unit>(?:{UNITS})(?!\w))?"
    rf"(?: \[(?P<low>{NUMBER}), >?(?P<high>{NUMBER})\])?(?P<after> samples/s)?"
)
IN_EVERY_ROW = re.compile(r"In every row: (?P<constants>.*)\.$")
CONSTANT = re.compile(r"(?:^|; )([^=;]*?) = ")


@dataclass(frozen=True)
class Figure:
    """A number as it is shown; ``slack`` is half of its last digit."""

    value: float
    slack: float
    unit: str
    low: float | None
    high: float | None
    text: str

    def is_same(self, other: Figure) -> bool:
        """Whether both may be one number, to the digits that both show; intervals where both have one."""
        alike = self.slack == other.slack
        room = self.slack if alike else 1.001 * (self.slack + other.slack)
        pairs = [(self.value, other.value), (self.low, other.low), (self.high, other.high)]
        return all(a is None or b is None or abs(a - b) <= room for a, b in pairs)


def figures_of(text: str) -> list[Figure]:
    """Every number of ``text``, in order."""
    return [_figure(found) for found in FIGURE.finditer(text)]


def figure_of(cell: str) -> Figure | None:
    """The number with which a cell begins; None where there is none."""
    found = FIGURE.match(cell.strip())
    return _figure(found) if found else None


def exact(value: float, unit: str, low: float | None = None, high: float | None = None) -> Figure:
    """A figure that is known to all of its digits."""
    return Figure(value, abs(value) * 1e-8, unit, low, high, f"{value:.6g}{unit}")


def _figure(found: re.Match[str]) -> Figure:
    value, low, high = (found[name] for name in ("value", "low", "high"))
    unit = (found["unit"] or found["after"] or "").strip()
    ends = [None if end is None else _number(end) for end in (low, high)]
    return Figure(_number(value), _slack(value), unit, ends[0], ends[1], found[0])


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _slack(text: str) -> float:
    digits, _, exponent = text.partition("e")
    decimals = len(digits.partition(".")[2]) - int(exponent or 0)
    if abs(decimals) > 99:  # digits of an id that look like a power
        return 0.0
    return 0.5 * 10.0**-decimals


@dataclass(frozen=True)
class ShownTable:
    """A table of a document, with what its caption says to be in every row back in every row."""

    title: str
    caption: str
    rows: tuple[dict[str, str], ...]
    width: int = 0  # columns, without what the caption says

    @property
    def figures(self) -> Iterator[Figure]:
        """Every number of its cells, with the unit of its column, and of its caption."""
        for row in self.rows:
            for heading, cell in row.items():
                unit = heading if heading == "samples/s" else heading.rpartition(", ")[2]
                for each in figures_of(cell):
                    yield each if each.unit else replace(each, unit=unit)
        yield from figures_of(self.caption)


def cell_of(row: dict[str, str], heading: str) -> str | None:
    """What ``row`` has under ``heading``; of a column that the caption replaces what that says."""
    return row.get(heading, row.get(heading.partition(", ")[0]))


def markdown_tables(text: str) -> list[ShownTable]:
    """The tables of a Markdown document, each with the heading over it and the line below it."""
    lines, tables, title, place = text.splitlines(), list[ShownTable](), "", 0
    while place < len(lines):
        if lines[place].startswith("#"):
            title = lines[place].lstrip("# ")
        if re.fullmatch(r"\|(?: :?-+:? \|)+", "".join(lines[place + 1 : place + 2])):
            end = next((n for n in range(place, len(lines)) if not lines[n].startswith("|")), len(lines))
            after = next((each for each in lines[end:] if each), "")
            caption = "" if after.startswith("#") else html.unescape(after)
            heading, _, *rows = (_markdown_cells(line) for line in lines[place:end])
            tables.append(_table(title, caption, heading, rows))
            place = end
        place += 1
    return tables


def html_tables(page: str) -> list[ShownTable]:
    """The tables of a page that have a heading row, each with its caption."""
    parser = _Page()
    parser.feed(page)
    return [_table(title, caption, rows[0], rows[1:]) for title, caption, rows in parser.tables if rows]


def _table(title: str, caption: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> ShownTable:
    constants = _constants(caption)
    shown = tuple(constants | dict(zip(heading, row, strict=True)) for row in rows)
    return ShownTable(title, caption, shown, len(heading))


def _constants(caption: str) -> dict[str, str]:
    """What a caption says of every row, by column: In every row: devices = 2; role = search; n = 9."""
    found = IN_EVERY_ROW.search(caption)
    split = CONSTANT.split(found["constants"]) if found else []
    return dict(zip(split[1::2], split[2::2], strict=True))


def _markdown_cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [html.unescape(each.strip().replace("\\|", "|")) for each in cells]


class _Page(HTMLParser):
    """Collects the tables of a page; scripts and styles are no text."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[str, str, list[list[str]]]] = []
        self._title, self._text = "", ""
        self._after_table = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "table":
            self.tables.append((self._title, "", []))
        elif tag == "tr" and self.tables:
            self.tables[-1][2].append([])
        elif tag == "p" and named.get("class") == "caption":
            self._after_table = True
        if tag in ("th", "td", "h2", "h3", "summary", "p"):
            self._text = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h2", "h3", "summary"):
            self._title = self._text
        elif tag in ("th", "td"):
            self.tables[-1][2][-1].append(self._text.replace("\u00a0", " ").strip())
        elif tag == "p" and self._after_table:
            title, _, rows = self.tables[-1]
            self.tables[-1] = (title, self._text, rows)
            self._after_table = False

    def handle_data(self, data: str) -> None:
        self._text += data


def visible(page: str) -> str:
    """The text of a page without scripts, styles and drawings."""
    page = re.sub(r"<(script|style|pre)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def prose(markdown: str) -> str:
    """A Markdown document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
