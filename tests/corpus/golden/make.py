"""Make the golden values again, or show how raybench's differ from them.

    python -m tests.corpus.golden.make --check [NAME ...]       differences, exit code 1 where there are any
    python -m tests.corpus.golden.make [NAME ...]               write expected/NAME.json again
    python -m tests.corpus.golden.make --measure [NAME ...]     measure the planted studies again as well

The values are made again only where a figure is meant to change: the difference belongs in the commit.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.corpus.golden.values import Sections, values_of
from tests.corpus.make import STUDIES, unpack

HERE = Path(__file__).parent
RELATIVE, ABSOLUTE = 1e-7, 1e-12  # what rounding may do, on any processor, to a fit that stops by a tolerance
TABLES = ("summary.csv", "communication.csv", "predict", "costs")  # every row has the same columns
COLUMNS = "columns"  # the key of their names


def names() -> list[str]:
    """Every recorded results directory, those of the corpus first."""
    return [*STUDIES, *sorted(each.parent.name for each in HERE.glob("*/trials.jsonl.gz"))]


def found(name: str) -> Sections:
    """What raybench finds now in the directory ``name``."""
    with tempfile.TemporaryDirectory() as folder:
        place = name if name in STUDIES else f"{HERE.name}/{name}"
        return values_of(unpack(place, Path(folder) / name))


def expected(name: str) -> Sections:
    """What it found when the values were made."""
    stored = json.loads(_file(name).read_text())
    return {
        section: {
            key: {name: value for name, value in zip(columns, row, strict=True) if value is not None}
            if columns
            else row
            for key, row in rows.items()
        }
        for section, rows in stored.items()
        for columns in [rows.pop(COLUMNS, None)]
    }


def differences(name: str) -> list[str]:
    """Where the two differ: directory, section, row, column, expected, got."""
    return list(compared(name, expected(name), found(name)))


def compared(place: str, one: Any, other: Any) -> Iterator[str]:
    """A line for each value of ``one``, as expected, that ``other`` has not."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                got = "missing" if key not in other else f"new: {_short(other[key])}"
                yield f"{place} / {key}: {got}" + (f", expected {_short(one[key])}" if key in one else "")
            else:
                yield from compared(f"{place} / {key}", one[key], other[key])
    elif not _same(one, other):
        yield f"{place}: expected {_short(one)}, got {_short(other)}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (one, other))
    if numbers and not any(math.isnan(each) for each in (one, other)):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return repr(one) == repr(other)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else f"{text[:97]}..."


def _file(name: str) -> Path:
    return HERE / "expected" / f"{name}.json"


def _write(name: str) -> None:
    """A row a line, so that a difference is one in git too; tables without the names in every row."""
    sections = []
    for section, rows in found(name).items():
        lines: dict[str, Any] = dict(rows)
        if section in TABLES:
            columns = list(dict.fromkeys(column for row in rows.values() for column in row))
            cells = {key: [row.get(column) for column in columns] for key, row in rows.items()}
            lines = {COLUMNS: columns} | cells
        text = ",\n".join(f"  {_json(key)}: {_json(line)}" for key, line in lines.items())
        sections.append(f"{_json(section)}: {{\n{text}\n}}")
    _file(name).write_text("{\n" + ",\n".join(sections) + "\n}\n")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def main() -> int:
    """Write or check the values of the directories that the command line names, of all by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help="directories; all by default")
    parser.add_argument("--check", action="store_true", help="print differences, write nothing")
    parser.add_argument("--measure", action="store_true", help="measure the planted studies again")
    asked = parser.parse_args()
    if asked.measure:
        from tests.corpus.golden.planted import PLANTED

        for name in asked.names or PLANTED:
            PLANTED[name](HERE / name)
    lines = 0
    for name in asked.names or names():
        if not asked.check:
            _write(name)
            continue
        for line in differences(name):
            print(line)
            lines += 1
    return int(lines > 0)


if __name__ == "__main__":
    sys.exit(main())
