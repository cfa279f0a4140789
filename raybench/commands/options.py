"""Options of the command line: those that set a field of a study, and what is typed to a study's values."""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo

from raybench.errors import RequestError
from raybench.records.record import State
from raybench.records.whole_files import cannot
from raybench.spec.sweep import ELEMENT_BYTES
from raybench.spec.user_input import DEEPEST, parse_toml, received

T = TypeVar("T")

MOST_STARTS = 1000  # of each side of a comparison
COUNTS = "whole numbers above 0 with commas between them"
_DURATION = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s?)?", re.ASCII
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_FIELD = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>B|KiB|MiB|GiB|kB|MB|GB)?", re.ASCII)
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """``dotted.field=value``: the value as TOML, a bare word as text.

    Raises ``RequestError`` for what has no field, no ``=``, or begins like a TOML value but is none.
    """
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _FIELD.fullmatch(field) or field.count(".") >= DEEPEST or not value:
        raise RequestError(f"{option}: dotted.field=value, the value as in TOML (received {received(text)})")
    return field, _toml_or_word(value, f"{option} {field}")


def parse_values(text: str, option: str) -> Any:
    """What stands between commas, each as in TOML or a bare word; one alone is itself. The field checks."""
    values = tuple(_toml_or_word(part.strip(), option) for part in text.split(","))
    return values if len(values) > 1 else values[0]


def _toml_or_word(text: str, what: str) -> Any:
    try:
        tables = parse_toml(f"value = {text}", what)
    except tomllib.TOMLDecodeError:
        if text.startswith(("[", "{", '"', "'")):
            raise RequestError(f"{what}: a value as in TOML (received {received(text)})") from None
        return text
    return tables["value"] if list(tables) == ["value"] else text


def parse_list(
    text: str, convert: Callable[[str], T], option: str, rule: str, *, once: bool = True
) -> tuple[T, ...]:
    """The values between commas, each ``once``.

    ``convert`` raises ``ValueError`` where one breaks ``rule``.
    """
    values: list[T] = []
    parts = text.split(",")
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


def parse_world_sizes(text: str, option: str = "--world-sizes") -> Literal["all"] | tuple[int, ...]:
    """``1,2,4`` or ``all``."""
    if text.strip() == "all":
        return "all"
    return parse_list(text, whole_above_0, option, f'{COUNTS}, or "all"')


def parse_device_counts(text: str, option: str = "--as-if") -> tuple[int, ...]:
    """``16,64``."""
    return parse_list(text, whole_above_0, option, COUNTS)


def parse_node_counts(text: str, option: str = "--nodes") -> tuple[int, ...]:
    """``2,4,4``: several world sizes may stand on equally many."""
    return parse_list(text, whole_above_0, option, COUNTS, once=False)


def parse_bucket_sizes(text: str, option: str = "--bucket-cap-mb") -> tuple[float | str, ...]:
    """``1,25,default``, in MiB."""
    return parse_list(text, _bucket, option, 'numbers of MiB above 0, or "default"')


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

    def share(typed: str) -> float:
        number, sign, rest = typed.strip().partition("%")
        return float(number) / 100 if sign and not rest else math.nan

    return _number(text, option, share, lambda each: 0 <= each < 1, "percent of at least 0% and below 100%")


def parse_path(text: str, option: str) -> Path:
    """A path as it was typed, in UTF-8: lines that go on, and the report, have it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{option}: a path in UTF-8 (received {received(text)})") from None
    return Path(text)


def parse_whole(text: str, option: str) -> int:
    """A whole number; typer's own parser does not say what it received."""
    return _number(text, option, int, lambda each: True, "a whole number")


def parse_starts(text: str, option: str) -> int:
    """Starts of each side: with fewer than two there is no spread, so no interval."""
    rule = f"a whole number from 2 to {MOST_STARTS}"
    return _number(text, option, int, lambda each: 2 <= each <= MOST_STARTS, rule)


def parse_above_0(text: str, option: str) -> float:
    """A finite number above 0."""
    return _number(text, option, float, lambda each: 0 < each < math.inf, "a number above 0")


def _number(
    text: str, option: str, convert: Callable[[str], T], is_right: Callable[[T], bool], rule: str
) -> T:
    try:
        value = convert(text)
        if is_right(value):
            return value
    except ValueError:
        pass
    raise RequestError(f"{option}: {rule} (received {received(text)})")


def parse_new_folder(text: str, option: str) -> Path:
    """A directory that is new or empty."""
    path = parse_path(text, option)
    try:
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    except OSError as error:
        raise RequestError(f"{option}: {cannot(path, 'be read', error)}") from None
    if not is_free:
        raise RequestError(f"{option}: a new or empty directory, nothing is overwritten (received {path})")
    return path


