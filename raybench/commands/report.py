"""The command ``report``: analysis and report again, from the records on disk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raybench.commands.exit_codes import DONE, NOTHING_COMPLETED

if TYPE_CHECKING:
    from rich.console import Console

    from raybench.records.store import ResultsDirectory


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A results directory.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
) -> None:
    """Analysis and report again, from the results on disk."""
    from raybench.commands.console import make_console
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(directory) as store:
        raise typer.Exit(write_and_print(store, make_console(), store.warnings, quiet=quiet))


def write_and_print(
    store: ResultsDirectory, console: Console, notes: Sequence[str] = (), *, quiet: bool = False
) -> int:
    """Analysis and report from the records on disk; 1 where no trial completed."""
    from raybench.analysis import analyse
    from raybench.report import print_summary, write_report
    from raybench.report.answer import answer_of

    results = analyse(store.study(), list(store.latest().values()))
    if quiet:
        console.print(answer_of(results), soft_wrap=True, highlight=False, markup=False)
    else:
        print_summary(results, console)
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True, highlight=False, markup=False)
    environment = store.environment().model_dump(mode="json")
    files = write_report(store.path, results, environment, store.path / "samples")
    console.print(f"\nReport:  {shown_path(files[0])}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Results: {shown_path(store.path)}", soft_wrap=True, highlight=False, markup=False)
    return DONE if results.complete else NOTHING_COMPLETED


def resume_command(path: Path) -> str:
    """The line that goes on where this run stopped."""
    return f"python -m raybench.study scaling --resume --output {shlex.quote(shown_path(path))}"


def shown_path(path: Path) -> str:
    """A path as short as it is from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
