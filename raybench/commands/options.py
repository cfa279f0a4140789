"""Options of the command line: those that set a field of a study, and what is typed to a study's values."""

from __future__ import annotations

import functools
import inspect
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raybench.errors import RequestError
from raybench.spec.knobs import MAX, Setting
from raybench.spec.sweep import ELEMENT_BYTES
from raybench.spec.toml import received
from raybench.spec.typed import DEEPEST, MOST_VALUES, check_path, parse_toml
from raybench.spec.validation import nearest

T = TypeVar("T")

_DURATION = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?", re.ASCII
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_FIELD = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>B|KiB|MiB|GiB|kB|MB|GB)?", re.ASCII)
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class FieldOption:
    """An option that sets a field of a study or sweep: its help is what the field says of itself."""

    name: str  # as typed
    field: str  # dotted
    example: str = "N"
    # of what is typed, and the option's name; none: a flag, a word of the field's list, or a whole number
    parse: Callable[[str, str], Any] | None = None
    envvar: str | None = None

    def parameter(self, model: type[BaseModel]) -> inspect.Parameter:
        """The parameter that typer reads."""
        info = _field_of(model, self.field)
        text = f"{str(info.description)[0].upper()}{str(info.description)[1:]}."
        kind: Any = info.annotation
        default: bool | None = None
        option = typer.Option(self.name, help=text, envvar=self.envvar)
        if kind is bool:
            default = False
        elif get_origin(kind) is Literal:
            kind = kind | None
        else:
            kind = Any
            parse = self.parse
            option.parser = parse_whole(self.name) if parse is None else lambda text: parse(text, self.name)
            option.metavar = self.example
        return inspect.Parameter(
            self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )

    @property
    def key(self) -> str:
        """The name of its parameter."""
        return self.name.removeprefix("--").replace("-", "_")


def with_fields(model: type[BaseModel], *options: FieldOption) -> Callable[[Callable[..., None]], Any]:
    """A command whose parameter ``fields`` becomes these options of ``model``.

    The command gets the values that were typed, by dotted field.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def typed(**values: Any) -> None:
            given = {each.field: values.pop(each.key) for each in options}
            fields = {
                name: value for name, value in given.items() if value is not None and value is not False
            }
            command(**values, fields=fields)

        parameters = list[inspect.Parameter]()
        for own in inspect.signature(command, eval_str=True).parameters.values():
            mine = [each.parameter(model) for each in options] if own.name == "fields" else [own]
            parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in mine]
        typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        typed.__annotations__ = {each.name: each.annotation for each in parameters}
        return typed

    return decorate


def _field_of(model: type[BaseModel], dotted: str) -> FieldInfo:
    table, _, rest = dotted.partition(".")
    info = model.model_fields[table]
    return _field_of(info.annotation, rest) if rest else info  # type: ignore[arg-type]


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """``dotted.field=value``: the value as TOML, a bare word as text.

    Raises ``RequestError`` for what has no field, no ``=``, or begins like a TOML value but is none.
    """
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _FIELD.fullmatch(field) or field.count(".") >= DEEPEST or not value:
        raise RequestError(f"{option}: dotted.field=value, the value as in TOML (received {received(text)})")
    try:
        tables = parse_toml(f"value = {value}", f"{option} {field}")
    except tomllib.TOMLDecodeError:
        if value[0] in "[{\"'":
            raise RequestError(f"{option} {field}: a value as in TOML (received {received(value)})") from None
        return field, value
    return field, tables["value"] if list(tables) == ["value"] else value


def parse_list(
    text: str, convert: Callable[[str], T], option: str, rule: str, *, once: bool = True
) -> tuple[T, ...]:
    """The values between commas, each ``once``.

    ``convert`` raises ``ValueError`` where one breaks ``rule``.
    """
    values: list[T] = []
    parts = text.split(",")
    if len(parts) > MOST_VALUES:
        raise RequestError(f"{option}: at most {MOST_VALUES:,} values (received {len(parts):,})")
    for part in parts:
        try:
            value = convert(part.strip())
        except ValueError:
            received_all = "" if part.strip() == text.strip() else f" in {received(text)}"
            raise RequestError(
                f"{option}: {rule} (received {received(part.strip())}{received_all})"
            ) from None
        if once and value in values:
            raise RequestError(f"{option}: each value once (received {received(part.strip())} twice)")
        values.append(value)
    return tuple(values)


def parse_batch_sizes(text: str, option: str = "--batch-sizes") -> tuple[int | str, ...]:
    """``256,4096`` or ``256,max``."""
    return parse_list(text, _batch, option, 'whole numbers above 0 with commas between them, or "max"')


def parse_world_sizes(text: str, option: str = "--world-sizes") -> Literal["all"] | tuple[int, ...]:
    """``1,2,4`` or ``all``."""
    if text.strip() == "all":
        return "all"
    return parse_list(text, whole_above_0, option, 'whole numbers above 0 with commas between them, or "all"')


def parse_node_counts(text: str, option: str = "--nodes") -> tuple[int, ...]:
    """``2,4,4``: several world sizes may stand on equally many."""
    rule = "whole numbers above 0 with commas between them"
    return parse_list(text, whole_above_0, option, rule, once=False)


def parse_bucket_sizes(text: str, option: str = "--bucket-cap-mb") -> tuple[float | str, ...]:
    """``1,25,default``, in MiB."""
    return parse_list(text, _bucket, option, 'numbers of MiB above 0, or "default"')


def parse_precisions(text: str, option: str = "--precision") -> tuple[str, ...]:
    """``fp32,bf16``."""
    known: tuple[str, ...] = get_args(Setting.model_fields["precision"].annotation)

    def convert(word: str) -> str:
        if word in known:
            return word
        meant = nearest(word, known)
        hint = f", did you mean {meant}?" if meant else ""
        raise RequestError(f"{option}: {', '.join(known)} (received {received(word)}){hint}")

    return parse_list(text, convert, option, ", ".join(known))


def parse_duration(text: str, option: str = "--time-budget") -> float:
    """``10m``, ``90s``, ``1h30m`` or ``120``, in s."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = {unit: value for unit, value in match.groupdict().items() if value} if match else {}
    seconds = sum(float(value) * _SECONDS[unit] for unit, value in parts.items())
    if not parts or not 0 < seconds < math.inf:
        raise RequestError(
            f"{option}: a time above 0 such as 90s, 10m or 1h30m, or seconds (received {received(text)})"
        )
    return seconds


