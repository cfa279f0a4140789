"""What each field of a study means, and what is wrong with a value: field, rule, value received."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from raybench.spec.knobs import BUCKET_RULE, Knobs
from raybench.spec.study import MOST_AS_IF, Study
from raybench.spec.sweep import ELEMENT_BYTES
from raybench.spec.user_input import did_you_mean, literal, nearest, received
from raybench.spec.workloads import OWN, WORKLOADS, kind_of

NAMED = [kind for kind in WORKLOADS if kind not in OWN]
# Types that pydantic's annotation does not tell in plain words.
_TYPES = {
    "name": "text of letters, digits, dots, dashes and underscores, 100 at most",
    "workload": f"a table with one of name ({', '.join(NAMED)}), {', '.join(OWN)}",
    **{f"workload.{key}": 'text such as "package.module:function"' for key in OWN if key != "script"},
    "message_bytes": f"a multiple of {ELEMENT_BYTES} bytes above 0",
    "world_sizes": 'whole numbers of at least 2, each once, or "all"',
    "scaling.world_sizes": 'whole numbers above 0, each once, or "all"',
    "scaling.placement": '"pack", "spread" or ranks, each once, such as [0, 1]',
    "scaling.as_if": f"at most {MOST_AS_IF} whole numbers above 0, each once, none above {2**20:,}",
    "knobs.bucket_cap_mb": BUCKET_RULE,
    "network": "text such as 8x400Gbit/s, or a table of its own",
    "training.seeds": "a number of seeds above 0, or whole numbers of at least 0, each once",
    "environment": "a table of variables, each with text or a list of texts",
    "smoke": "a table of dotted fields and values",
    "cuda": "a table of dotted fields and values",
}


@dataclass(frozen=True)
class FieldRow:
    """One field of a study, for people."""

    name: str  # dotted
    type: str  # in plain words; of a list that takes one value too, each value
    default: str | None  # as TOML; None: the field must be given, or is unset without it
    meaning: str  # with unit
    workload: str | None = None  # the workload that has the field, where only one has
    required: bool = False
    is_list: bool = False
    words: tuple[str, ...] = ()  # that it may be

    @property
    def takes(self) -> str:
        """What may be written, in plain words."""
        return f"{self.type}, or a list of these" if self.is_list else self.type


def fields(
    model: type[BaseModel] = Study, prefix: str = "", workload: str | None = None
) -> Iterator[FieldRow]:
    """Every field of a study, with those of every workload; or of another ``model``, or a part of it."""
    for name, field in model.model_fields.items():
        dotted = prefix + name
        # a table of its own, present always or only where it is written
        types_ = (field.annotation, *get_args(field.annotation))
        part = next((each for each in types_ if isinstance(each, type) and issubclass(each, BaseModel)), None)
        if dotted == "workload":
            for kind, spec in WORKLOADS.items():
                yield from fields(spec, "workload.", kind)
        elif part is not None:
            yield from fields(part, f"{dotted}.")
        else:
            yield FieldRow(
                name=dotted,
                type=_TYPES.get(dotted) or _plain(field.annotation, field.metadata),
                default=_default(field, is_knob=model is Knobs),
                meaning=field.description or "",
                workload=workload,
                required=field.is_required(),
                is_list=get_origin(field.annotation) is tuple,
                words=tuple(_words(field.annotation)),
            )


def _words(annotation: Any) -> Iterator[str]:
    """Those of all literals in it."""
    if get_origin(annotation) is Literal:
        yield from (each for each in get_args(annotation) if isinstance(each, str))
        return
    for each in get_args(annotation):
        yield from _words(each)


def _plain(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    limits = list(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        limits += [limit for each in more for limit in getattr(each, "metadata", None) or [each]]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _alternatives([literal(value) for value in arguments])
    if origin in (Union, types.UnionType):
        return _alternatives([_plain(each) for each in arguments if each is not type(None)])
    if origin is tuple:
        return _plain(arguments[0])
    if annotation is bool:
        return "true or false"
    if annotation is str:
        return "text"
    noun = "a whole number" if annotation is int else "a number"
    return f"{noun}{_bounds(limits)}"


def _bounds(limits: list[Any]) -> str:
    found = {type(each): each for each in limits}
    words = [f"above {found[Gt].gt}"] if Gt in found else []
    words += [f"of at least {found[Ge].ge}"] if Ge in found else []
    words += [f"below {found[Lt].lt}"] if Lt in found else []
    words += [f"at most {found[Le].le:,.0f}"] if Le in found else []
    return f" {' and '.join(words)}" if words else ""


def _alternatives(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _default(field: FieldInfo, is_knob: bool) -> str | None:
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    if value is None:
        return None
    return literal(value[0] if is_knob else value)


Path = tuple[str | int, ...]


def from_validation(error: ValidationError, data: Mapping[str, Any], rows: Iterable[FieldRow]) -> list[str]:
    """One line for each fault that pydantic found in ``data`` by the ``rows`` of its fields.

    A union gives an error for each member: the deepest place keeps its line, the rest is left out.
    """
    found: dict[Path, str] = {}
    workload = data.get("workload")
    kind = kind_of(workload)
    by_name = {row.name: row for row in rows if row.workload in (None, kind)}
    for each in error.errors(include_url=False):
        place, value = _place(each["loc"], data, is_absent=each["type"] == "missing")
        message = str(each["msg"]).removeprefix("Value error, ") if each["type"] == "value_error" else None
        if message or place not in found:  # of a union's members all but that read the same
            found[place] = _line(place, each["type"], message, value, by_name)
    above = {other[:depth] for other in found for depth in range(1, len(other))}
    return list(dict.fromkeys(line for place, line in found.items() if place not in above))


def _place(loc: Path, data: Mapping[str, Any], is_absent: bool) -> tuple[Path, Any]:
    """Where the fault stands in what the author wrote, and what stands there.

    Without pydantic's names for members of unions.
    """
    place: list[str | int] = []
    here: Any = data
    if loc[:1] == ("workload",) and len(loc) > 1 and loc[1] in WORKLOADS:
        loc = (loc[0], *loc[2:])
    if loc[:2] == ("scaling", "placement"):  # which the model may have wrapped in a list
        loc = loc[:2]
    for index, part in enumerate(loc):
        if isinstance(here, Mapping):
            if part not in here and not (is_absent and index == len(loc) - 1):
                continue
            place.append(part)
            here = here.get(part)
        elif isinstance(here, list | tuple) and isinstance(part, int) and part < len(here):
            place.append(part)
            here = here[part]
    return tuple(place), here


def _line(place: Path, kind: str, message: str | None, value: Any, rows: Mapping[str, FieldRow]) -> str:
    field = dotted(place)
    names = [part for part in place if isinstance(part, str)]
    if kind == "extra_forbidden":
        return _unknown(names, rows)
    if kind == "missing":
        return f"{field}: must be given"
    if not place and message:  # the study's own rules name their fields and values themselves
        return message
    if message and isinstance(value, Mapping):
        return f"{field}: {message}"
    row = rows.get(".".join(names))
    rule = message or ("at least one value" if value == [] else _rule(names, row))
    hint = did_you_mean(value, row.words, '"{}"') if row and not message else ""
    if kind == "union_tag_invalid" and isinstance(value, Mapping):
        hint = did_you_mean(value.get("name"), NAMED, '"{}"')
    return f"{field}: {rule} (received {received(value)}){hint}"


def dotted(place: Path) -> str:
    """``knobs.batch_size[1]``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _rule(names: list[str], row: FieldRow | None) -> str:
    if names[:1] == ["environment"] and len(names) > 1:
        return "text, or a list of texts"
    return row.type if row else _TYPES.get(".".join(names), "a table")


def _unknown(names: list[str], rows: Mapping[str, FieldRow]) -> str:
    prefix = "".join(f"{name}." for name in names[:-1])
    below = [name.removeprefix(prefix) for name in rows if name.startswith(prefix)]
    at_top = () if prefix else Study.model_fields  # without its kind ``workload`` has no rows
    siblings = list(dict.fromkeys([*at_top, *(name.split(".")[0] for name in below)]))
    meant = nearest(names[-1], siblings)
    in_another = (name for name in rows if name.rsplit(".", 1)[-1] == names[-1])
    suggestion = f"{prefix}{meant}" if meant else next(in_another, None)
    if suggestion:
        return f"{'.'.join(names)}: unknown field, did you mean {suggestion}?"
    return f"{'.'.join(names)}: unknown field; there are {', '.join(siblings)}"
