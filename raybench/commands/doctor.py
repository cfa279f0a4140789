"""The commands that only look: ``doctor`` at machines, ``list`` and ``show`` at studies."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from raybench.commands.console import make_console, say
from raybench.commands.options import StudyName, choice, with_options
from raybench.spec.load import find_study, load_study, question, studies
from raybench.spec.plural import plural
from raybench.spec.user_input import to_toml

if TYPE_CHECKING:
    from raybench.machine.checks import Check, Status

_COLORS: dict[Status, str] = {"ok": "green", "warning": "yellow", "missing": "red"}


def doctor(
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster: every node is examined.")] = None,
) -> None:
    """What there is, what is missing, and the command that mends it: here, or on every node of a cluster."""
    address = address or os.environ.get("RAY_ADDRESS")  # as a study would
    if address:
        from raybench.launch.cluster import Cluster
        from raybench.launch.cluster_checks import examine_cluster

        with closing(Cluster(address=address)) as cluster:
            found = examine_cluster(cluster)
    else:
        from raybench.machine.checks import examine

        found = examine()
    render(found, make_console())
    raise typer.Exit(int(any(check.status == "missing" for check in found)))


def render(found: list[Check], console: Console) -> None:
    """Print the checks, what is missing with the command that mends it, and the sum in the last line."""
    width = max((len(check.name) for check in found), default=0)
    indent = " " * (len("warning") + width + 4)
    for check in found:
        status = f"{check.status:<7}", _COLORS[check.status]
        line = Text.assemble(status, (f"  {check.name:<{width}}  ", "bold"))
        line.append(f"\n{indent}".join(textwrap.wrap(check.found, max(20, console.width - len(indent)))))
        if check.mend and check.status != "ok":
            # Never wrapped: a command is there to be copied.
            line.append(f"\n{indent}-> ").append(check.mend, style="cyan")
        console.print(line, soft_wrap=True, highlight=False)
    counts = Counter(check.status for check in found)
    warnings = plural(counts["warning"], "warning")
    console.print(f"{counts['ok']} ok, {warnings}, {counts['missing']} missing", highlight=False)


def list_() -> None:
    """The studies that come with raybench."""
    names = studies()
    width = max(map(len, names), default=0)
    for name, path in names.items():
        say(make_console(), f"{name:{width}}  {question(path)}")


Kind = Literal["cpu", "cuda"]


@with_options()
def show(
    study: StudyName = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="With the study's own small sizes.")] = False,
    device: Annotated[Kind, choice(Kind, "As it would be on this device.  [default: cpu]")] = "cpu",
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