def parse_percent(text: str, option: str) -> float:
    """``3%`` as a share, 0.03."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = math.nan
    if not text.strip().endswith("%") or not 0 <= share < 1:
        raise RequestError(f"{option}: percent of at least 0% and below 100% (received {received(text)})")
    return share


def parse_whole(option: str) -> Callable[[str], int]:
    """A parser that says what it received; typer's does not."""

    def parse(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise RequestError(f"{option}: a whole number (received {received(text)})") from None

    return parse


def parse_above_0(option: str) -> Callable[[str], float]:
    """A parser of a finite number above 0."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise RequestError(f"{option}: a number above 0 (received {received(text)})")
        return value

    return parse


def parse_path(option: str) -> Callable[[str], Path]:
    """A parser of paths, which refuses those that no file can have."""
    return lambda text: check_path(text, option)


def parse_words(text: str, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Words of a closed list, such as ``crashed,timeout`` for ``--retry``."""

    def convert(word: str) -> str:
        if word not in known:
            raise ValueError(word)
        return word

    return parse_list(text, convert, option, ", ".join(known))


def parse_states(text: str) -> Any:
    """The states that ``--retry`` takes."""
    return parse_words(text, ("oom", "timeout", "crashed", "invalid"), "--retry") if text else ()


def parse_sizes(text: str, option: str = "--sizes") -> tuple[int, ...]:
    """``65536,4KiB,1MiB`` in bytes; ``...`` goes on by the ratio before it, or doubles: ``1KiB,...,1MiB``."""
    sizes, goes_on = list[int](), False
    for part in (part.strip() for part in text.split(",")):
        if len(sizes) > MOST_VALUES:
            raise RequestError(f"{option}: at most {MOST_VALUES:,} values (received more)")
        if part == "..." and sizes and not goes_on:
            goes_on = True
            continue
        size = _size(part, option)
        if goes_on:
            sizes += _between(sizes, size, option)
            goes_on = False
        if size in sizes:
            raise RequestError(f"{option}: each value once (received {received(part)} twice)")
        sizes.append(size)
    if goes_on:
        raise RequestError(f"{option}: a size after the dots (received {received(text)})")
    return tuple(sizes)


def _between(sizes: list[int], last: int, option: str) -> list[int]:
    """What the dots between ``sizes`` and ``last`` stand for."""
    ratio = sizes[-1] / sizes[-2] if len(sizes) > 1 else 2.0
    if ratio < 2 or ratio != int(ratio) or last <= sizes[-1]:
        raise RequestError(
            f"{option}: dots that go on by a whole ratio from 2 on to a larger size "
            f"(received {sizes[-1]} times {ratio:g} to {last} bytes)"
        )
    filled, size = list[int](), sizes[-1] * int(ratio)
    while size < last:
        filled.append(size)
        size *= int(ratio)
    return filled


def _size(text: str, option: str) -> int:
    match = _SIZE.fullmatch(text)
    number = float(match["number"]) * _BYTES[match["unit"] or "B"] if match else math.nan
    if not (ELEMENT_BYTES <= number < math.inf and number % ELEMENT_BYTES == 0):
        raise RequestError(
            f"{option}: sizes such as 65536, 4KiB or 1MiB, each a multiple of {ELEMENT_BYTES} bytes above 0 "
            f"(received {received(text)})"
        )
    return int(number)


def whole_above_0(text: str) -> int:
    """A whole number above 0; raises ``ValueError`` for anything else."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise ValueError(text)
    return int(text)


def _batch(text: str) -> int | str:
    return MAX if text == MAX else whole_above_0(text)


def _bucket(text: str) -> float | str:
    if text == "default":
        return text
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value
