"""What a study says, and what it may say: TOML with all defaults, and each field's meaning."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raybench.spec.knobs import Knobs
from raybench.spec.study import Study
from raybench.spec.toml import literal, render
from raybench.spec.workloads import WORKLOADS

# Types that pydantic's annotation does not tell in plain words.
_WORDS = {
    "name": "text of letters, digits, dots, dashes and underscores, 100 at most",
    "workload.factory": 'text such as "package.module:function"',
    "scaling.world_sizes": 'whole numbers above 0, each once, or "all"',
    "scaling.placement": '"pack", "spread" or ranks, each once, such as [0, 1]',
    "knobs.batch_size": 'a whole number above 0, or "max"',
    "knobs.bucket_cap_mb": 'a number of MiB above 0, or "default"',
    "training.seeds": "a number of seeds above 0, or whole numbers of at least 0, each once",
    "environment": "a table of variables, each with text or a list of texts",
    "smoke": "a table of dotted fields and values",
    "cuda": "a table of dotted fields and values",
}


@dataclass(frozen=True)
class FieldRow:
    """One field of a study, for people."""

    name: str  # dotted
    type: str  # in plain words
    default: str | None  # as TOML; None: the field must be given, or is unset without it
    meaning: str  # with unit
    workload: str | None = None  # the workload that has the field, where only one has
    required: bool = False


def show(study: Study) -> str:
    """TOML of ``study`` with every default; what is unset stands there as a comment with its meaning."""
    data = study.model_dump()
    meanings = {row.name: row.meaning for row in fields() if row.workload in (None, _kind(study))}
    meanings |= {
        name: field.description or "" for name, field in Study.model_fields.items() if table_of(field)
    }
    unset = {name for name in meanings if _at(data, name) is None}
    parts = []
    for part in render(data).split("\n\n"):
        table = part[1 : part.index("]")] + "." if part.startswith("[") else ""
        lines = [
            f"# {name.removeprefix(table)} is unset: {meanings[name]}"
            for name in sorted(unset)
            if name.startswith(table) and "." not in name.removeprefix(table)
        ]
        parts.append("\n".join([part.rstrip("\n"), *lines]))
    return "\n\n".join(parts) + "\n"


def fields() -> list[FieldRow]:
    """Every field of a study, in the order of ``show``, with those of every workload."""
    return list(_rows(Study, ""))


def _rows(model: type[BaseModel], prefix: str, workload: str | None = None) -> Iterator[FieldRow]:
    for name, field in model.model_fields.items():
        dotted = prefix + name
        part = table_of(field)
        if dotted == "workload":
            for kind, spec in WORKLOADS.items():
                yield from _rows(spec, "workload.", kind)
        elif part is not None:
            yield from _rows(part, f"{dotted}.")
        else:
            yield FieldRow(
                name=dotted,
                type=plain_type(dotted, field) + (", or a list of these" if _takes_list(field) else ""),
                default=_default(field, is_knob=model is Knobs),
                meaning=field.description or "",
                workload=workload,
                required=field.is_required(),
            )


def table_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a table of its own, present always or only where it is written."""
    for each in (field.annotation, *get_args(field.annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def plain_type(dotted: str, field: FieldInfo) -> str:
    """What values the field takes, in plain words; of a list that takes one value too, each value."""
    return _WORDS.get(dotted) or _plain(field.annotation, field.metadata)


def _takes_list(field: FieldInfo) -> bool:
    annotation = field.annotation
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_origin(annotation) is tuple


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
    above = next((limit.gt for limit in limits if isinstance(limit, Gt)), None)
    least = next((limit.ge for limit in limits if isinstance(limit, Ge)), None)
    below = next((limit.lt for limit in limits if isinstance(limit, Lt)), None)
    most = next((limit.le for limit in limits if isinstance(limit, Le)), None)
    if most is not None:
        return (
            f" from {least} to {most:,.0f}"
            if least is not None
            else f" above {above} and at most {most:,.0f}"
        )
    if below is not None:
        return (
            f" above {above} and below {below}"
            if above is not None
            else f" of at least {least} and below {below}"
        )
    if above is not None:
        return f" above {above}"
    return f" of at least {least}" if least is not None else ""


def _alternatives(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _default(field: FieldInfo, is_knob: bool) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if value is None:
        return None
    return literal(value[0] if is_knob else value)


def _kind(study: Study) -> str | None:
    return next((kind for kind, spec in WORKLOADS.items() if isinstance(study.workload, spec)), None)


def _at(data: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data
