"""``report`` draws values: it imports classes and constants from ``analysis``, and no estimator.

Of the values' methods it calls those that look something up or put a number in another unit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import raybench.analysis
import raybench.report

WORDS = {  # functions that give words to a value
    "combination_words",
    "devices_words",
    "knob_words",
    "label",
    "load_words",
    "in_words",
    "changes_words",
    "model_name",
    "weights_words",
}
FURTHER = {
    "amdahl_speedup",  # the law itself: the curve between the points
    "asked_half_width",  # what a request asked
    "verification_of",  # a look-up: what trying a change has shown
}

METHODS = {  # of values
    "at",  # look-ups
    "by_role",
    "comparison",
    "label",
    "line",
    "present",
    "row",
    "scaling",
    "reference",
    "excludes",  # whether a number lies outside of an interval
    "scaled",  # the same estimate in another unit
    "time_s",  # a fitted line itself: the curve between messages
}


def trees(package: ModuleType) -> Iterator[tuple[str, ast.Module]]:
    """Each module of a package: its file's name and its source."""
    assert package.__file__ is not None
    for path in Path(package.__file__).parent.rglob("*.py"):
        yield path.name, ast.parse(path.read_text())


def imported() -> Iterator[tuple[str, str]]:
    """Where, and what is imported from ``raybench.analysis``; of a whole module its name."""
    for file, tree in trees(raybench.report):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("raybench.analysis"):
                yield from ((file, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module == "raybench":
                yield from ((file, alias.name) for alias in node.names if alias.name == "analysis")
            elif isinstance(node, ast.Import):
                yield from ((file, a.name) for a in node.names if a.name.startswith("raybench.analysis"))


def methods() -> Iterator[str]:
    """What classes of ``raybench.analysis`` can be asked, but for properties."""
    for _, tree in trees(raybench.analysis):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                defined = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                yield from (each.name for each in defined if not each.decorator_list)


def called() -> Iterator[tuple[str, str]]:
    """Where, and which attribute of a value is called in ``raybench.report``."""
    for file, tree in trees(raybench.report):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield file, node.func.attr


def is_value(name: str) -> bool:
    """A class or a constant, by the way that it is written."""
    return name[0].isupper()


def test_no_estimator_is_imported() -> None:
    names = set(imported())
    assert len(names) > 50
    assert not {(path, name) for path, name in names if not is_value(name) and name not in WORDS | FURTHER}


def test_no_estimator_is_called_as_a_method() -> None:
    estimators = {*methods(), "mean", "over_seeds"} - METHODS
    assert not {(file, name) for file, name in called() if name in estimators}
