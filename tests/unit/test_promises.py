"""Every promise stands in a document and has one test; every section and command of the README has one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.support.promises import PROMISES

TESTS = ROOT / "tests"
PROMISES_NOTHING = {"Not there yet"}


def words_of(text: str) -> str:
    """Without the marks of Markdown and line ends."""
    linked = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[`*]|^ *\| *", "", linked, flags=re.MULTILINE).split())


def marked(tree: ast.AST) -> Iterator[str]:
    """The names of ``@pytest.mark.promise(name)`` on test functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
            for decorator in function.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.promise":
                    yield from (ast.literal_eval(name) for name in decorator.args)


@pytest.fixture(scope="module")
def tests_of() -> Counter[str]:
    files = TESTS.rglob("test_*.py")
    return Counter(name for file in files for name in marked(ast.parse(file.read_text())))


@pytest.fixture(scope="module")
def documents() -> str:
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return "\n".join(words_of(file.read_text()) for file in files)


@pytest.mark.parametrize("promise", PROMISES)
def test_it_is_made_and_shown_by_one_test(promise: str, documents: str, tests_of: Counter[str]) -> None:
    assert PROMISES[promise] in documents
    assert tests_of[promise] == 1


def test_no_test_keeps_a_promise_that_nobody_made(tests_of: Counter[str]) -> None:
    assert set(tests_of) <= set(PROMISES)


def test_every_section_and_every_command_of_the_readme_has_one() -> None:
    parts = re.split(r"^## ", (ROOT / "README.md").read_text(), flags=re.MULTILINE)[1:]
    sections = {part.partition("\n")[0]: part for part in parts}
    rows = [line for line in sections["Commands"].splitlines() if line.startswith("| `")]
    assert len(rows) > 5
    asked = {**sections, **{row: row for row in rows}}
    without = {
        name
        for name, text in asked.items()
        if not any(quote in words_of(text) for quote in PROMISES.values())
    }
    assert without == PROMISES_NOTHING
