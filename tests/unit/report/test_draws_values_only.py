"""``report`` draws values: it imports classes and constants from ``analysis``, and no estimator."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import raybench.report

WORDS = {  # functions that give words to a value
    "devices_words",
    "in_words",
    "knob_words",
    "model_name",
    "setting_words",
}
FURTHER = {
    "amdahl_speedup",  # the law itself: the curve between the points
    "analyse",  # all estimates at once, where write_report is not given them
    "asked_half_width",  # what a request asked
}


def imported() -> Iterator[tuple[str, str]]:
    """Where, and what is imported from ``raybench.analysis``; of a whole module its name."""
    for path in Path(raybench.report.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("raybench.analysis"):
                yield from ((path.name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module == "raybench":
                yield from ((path.name, alias.name) for alias in node.names if alias.name == "analysis")
            elif isinstance(node, ast.Import):
                yield from ((path.name, a.name) for a in node.names if a.name.startswith("raybench.analysis"))


def is_value(name: str) -> bool:
    """A class or a constant, by the way that it is written."""
    return name[0].isupper()


def test_no_estimator_is_imported() -> None:
    names = set(imported())
    assert len(names) > 50
    assert not {(path, name) for path, name in names if not is_value(name) and name not in WORDS | FURTHER}


def test_the_list_of_exceptions_is_no_longer_than_needed() -> None:
    assert {name for _, name in imported()} >= WORDS | FURTHER
