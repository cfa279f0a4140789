"""What was typed, before any model of a study looks at it: text, numbers, tables, paths.

TOML and the shell let through what no study can mean and what Python fails at later: whole numbers of
thousands of digits, tables in tables without an end, bytes that are no text.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raybench.errors import RequestError
from raybench.spec.toml import received

# The studies that come with raybench are of 2 kB. tomllib's time grows with the square of a dotted key.
LONGEST_TOML_BYTES = 128 * 2**10
MOST_BYTES = 64 * 2**10  # of all keys and values, so that the study as it is kept can be read again
LONGEST_TEXT = 4096  # characters
DEEPEST = 16  # tables and lists in each other, parts of a dotted field
MOST_VALUES = 1000  # of a list
LARGEST_WHOLE = 2**63 - 1  # TOML's own whole numbers have 64 bits
LONGEST_PATH_BYTES, LONGEST_NAME_BYTES = 4095, 255  # as Linux has them

_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")
_NO_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The tables of a TOML text. ``what`` names it in faults.

    Raises:
        tomllib.TOMLDecodeError: it is none.
        RequestError: it is too long or too deep, or has a number that Python does not read.
    """
    if len(text.encode(errors="surrogateescape")) > LONGEST_TOML_BYTES:
        raise RequestError(
            f"{what}: at most {LONGEST_TOML_BYTES:,} bytes (received {len(text):,} characters)"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise RequestError(f"{what}: tables and lists at most {DEEPEST} deep in each other") from None
    except ValueError:  # Python reads whole numbers of some thousand digits
        raise RequestError(f"{what}: whole numbers between -{LARGEST_WHOLE} and {LARGEST_WHOLE}") from None


def check_typed(value: Any, field: str = "") -> None:
    """Raise ``RequestError`` for what no study can mean, in one line with the dotted ``field``."""
    todo: list[tuple[str, int, Any]] = [(field, 0, value)]
    num_bytes = 0
    while todo:  # no recursion: what is too deep is what is looked for
        name, depth, here = todo.pop()
        if depth > DEEPEST:
            raise RequestError(f"{_cut(name)}: tables and lists at most {DEEPEST} deep in each other")
        if isinstance(here, Mapping):
            for key, inner in here.items():
                check_text(str(key), name or "a field's name")
                num_bytes += len(str(key))
                todo.append((f"{name}.{key}" if name else str(key), depth + 1, inner))
        elif isinstance(here, list | tuple):
            if len(here) > MOST_VALUES:
                raise RequestError(f"{_cut(name)}: at most {MOST_VALUES:,} values (received {len(here):,})")
            todo += [(name, depth + 1, inner) for inner in here]
        elif isinstance(here, str):
            check_text(here, _cut(name))
            num_bytes += len(here.encode())
        elif isinstance(here, int) and abs(here) > LARGEST_WHOLE:
            raise RequestError(
                f"{_cut(name)}: whole numbers between -{LARGEST_WHOLE} and {LARGEST_WHOLE} "
                f"(received {received(here)})"
            )
        num_bytes += 8
        if num_bytes > MOST_BYTES:
            raise RequestError(
                f"{_cut(field) or 'the study'}: at most {MOST_BYTES:,} bytes of names and values"
            )


def check_text(text: str, what: str) -> None:
    """Raise ``RequestError`` for text that no file and no program takes: zero bytes, half characters."""
    if found := _NO_TEXT.search(text):
        raise RequestError(f"{what}: text without {_named(found[0])} (received {received(text)})")
    if len(text) > LONGEST_TEXT:
        raise RequestError(f"{what}: at most {LONGEST_TEXT:,} characters (received {len(text):,})")


def check_arguments(arguments: Iterable[str]) -> None:
    """The same for every word of a command line; of a long one only its parser knows how long it may be."""
    for argument in arguments:
        if found := _NO_TEXT.search(argument):
            raise RequestError(
                f"the command: words without {_named(found[0])} (received {received(argument)})"
            )


def check_path(path: str | os.PathLike[str], what: str) -> Path:
    """The path, ``~`` as it was typed. Raises ``RequestError`` for one that no file can have."""
    text = os.fspath(path)
    if found := _NO_PATH.search(text):
        raise RequestError(f"{what}: a path without {_named(found[0])} (received {received(text)})")
    longest = max(len(os.fsencode(name)) for name in text.split("/"))
    if longest > LONGEST_NAME_BYTES or len(os.fsencode(text)) > LONGEST_PATH_BYTES:
        raise RequestError(
            f"{what}: a path of at most {LONGEST_PATH_BYTES:,} bytes, {LONGEST_NAME_BYTES} a name "
            f"(received {received(text)})"
        )
    return Path(text)


def home_path(path: str | os.PathLike[str], what: str) -> Path:
    """``check_path``, ``~`` and ``~name`` expanded; a name that is no user's is refused."""
    checked = check_path(path, what)
    try:
        return checked.expanduser()
    except RuntimeError:
        raise RequestError(
            f"{what}: ~ before a user that there is (received {received(str(checked))})"
        ) from None


def real_path(path: Path) -> Path:
    """Where its links lead; where they lead in a circle it stays as it is, and reading it says so."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for those


def read_at_most(path: Path, longest_bytes: int) -> bytes:
    """What a file holds. Raises ``RequestError`` where that is more, as of a device, and ``OSError``."""
    with path.open("rb") as file:
        content = file.read(longest_bytes + 1)
    if len(content) > longest_bytes:
        raise RequestError(f"{path}: at most {longest_bytes:,} bytes")
    return content


def _named(character: str) -> str:
    number = ord(character)
    if not number:
        return "the byte 0"
    return f"bytes that are no UTF-8 text (U+{number:04X})" if number >= 0xD800 else f"U+{number:04X}"


def _cut(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."
