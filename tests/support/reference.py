"""docs/reference.md, made of the program.

``python -m tests.support.reference`` writes it, ``--check`` exits 1 where it differs. Meanings stand at the
thing itself: options have help texts, fields of a study descriptions. The meaning of a record's field or a
column is a comment that begins with ``#:`` directly above it. Above a tuple of columns or a closed list of
words there is a line ``#: word: meaning`` for each, continued by lines that are indented further.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

from raybench.analysis.collectives import Message
from raybench.analysis.findings.finding import FindingName
from raybench.analysis.findings.verifications import Verified
from raybench.analysis.scaling import Status
from raybench.analysis.stats.verdict import Verdict
from raybench.analysis.summary import Summary
from raybench.launch.metrics import METRICS
from raybench.records import measured_elsewhere, record, requests
from raybench.records.csv_files import epoch_rows
from raybench.records.store import write_step_times
from raybench.report.prediction import prediction_row
from raybench.spec import validation
from raybench.study import app
from tests.conftest import ROOT

REFERENCE = ROOT / "docs" / "reference.md"
HEAD = """# Reference

Every option, field, column and word. `python -m tests.support.reference` writes this page from the program,
and a test compares the two. [contract.md](contract.md) says how the parts work together.

Times are in seconds, memory in bytes, shares and efficiencies from 0 to 1, unless a name or a line says
otherwise.
"""
# Closed lists of words that stand in several places, by the heading of their table.
WORDS = {
    "State": (record, record.State),
    "Role": (requests, requests.Role),
    "Variant": (requests, requests.Variant),
}
ENUMS: dict[str, type[StrEnum]] = {
    "Status": Status,
    "Verdict": Verdict,
    "Verdict of a verification": Verified,
    "Findings": FindingName,
}

Meanings = dict[str, str]  # by name


def meanings(part: Any) -> Meanings:
    """What stands above each name in the source of a class or function, those of a class's bases included."""
    found: Meanings = {}
    for owner in reversed([each for each in getattr(part, "__mro__", [part]) if _is_ours(each)]):
        above: list[str] = []
        for line in map(str.strip, inspect.getsource(owner).splitlines()):
            if line.startswith("#:"):
                above.append(line[2:].strip())
                continue
            if above and (name := re.match(r'"?(\w+)', line)):
                found[name[1]] = " ".join(above)
            above = []
    return found


def _is_ours(part: Any) -> bool:
    return str(part.__module__).startswith("raybench")


def listed(module: ModuleType, name: str) -> Meanings:
    """What the lines above the name of a tuple or closed list say of each of its words.

    Raises ``ValueError`` where these are other words, or stand in another order.
    """
    found: Meanings = {}
    word = ""
    (above,) = re.findall(rf"((?:^#:.*\n)+){name}\b", inspect.getsource(module), re.M)
    for line in above.splitlines():
        if line.startswith("#:   "):
            found[word] += f" {line[5:]}"
        else:
            word, _, found[word] = line[3:].partition(": ")
    there = getattr(module, name)
    if tuple(found) != (get_args(there) or there):
        raise ValueError(f"{module.__name__}.{name}: described are {', '.join(found)}")
    return found


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |\n") for cells in lines)


def code(text: Any) -> str:
    return f"`{text}`"


def commands() -> dict[str, Any]:
    """Every command by its name, as click has it."""
    group: Any = typer.main.get_command(app)
    return {name: command for name, command in group.commands.items() if not command.hidden}


def options() -> Iterator[str]:
    """Every command: what is typed, what it does, its options."""
    for name, command in commands().items():
        arguments = [each.metavar for each in command.params if each.param_type_name == "argument"]
        yield f"### raybench {name}\n\n`{' '.join(['raybench', name, *arguments])}`: {command.help}\n"
        options = [each for each in command.params if each.param_type_name == "option"]
        rows = [_option(each) for each in options]
        if rows:
            yield table(("option", "value", "default", "meaning"), rows)


