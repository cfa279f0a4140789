"""What disks, editors and other programs do to files of measurements: strategies of hypothesis.

For tests and benchmarks, as ``hostile`` is; these are of files that were sound.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from hypothesis import strategies as st

# Each kind of value that stands for a number somewhere, and is none, or none that was measured.
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, -0.0, 1e-320, 1e-12, 1e9, 1e300, -1e300, 2**53 + 1, 2**63, 10**30, float("nan"),
    float("inf"), -float("inf"), 0.5, True,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, "", "1", "nan", "=cmd|' /C calc'!A0", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
    "$\\frac{$", "\x1b[2J", "a\nb", "\u202e", "../../x", "x" * 3000, [], {}, [1], [[]], {"a": 1},
)  # fmt: skip
CELLS = (
    "0", "-1", "nan", "inf", "1e400", "1e-400", "1,5", "", " ", "2", "7", "1e6", "1000000", "9" * 400, "0x10",
    "١", "true", "a|b", "\t", '"', "\r", "\0", "weak", "strong", "2+2", "ddp", "'=1", "$\\frac{$", "<b>",
)  # fmt: skip


@st.composite
def lines(draw: st.DrawFn, sound: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Lines of ``trials.jsonl`` of which some are changed: a value anywhere, a key, bytes."""
    found = list(sound)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(found) - 1))
        if draw(st.integers(0, 4)):
            found[place] = _changed_value(draw, found[place])
        else:
            found[place] = _changed_bytes(draw, found[place]).replace(b"\n", b"")
    if not draw(st.integers(0, 9)):
        found.append(draw(st.sampled_from(found)))
    return tuple(found)


def _changed_value(draw: st.DrawFn, line: bytes) -> bytes:
    try:
        data = json.loads(line)
    except ValueError:
        return line
    here, steps = data, draw(st.integers(1, 8))
    while isinstance(here, dict | list) and here:
        key = draw(st.sampled_from(sorted(here))) if isinstance(here, dict) else _index(draw, here)
        steps -= 1
        if isinstance(here[key], dict | list) and here[key] and steps > 0:
            here = here[key]
            continue
        _change(draw, here, key)
        break
    return json.dumps(data).encode()


def _index(draw: st.DrawFn, values: list[Any]) -> int:
    return draw(st.integers(0, len(values) - 1))


def _change(draw: st.DrawFn, here: Any, key: Any) -> None:
    """One value is another, is gone, is there twice, or is as that of a neighbour."""
    kind = draw(st.sampled_from(("number", "number", "other", "gone", "twice", "scaled")))
    if kind == "number":
        here[key] = draw(st.sampled_from(NUMBERS))
    elif kind == "other":
        here[key] = draw(st.sampled_from(OTHERS))
    elif kind == "gone":
        del here[key]
    elif kind == "scaled" and isinstance(here[key], int | float) and not isinstance(here[key], bool):
        here[key] *= draw(st.sampled_from((-1, 0.1, 3, 1e6, 1e-9)))
    elif isinstance(here, list):
        here.insert(key, here[key])
    else:
        here[f"{key}_"] = here[key]


def _changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "cut", "double", "put", "end")))
        if kind == "flip" and changed:
            changed[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del changed[place : place + draw(st.integers(1, 40))]
        elif kind == "double":
            changed[place:place] = changed[place : place + 40]
        elif kind == "end":
            del changed[place:]
        else:
            changed[place:place] = draw(st.binary(max_size=12))
    return bytes(changed)


@st.composite
def csv_files(draw: st.DrawFn, sound: str) -> bytes:
    """A CSV file of measurements of which cells, rows, columns or bytes are changed."""
    rows = list(csv.reader(io.StringIO(sound)))
    for _ in range(draw(st.integers(0, 4))):
        row = draw(st.integers(0, len(rows) - 1))
        kind = draw(st.sampled_from(("cell", "cell", "cell", "drop", "double", "column", "short")))
        if kind == "cell" and rows[row]:
            rows[row][_index(draw, rows[row])] = draw(st.sampled_from(CELLS) | st.text(max_size=6))
        elif kind == "drop" and len(rows) > 1:
            del rows[row]
        elif kind == "double":
            rows.insert(row, list(rows[row]))
        elif kind == "column":
            name = draw(st.sampled_from(rows[0] or ["model"]))
            rows = [[*cells, name if not number else "1"] for number, cells in enumerate(rows)]
        elif kind == "short" and rows[row]:
            rows[row].pop()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    content = text.getvalue().encode(errors="replace")
    return content if draw(st.integers(0, 3)) else _changed_bytes(draw, content)
