"""Text in a CSV file that a spreadsheet would take for a formula: a single quote before it keeps it text."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def guarded(text: str) -> str:
    """``text`` as a cell; numbers are left as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def unguarded(cell: str) -> str:
    """What ``guarded`` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
