"""The command ``report``: analysis and report again, from the records on disk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raybench.commands.exit_codes import DONE, NOTHING_COMPLETED
from raybench.commands.options import parse_path

if TYPE_CHECKING:
    from rich.console import Console

    from raybench.records.store import ResultsDirectory


def report(
    directory: Annotated[
        Path, typer.Argument(parser=parse_path("DIR"), metavar="DIR", help="A results directory.")
    ],
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
) -> None:
    """Analysis and report again, from the results on disk."""
    from raybench.commands.console import make_console
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(directory) as store:
        raise typer.Exit(write_and_print(store, make_console(), store.warnings, quiet=quiet))


@dataclass(frozen=True)
class _Report:
    """What a report says, and how it is shown and written."""

    answer: str
    is_complete: bool  # there are numbers
    print_summary: Callable[[Console], None]
    write: Callable[[Mapping[str, Any]], list[Path]]  # of the environment; report.html first


def write_and_print(
    store: ResultsDirectory, console: Console, notes: Sequence[str] = (), *, quiet: bool = False
) -> int:
    """Analysis and report from the records on disk; 1 where no trial completed."""
    report = _of_sweep(store) if store.is_sweep else _of_study(store)
    if quiet:
        console.print(report.answer, soft_wrap=True, highlight=False, markup=False)
    else:
        report.print_summary(console)
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True, highlight=False, markup=False)
    files = report.write(store.environment().model_dump(mode="json"))
    console.print(f"\nReport:  {shown_path(files[0])}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Results: {shown_path(store.path)}", soft_wrap=True, highlight=False, markup=False)
    return DONE if report.is_complete else NOTHING_COMPLETED


def _of_study(store: ResultsDirectory) -> _Report:
    from raybench.analysis import analyse
    from raybench.report import print_summary, write_report
    from raybench.report.answer import answer_of

    results = analyse(store.study(), list(store.latest().values()))
    return _Report(
        answer_of(results),
        bool(results.complete),
        lambda console: print_summary(results, console),
        lambda environment: write_report(store.path, results, environment, store.path / "samples"),
    )


def _of_sweep(store: ResultsDirectory) -> _Report:
    from raybench.analysis.collectives.results import analyse_sweep
    from raybench.report.sweep import print_sweep, sweep_answer, write_sweep_report

    results = analyse_sweep(store.sweep(), list(store.latest().values()))
    return _Report(
        sweep_answer(results),
        bool(results.complete),
        lambda console: print_sweep(results, console),
        lambda environment: write_sweep_report(store.path, results, environment),
    )


def resume_command(path: Path, command: str) -> str:
    """The line that goes on where a run of ``command`` stopped."""
    return f"python -m raybench.study {command} --resume --output {shlex.quote(shown_path(path))}"


def shown_path(path: Path) -> str:
    """A path as short as it is from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
