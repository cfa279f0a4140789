"""Options of the command line: those that set a field of a study, and what is typed to a study's values."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo

from raybench.errors import RequestError
from raybench.records.record import State
from raybench.spec.base import ListOrValue, PositiveFloat, PositiveInt
from raybench.spec.user_input import received

_DURATION = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?:in)?)?(?:(?P<s>\d+(?:\.\d+)?)s?)?", re.ASCII
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_POINT = re.compile(r"\.\d+|\d+\.", re.ASCII)  # of a number, where TOML has none
_PERCENT = re.compile(r"(\d*\.?\d+)\s*%", re.ASCII)
_FIELD = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>B|KiB|MiB|GiB|kB|MB|GB)?", re.ASCII)
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_assignment(text: str) -> tuple[str, Any]:
    """``dotted.field=value``: the value as TOML, a bare word as text.

    Raises ``RequestError`` for what has no field, no ``=``, or begins like a TOML value but is none.
    """
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _FIELD.fullmatch(field) or not value:
        raise RequestError(f"--set: dotted.field=value, the value as in TOML (received {received(text)})")
    return field, toml_or_word(value, f"--set {field}")


def parse_values(text: str, option: str) -> Any:
    """What stands between commas, each as in TOML or a bare word; one alone is itself. The field checks."""
    values = tuple(toml_or_word(part.strip(), option) for part in text.split(","))
    return values if len(values) > 1 else values[0]


def toml_or_word(text: str, what: str) -> Any:
    """A value as TOML has it, or a bare word as text; ``what`` names it in faults."""
    try:
        tables = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        if text.startswith(("[", "{", '"', "'")):
            raise RequestError(f"{what}: a value as in TOML (received {received(text)})") from None
        return float(text) if _POINT.fullmatch(text) else text
    return tables["value"] if list(tables) == ["value"] else text


def typed(kind: Any, rule: str) -> Callable[[str, str], Any]:
    """What reads a value of ``kind``, typed as for ``parse_values``; ``rule`` answers what is none."""
    adapter = TypeAdapter[Any](kind)

    def parse(text: str, option: str) -> Any:
        try:
            return adapter.validate_python(parse_values(text, option))
        except ValidationError:
            raise RequestError(f"{option}: {rule} (received {received(text)})") from None

    return parse


def parse_duration(text: str, option: str = "--time-budget") -> float:
    """``10m``, ``90s``, ``1h30m`` or ``120``, in s."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = match.groupdict(default="0") if match else {}
    seconds = sum(float(value) * _SECONDS[unit] for unit, value in parts.items())
    if not 0 < seconds < math.inf:
        raise RequestError(
            f"{option}: a time above 0 such as 90s, 10m or 1h30m, or seconds (received {received(text)})"
        )
    return seconds


