"""The commands ``list`` and ``show``: the studies that come with raybench, and what a study says."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Annotated, Literal

import typer

from raybench.commands.options import StudyName
from raybench.spec.load import find_study, load_study, question, studies
from raybench.spec.user_input import to_toml


def list_() -> None:
    """The studies that come with raybench."""
    names = studies()
    width = max(map(len, names), default=0)
    for name, path in names.items():
        line = f"{name:{width}}  {question(path)}"
        if sys.stdout.isatty():  # piped a study is a line
            columns, indent = shutil.get_terminal_size().columns, " " * (width + 2)
            line = textwrap.fill(line, max(columns, 2 * len(indent)), subsequent_indent=indent)
        typer.echo(line)


def show(
    study: StudyName = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="With the study's own small sizes.")] = False,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="As it would be on this device.")] = "cpu",
    fields: Annotated[bool, typer.Option("--fields", help="Every field, its meaning and unit.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="The JSON schema of summary.json.")] = False,
) -> None:
    """A study with all its defaults, every field that a study may have, or the schema of summary.json."""
    if schema:
        from raybench.report.summary_json import summary_schema

        typer.echo(summary_schema(), nl=False)
        return
    if fields:
        from raybench.spec.validation import fields as every_field

        for row in every_field():
            default = "" if row.default is None else f" [{row.default}]"
            typer.echo(f"{row.name}: {row.takes}{default}\n    {row.meaning}")
        return
    typer.echo(to_toml(load_study(find_study(study), device=device, smoke=smoke)), nl=False)
