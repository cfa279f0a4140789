"""Code as text: a snippet, and calls that are broken where they are too long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LONGEST_LINE = 88
STEP = "    "


@dataclass(frozen=True)
class Snippet:
    """A piece of code."""

    title: str
    language: str  # as a fence of Markdown names it
    text: str  # without a line break at its end


def call(name: str, positional: Iterable[str], named: Mapping[str, str], depth: int = 1) -> list[str]:
    """``name(positional, named)`` on one line of ``depth``, or an argument a line where that is too long."""
    pairs = [key if key.startswith("**") else f"{key}={value}" for key, value in named.items()]
    return _enclosed(f"{name}(", [*positional, *pairs], ")", depth)


def inner_call(name: str, named: Mapping[str, str]) -> str:
    """The same as the argument of a call."""
    return "\n".join(call(name, [], named, depth=3))


def inner_mapping(pairs: Mapping[str, str]) -> str:
    """A dictionary of names as the argument of a call."""
    return "\n".join(_enclosed("{", [f'"{key}": {value}' for key, value in pairs.items()], "}", depth=5))


def inner_list(item: str) -> str:
    """A list of one as the argument of a call."""
    return "\n".join(_enclosed("[", [item], "]", depth=3))


def _enclosed(before: str, items: list[str], after: str, depth: int) -> list[str]:
    joined = f"{before}{', '.join(items)}{after}"
    if len(joined) + len(STEP) * depth <= LONGEST_LINE and "\n" not in joined:
        return [joined]
    return [before, *(f"{STEP}{line}" for each in items for line in f"{each},".split("\n")), after]


def function(head: str, words: str, body: Iterable[str]) -> list[str]:
    """A function with its docstring."""
    lines = [f'"""{words}"""', *body]
    return ["", "", f"def {head}:", *(f"{STEP}{line}" if line else "" for line in lines)]


def program(comments: Iterable[str], imports: Iterable[str], *parts: Iterable[str]) -> str:
    """Comments, imports as ``Parts`` collects them, and what follows."""
    lines = [*(f"# {line}" for line in comments), *_import_lines(imports)]
    return "\n".join([*lines, *(line for part in parts for line in part)])


def _import_lines(imports: Iterable[str]) -> list[str]:
    """Sorted: modules first, then names, those of one module on one line."""
    modules, names = list[str](), dict[str, list[str]]()
    for line in sorted(set(imports)):
        if line.startswith("import "):
            modules.append(line)
        else:
            module, _, name = line.removeprefix("from ").partition(" import ")
            names.setdefault(module, []).append(name)
    return [*modules, *(f"from {module} import {', '.join(found)}" for module, found in names.items())]