def parse_percent(text: str, option: str) -> float:
    """``3%`` as a share, 0.03."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None or float(match[1]) >= 100:
        rule = "percent of at least 0% and below 100%"
        raise RequestError(f"{option}: {rule} (received {received(text)})")
    return float(match[1]) / 100


def path(text: str, option: str) -> Path:
    """A path as it was typed."""
    return Path(text)


def parse_new_folder(text: str, option: str) -> Path:
    """A directory that is new or empty."""
    folder = Path(text)
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free:
        raise RequestError(f"{option}: a new or empty directory, nothing is overwritten (received {folder})")
    return folder


def parse_sizes(text: str, option: str = "--sizes") -> tuple[int, ...]:
    """``65536,4KiB,1MiB`` in bytes; ``...`` goes on by the ratio before it, or doubles: ``1KiB,...,1MiB``."""
    sizes = list[int]()
    for part in re.sub(r"\s*,\s*", ",", text).split(",...,"):
        further = [_size(each.strip(), option) for each in part.split(",")]
        if sizes:
            sizes += _between(sizes, further[0], option)
        sizes += further
    return tuple(sizes)


def _between(sizes: list[int], last: int, option: str) -> list[int]:
    """What the dots between ``sizes`` and ``last`` stand for."""
    *_, before, first = sizes[0] / 2, *sizes
    ratio = int(first / before)
    if ratio < 2 or ratio * before != first or last <= first:
        raise RequestError(
            f"{option}: dots that go on by a whole ratio from 2 on to a larger size "
            f"(received {first} times {first / before:g} to {last} bytes)"
        )
    filled = [first]
    while filled[-1] * ratio < last:
        filled.append(filled[-1] * ratio)
    return filled[1:]


def _size(text: str, option: str) -> int:
    match = _SIZE.fullmatch(text)
    size = float(match["number"]) * _BYTES[match["unit"] or "B"] if match else 0.0
    if not 0 < size < math.inf or size % 1:
        rule = "sizes such as 65536, 4KiB or 1MiB, whole bytes above 0"
        raise RequestError(f"{option}: {rule} (received {received(text)})")
    return int(size)


def option(metavar: str, parse: Callable[[str, str], Any], text: str) -> Any:
    """Return an option of ``with_options``: its value is what ``parse`` makes of the typed text and its name.

    Its name is that of its parameter.
    """
    return typer.Option(metavar=metavar, parser=parse, help=text)  # type: ignore[arg-type]


def argument(metavar: str, text: str) -> Any:
    """Return an argument that is a path."""
    return typer.Argument(metavar=metavar, parser=Path, help=text)


def choice(words: Any, text: str) -> Any:
    """Return an option whose value is one of the ``words``, a ``Literal``."""
    return option("|".join(get_args(words)), typed(words, ", ".join(get_args(words))), text)


Failed = Literal["oom", "timeout", "crashed", "invalid"]
states = typed(Annotated[tuple[Failed, ...], ListOrValue], ", ".join(get_args(Failed)))
counts = typed(
    Annotated[tuple[PositiveInt, ...], ListOrValue], "whole numbers above 0 with commas between them"
)
count = typed(PositiveInt, "a whole number above 0")
amount = typed(PositiveFloat, "a number above 0")


StudyName = Annotated[
    str | None,
    typer.Argument(metavar="[STUDY]", help="A name that `list` shows, or the path of a TOML file."),
]
Sources = Annotated[
    list[Path],
    argument(
        "DIR|FILE...",
        "A results directory, a CSV file of step times, or of several runs trainer_state.json@DEVICES of a "
        "Trainer, final_summary.json@DEVICESxBATCH of TraceML.",
    ),
]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster; else RAY_ADDRESS, else local.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the answer only.")]
Mode = Literal["weak", "strong"]
BatchMode = Annotated[
    Mode | None,
    choice(Mode, "Batches are per device (weak) or global.  [default: as measured, or weak]"),
]


@dataclass(frozen=True)
class Options:
    """Options of every command that measures; ``overrides``: values of fields of what it measures."""

    output: Annotated[Path | None, option("PATH", path, "Results directory; it must be new or empty.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on in --output, measuring nothing twice.")] = (
        False
    )
    retry: Annotated[
        tuple[State, ...],
        option("TEXT", states, "With --resume: states to try again, as crashed,timeout."),
    ] = ()
    address: Address = None
    quiet: Quiet = False
    overrides: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Raise ``RequestError`` for options that do not go together."""
        if self.retry and not self.resume:
            raise RequestError(f"--retry: goes with --resume (received {','.join(self.retry)!r})")
        if self.resume and self.output is None:
            raise RequestError("--resume: needs --output DIR, the directory to go on in")


