"""The size of the house: code lines and modules by folder. The numbers may only fall."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

from tests.conftest import ROOT

# Code lines (no blanks, comments, docstrings) and modules, at most. Lower a number when the code got smaller.
AT_MOST: dict[str, tuple[int, int]] = {
    ".": (234, 4),
    "analysis": (6070, 48),
    "commands": (2335, 18),
    "driver": (718, 7),
    "launch": (1600, 15),
    "machine": (862, 7),
    "plan": (1050, 10),
    "records": (1269, 10),
    "report": (3569, 24),
    "spec": (1422, 12),
    "worker": (5073, 38),
    "workloads": (1785, 20),
}
ALONE = 12  # modules below 120 lines with one importer
ROOM = 0.02  # a limit that is further above the code than this is lowered
DOCUMENTS_KB = {"README.md": 14, "CONTRIBUTING.md": 10, "CHANGELOG.md": 12}


def code_lines(text: str) -> int:
    """Lines of code in a module's text."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_text and isinstance(first.value.value, str):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in docstrings
        for number, line in enumerate(text.splitlines(), 1)
    )


def imported(text: str) -> set[str]:
    """Full names of what a module imports, and of what it imports from it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def modules() -> dict[Path, str]:
    """Every module's text, by its path in the package."""
    package = ROOT / "raybench"
    return {path.relative_to(package): path.read_text() for path in sorted(package.rglob("*.py"))}


def test_the_code_does_not_grow() -> None:
    lines, number = Counter[str](), Counter[str]()
    for path, text in modules().items():
        folder = path.parts[0] if len(path.parts) > 1 else "."
        lines[folder] += code_lines(text)
        number[folder] += 1
    found = {folder: (lines[folder], number[folder]) for folder in sorted(lines)}
    assert found.keys() == AT_MOST.keys(), found
    above = {
        each: found[each]
        for each in found
        if any(a > b for a, b in zip(found[each], AT_MOST[each], strict=True))
    }
    assert not above, f"larger than {AT_MOST}: {above}"
    loose = {each: found[each] for each in found if AT_MOST[each][0] > found[each][0] * (1 + ROOM) + 10}
    assert not loose, f"these limits can be lowered: {loose}"


def test_a_small_module_has_several_importers() -> None:
    texts = modules()
    names = {
        ".".join(("raybench", *path.with_suffix("").parts)): path
        for path in texts
        if path.name != "__init__.py"
    }
    importers = defaultdict[str, set[Path]](set)
    for path, text in texts.items():
        for name in imported(text) & names.keys():
            if names[name] != path:
                importers[name].add(path)
    alone = [
        name for name, path in names.items() if len(importers[name]) == 1 and texts[path].count("\n") < 120
    ]
    assert len(alone) <= ALONE, alone


def test_documents_for_contributors_stay_short() -> None:
    sizes = {name: (ROOT / name).stat().st_size / 1000 for name in DOCUMENTS_KB}
    assert all(sizes[name] <= DOCUMENTS_KB[name] for name in sizes), sizes
