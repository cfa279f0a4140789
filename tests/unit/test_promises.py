"""Every promise has exactly one test, and every test that is marked so keeps a promise that is made."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.promises import PROMISES

TESTS = Path(__file__).parents[1]


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


@pytest.mark.parametrize("promise", PROMISES)
def test_it_is_shown_by_one_test(promise: str, tests_of: Counter[str]) -> None:
    assert tests_of[promise] == 1


def test_no_test_keeps_a_promise_that_nobody_made(tests_of: Counter[str]) -> None:
    assert set(tests_of) <= set(PROMISES)