@dataclass(frozen=True)
class FieldOption:
    """An option that sets a field of a study or sweep: its help is what the field says of itself."""

    name: str  # as typed
    field: str  # dotted
    example: str = "N"
    parse: Callable[[str, str], Any] = parse_values  # of what is typed, and the option's name
    envvar: str | None = None

    def parameter(self, model: type[BaseModel]) -> inspect.Parameter:
        """The parameter that typer reads."""
        info = _field_of(model, self.field)
        text = f"{str(info.description)[0].upper()}{str(info.description)[1:]}."
        kind: Any = info.annotation
        if kind is bool:
            kind, made = bool | None, typer.Option(self.name, help=text)
        else:
            example = "|".join(get_args(kind)) if get_origin(kind) is Literal else self.example
            kind, made = Any, option(example, self.parse, text)
            made.envvar = self.envvar
        return _parameter(self.key, Annotated[kind, made], None)

    @property
    def key(self) -> str:
        """The name of its parameter."""
        return self.name.removeprefix("--").replace("-", "_")


def with_options(
    record: type | None = None, model: type[BaseModel] | None = None, *fields: FieldOption
) -> Callable[[Callable[..., Any]], Any]:
    """A command whose parameter ``options`` becomes the annotated fields of the dataclass ``record``.

    So do the ``fields`` of ``model``: those that were typed are its ``overrides``.
    """
    hints = {} if record is None else get_type_hints(record, include_extras=True)
    declared = {
        name: _parameter(name, hint, record.__dataclass_fields__[name].default)  # type: ignore[union-attr]
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }
    of_model = {} if model is None else {each.key: each.parameter(model) for each in fields}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def typed(**values: Any) -> Any:
            values = {name: value for name, value in values.items() if value is not None}
            made = {name: values.pop(name) for name in declared if name in values}
            if fields:
                typed_fields = [each for each in fields if each.key in values]
                made["overrides"] = tuple((each.field, values.pop(each.key)) for each in typed_fields)
            return command(**values) if record is None else command(options=record(**made), **values)

        own = inspect.signature(command, eval_str=True).parameters.values()
        further = (
            _parameter(each.name, each.annotation, each.default) if get_origin(each.annotation) else each
            for each in own
            if each.name != "options"
        )
        parameters = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in (*declared.values(), *of_model.values(), *further)
        ]
        typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        typed.__annotations__ = {each.name: each.annotation for each in parameters}
        return typed

    return decorate


def from_python(options: Iterable[inspect.Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options as the command line would have them: ``[1, 2]`` is what ``1,2`` is when typed.

    One rule for both: a value becomes the text that one would type, and is read and refused like that.
    Options that are unset in ``given`` and have an environment variable take its value.
    """
    values = dict[str, Any]()
    for each in options:
        kind, info = get_args(each.annotation)
        value = given.get(each.name)
        if value is None and info.envvar:
            value = os.environ.get(info.envvar)
        if to_list := getattr(value, "tolist", None):
            value = to_list()  # of NumPy, pandas or torch
        elif isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            value = list(value)  # a tuple, a range
        if value is None or value == []:
            continue
        name = info.param_decls[0] if info.param_decls else f"--{each.name.replace('_', '-')}"
        if info.parser is not None:
            values[each.name] = info.parser(_as_typed(value))
        elif bool in (kind, *get_args(kind)) and not isinstance(value, bool):
            raise RequestError(f"{name}: True or False (received {received(value)})")
        else:
            values[each.name] = value
    return values


def _as_typed(value: Any) -> str:
    return ",".join(map(_as_typed, value)) if isinstance(value, list | tuple) else str(value)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter as typer reads it: one with a parser takes what that returns, and None is its default."""
    (info,) = annotation.__metadata__
    if isinstance(info, ArgumentInfo) and info.parser is not None:
        default = inspect.Parameter.empty
    elif info.parser is not None:
        read, bound, typed_as = info.parser, copy.copy(info), f"--{name.rstrip('_').replace('_', '-')}"
        bound.param_decls, bound.parser = (typed_as,), lambda text: read(text, typed_as)
        annotation, default = Annotated[Any, bound], None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _field_of(model: type[BaseModel], dotted: str) -> FieldInfo:
    table, _, rest = dotted.partition(".")
    info = model.model_fields[table]
    return _field_of(info.annotation, rest) if rest else info  # type: ignore[arg-type]