def parse_words(text: str, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Words of a closed list, such as ``crashed,timeout`` for ``--retry``."""

    def convert(word: str) -> str:
        if word not in known:
            raise ValueError(word)
        return word

    return parse_list(text, convert, option, ", ".join(known))


def parse_sizes(text: str, option: str = "--sizes") -> tuple[int, ...]:
    """``65536,4KiB,1MiB`` in bytes; ``...`` goes on by the ratio before it, or doubles: ``1KiB,...,1MiB``."""
    sizes, goes_on = list[int](), False
    for part in (part.strip() for part in text.split(",")):
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


def _bucket(text: str) -> float | str:
    if text == "default":
        return text
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def option(name: str, metavar: str, parse: Callable[[str, str], Any], text: str) -> Any:
    """Return an option whose value is what ``parse`` makes of the typed text and the option's name."""
    return typer.Option(name, metavar=metavar, parser=lambda typed: parse(typed, name), help=text)


def argument(metavar: str, text: str) -> Any:
    """Return an argument that is a path."""
    return typer.Argument(metavar=metavar, parser=Path, help=text)


def parse_states(text: str, option: str = "--retry") -> Any:
    """The states that ``--retry`` takes."""
    return parse_words(text, ("oom", "timeout", "crashed", "invalid"), option) if text else ()


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


PricePerDevice = Annotated[
    float | None, option("--price-per-device-hour", "P", parse_above_0, "In any currency.")
]
PricePerNode = Annotated[
    float | None, option("--price-per-node-hour", "P", parse_above_0, "In addition to the devices'.")
]


@dataclass(frozen=True)
class Options:
    """Options of every command that measures; ``overrides``: values of fields of what it measures."""

    output: Annotated[
        Path | None,
        option("--output", "PATH", parse_path, "Results directory; it must be new or empty."),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on in --output, measuring nothing twice.")] = (
        False
    )
    retry: Annotated[
        tuple[State, ...],
        option("--retry", "TEXT", parse_states, "With --resume: states to try again, as crashed,timeout."),
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
        if kind is bool or get_origin(kind) is Literal:
            made = typer.Option(self.name, help=text, envvar=self.envvar)
            kind = kind if kind is bool else kind | None
        else:
            kind, made = Any, option(self.name, self.example, self.parse, text)
            made.envvar = self.envvar
        return _parameter(self.key, Annotated[kind, made], False if kind is bool else None)

    @property
    def key(self) -> str:
        """The name of its parameter."""
        return self.name.removeprefix("--").replace("-", "_")


def with_options(
    record: type, model: type[BaseModel] | None = None, *fields: FieldOption
) -> Callable[[Callable[..., Any]], Any]:
    """A command whose parameter ``options`` becomes the annotated fields of the dataclass ``record``.

    Its parameter ``fields``, where it has one, becomes these options of ``model``: it gets the values that
    were typed, by dotted field.
    """
    declared = {
        name: _parameter(name, hint, record.__dataclass_fields__[name].default)  # type: ignore[attr-defined]
        for name, hint in get_type_hints(record, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    of_model = {} if model is None else {each.field: each.parameter(model) for each in fields}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def typed(**values: Any) -> Any:
            values = {name: value for name, value in values.items() if value is not None}
            values["options"] = record(**{name: values.pop(name) for name in declared if name in values})
            if fields:
                given = {field: values.pop(each.name, None) for field, each in of_model.items()}
                flags = {field for field, each in of_model.items() if get_args(each.annotation)[0] is bool}
                values["fields"] = {
                    field: value
                    for field, value in given.items()
                    if value is not None and (value or field not in flags)
                }
            return command(**values)

        parameters = list[inspect.Parameter]()
        for own in inspect.signature(command, eval_str=True).parameters.values():
            expanded = {"options": declared, "fields": of_model}.get(own.name)
            parameters += [own] if expanded is None else expanded.values()
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
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
        if value is None:
            continue
        name = info.param_decls[0] if info.param_decls else f"--{each.name.replace('_', '-')}"
        words = tuple(
            word for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)
        )
        if info.parser is not None:
            values[each.name] = info.parser(_as_typed(value))
        elif kind is bool and not isinstance(value, bool):
            raise RequestError(f"{name}: True or False (received {received(value)})")
        elif words and value not in words:
            raise RequestError(f"{name}: {', '.join(words)} (received {received(value)})")
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
        annotation, default = Annotated[Any, info], None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _field_of(model: type[BaseModel], dotted: str) -> FieldInfo:
    table, _, rest = dotted.partition(".")
    info = model.model_fields[table]
    return _field_of(info.annotation, rest) if rest else info  # type: ignore[arg-type]
