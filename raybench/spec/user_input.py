"""User input and how it is written back: TOML of a study or a sweep, values in messages, paths."""

from __future__ import annotations

import datetime
import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raybench.spec.base import Model

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(asked: Model) -> str:
    """A study or a sweep with every default; fields that are None are left out, TOML has no word for them."""
    return render(asked.model_dump())


def render(data: Mapping[str, Any]) -> str:
    """TOML of a study's nested values: first what stands alone, then a table for each part."""
    alone = {key: value for key, value in data.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping) and value}
    parts = [assignments(alone), *(f"[{_key(name)}]\n{assignments(each)}" for name, each in tables.items())]
    return "\n".join(part for part in parts if part)


def assignments(table: Mapping[str, Any]) -> str:
    """One line for each value that is not None."""
    return "".join(f"{_key(name)} = {literal(value)}\n" for name, value in table.items() if value is not None)


def literal(value: Any) -> str:
    """One value as TOML writes it; raises ``TypeError`` for what TOML cannot say."""
    if isinstance(value, str | int):  # and true, false: as JSON but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return repr(value)  # Python writes 1e-05, which is TOML too; inf and nan have the same names in both
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"TOML has no {type(value).__name__}: {value!r}")


def received(value: Any) -> str:
    """A value as its author wrote it, cut to what fits in a message."""
    try:
        text = literal(value[:100] if isinstance(value, str) else value)
    except TypeError:
        text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The name of ``known`` that was probably meant."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1) if isinstance(name, str) else []
    return by_lower[found[0]] if found else None


def did_you_mean(name: object, known: Iterable[str], form: str = "{}") -> str:
    """The end of a message about a wrong ``name``; empty where none of ``known`` is like it."""
    meant = nearest(name, known)
    return "" if meant is None else f", did you mean {form.format(meant)}?"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else literal(name)


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of nested tables: TOML's ``a.b = 8`` and ``"a.b" = 8`` become the same."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def real_path(path: Path) -> Path:
    """Where its links lead; where they lead in a circle it stays as it is, and reading it says so."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for those


def home_path(path: str | os.PathLike[str]) -> Path:
    """The path, ``~`` and ``~name`` expanded; a name that is no user's stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for an unknown name