def _option(parameter: Any) -> tuple[str, ...]:
    value = ", ".join(map(code, (parameter.metavar or "TEXT").split("|")))
    told, default = re.subn(r".*\[default: (.*?)\]$", r"\1", parameter.help)
    text = re.sub(r"\s*\[default: .*?\]$", "", parameter.help)
    return (
        code(parameter.opts[0]),
        "" if parameter.is_flag else value,
        told if default else code(parameter.default) if parameter.default and not parameter.is_flag else "",
        text,
    )


def study_fields() -> Iterator[str]:
    """Every field of a study, by table."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for row in validation.fields():
        top = row.name.split(".")[0]
        section = f"[{top}]" if "." in row.name or top == "environment" else "Outside tables"
        section += f": {row.workload}" if row.workload else ""
        default = "required" if row.required else "unset" if row.default is None else code(row.default)
        rows.setdefault(section, []).append((code(row.name), default, row.takes, row.meaning))
    for section, each in rows.items():
        yield f"### {section}\n\n{table(('field', 'default', 'values', 'meaning'), each)}"


def columns() -> dict[str, Meanings]:
    """The columns of each file, in their order."""
    of_summary = meanings(Summary)
    return {
        "summary.csv": {
            each.name: of_summary[each.name]
            for each in fields(Summary)
            if each.name not in ("varying", "scaled")
        },
        "epochs.csv": meanings(epoch_rows),
        "communication.csv": meanings(Message.row),
        "predict --output": meanings(prediction_row),
        "samples/TRIAL_ID.parquet": meanings(write_step_times),
        "Measurements made elsewhere: needed": listed(measured_elsewhere, "REQUIRED"),
        "Measurements made elsewhere: optional": listed(measured_elsewhere, "OPTIONAL"),
    }


def parts(model: type[BaseModel], found: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """The models of which a record consists, each after the first that has it."""
    if model not in found:
        found.append(model)
        for field in model.model_fields.values():
            for each in _models(field.annotation):
                parts(each, found)
    return found


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not get_args(annotation):
        if issubclass(annotation, BaseModel) and annotation.__module__.startswith("raybench.records"):
            yield annotation
    else:
        for each in get_args(annotation):
            yield from _models(each)


def _words(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(word for each in get_args(annotation) for word in _words(each))


def record_fields() -> Iterator[str]:
    """Every part of a record: what it is, its fields, and where what they hold is described."""
    alike = {get_args(words): heading for heading, (_, words) in WORDS.items()}
    for model in parts(record.TrialRecord, []):
        rows = []
        told = meanings(model)
        for name, field in model.model_fields.items():
            words = _words(field.annotation)
            links = [each.__name__ for each in _models(field.annotation)]
            links += [alike[words]] if words in alike else []
            holds = ", ".join(f"[{each}](#{each.lower()})" for each in links) or ", ".join(map(code, words))
            rows.append((code(name), holds, told.get(name, "")))
        first = (inspect.getdoc(model) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        yield f"### {model.__name__}\n\n{first}\n"
        yield table(("field", "holds", "meaning"), rows)


def words() -> Iterator[str]:
    """The closed lists of words."""
    for heading, (module, _) in WORDS.items():
        yield _two_columns(heading, "word", listed(module, heading))
    for heading, enum in ENUMS.items():
        of_members = meanings(enum)
        yield _two_columns(heading, "word", {each.value: of_members.get(each.name, "") for each in enum})


def _two_columns(heading: str, first: str, rows: Meanings) -> str:
    return f"### {heading}\n\n" + table((first, "meaning"), ((code(name), rows[name]) for name in rows))


def reference() -> str:
    """The text of docs/reference.md."""
    gauges = ((code(each.name), ", ".join(map(code, each.tags)), each.description) for each in METRICS)
    sections = [
        HEAD,
        "## Options\n",
        *options(),
        "## Fields of a study\n",
        *study_fields(),
        "## Columns\n",
        *(_two_columns(name, "column", rows) for name, rows in columns().items()),
        "## Fields of a record\n",
        *record_fields(),
        "## Words\n",
        *words(),
        "## Gauges\n",
        table(("gauge", "labels", "meaning"), gauges),
    ]
    return "\n".join(sections)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(REFERENCE.read_text(encoding="utf-8") != reference())
    REFERENCE.write_text(reference(), encoding="utf-8")
