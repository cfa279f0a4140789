"""The machine and the versions that a report names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raybench.machine.environment import Environment, unlike_nodes

GIBIBYTE = 2**30


def environment_lines(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Dotted names and values of what environment.json holds, without what is unknown.

    Of a cluster's nodes their names, and in what they differ; the rest is of the first one.
    """
    nodes = environment.get("nodes") or ()
    first = {name: value for name, value in environment.items() if name != "nodes"}
    lines = [
        (dotted.removesuffix("_bytes").replace("_", " "), _words(dotted, value))
        for dotted, value in _flat(first)
        if value not in (None, "", [], ())
    ]
    if nodes:
        differ = "; ".join(unlike_nodes(Environment.model_validate(environment)))
        lines.insert(0, ("the nodes differ in", differ or "nothing that changes timing"))
        lines.insert(0, ("nodes", ", ".join(node["hostname"] for node in nodes)))
    return lines


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Through tables and through lists of tables, which are numbered."""
    for name, inner in value.items():
        dotted = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{dotted}.")
        elif isinstance(inner, list | tuple) and any(isinstance(each, Mapping) for each in inner):
            for index, each in enumerate(inner):
                yield from _flat(each if isinstance(each, Mapping) else {"": each}, f"{dotted}.{index}.")
        else:
            yield dotted, inner


def _words(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int | float):
        return f"{value / GIBIBYTE:,.1f} GiB"
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
