"""User input and how it is written back: TOML of a study or a sweep, values in messages, paths."""

from __future__ import annotations

import datetime
import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raybench.errors import RequestError
from raybench.spec.base import Model

# The studies that come with raybench are of 2 kB. tomllib's time grows with the square of a dotted key.
LONGEST_TOML_BYTES = 128 * 2**10
DEEPEST = 16  # tables and lists in each other, parts of a dotted field

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


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
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # Python writes 1e-05, which is TOML too; inf and nan have the same names in both.
        return repr(value)
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


def first_fault(error: ValidationError) -> str:
    """The first fault that pydantic found: the field, the rule and the value received."""
    first = error.errors(include_url=False)[0]
    field, rule = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{field}: {rule} (received {received(first['input'])})" if field else rule


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
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char) or _control(char) for char in text) + '"'


def _control(char: str) -> str:
    number = ord(char)
    is_text = 0x20 <= number < 0x7F or 0xA0 <= number < 0xD800 or number >= 0xE000
    return char if is_text else f"\\u{number:04X}"


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of nested tables: TOML's ``a.b = 8`` and ``"a.b" = 8`` become the same."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The tables of a TOML text. ``what`` names it in faults.

    Raises:
        tomllib.TOMLDecodeError: it is none.
        RequestError: it is too deep, or has a number that Python does not read.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise _too_deep(what) from None
    except ValueError as error:  # a whole number of some thousand digits
        raise RequestError(f"{what}: {error}") from None
    _check_depth(tables, what)
    return tables


def _check_depth(value: Any, what: str, deepest: int = DEEPEST) -> None:
    if deepest < 0:
        raise _too_deep(what)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in inner:
        _check_depth(each, what, deepest - 1)


def _too_deep(what: str) -> RequestError:
    return RequestError(f"{what}: tables and lists at most {DEEPEST} deep in each other")


def home_path(path: str | os.PathLike[str], what: str) -> Path:
    """The path, ``~`` and ``~name`` expanded; a name that is no user's is refused."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise RequestError(
            f"{what}: ~ before a user that there is (received {received(str(path))})"
        ) from None


def real_path(path: Path) -> Path:
    """Where its links lead; where they lead in a circle it stays as it is, and reading it says so."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for those
