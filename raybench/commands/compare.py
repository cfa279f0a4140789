"""The command ``compare`` as it is typed: what is compared, and with ``--interleave`` measured first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from raybench.commands.options import (
    argument,
    option,
    parse_new_folder,
    parse_percent,
    path,
    typed,
    with_options,
)
from raybench.commands.process import leave
from raybench.errors import RequestError

MOST_STARTS = 1000  # of each side
starts = typed(
    Annotated[int, Field(ge=2, le=MOST_STARTS, strict=True)],  # with fewer there is no spread, so no interval
    f"a whole number from 2 to {MOST_STARTS}",
)


@dataclass(frozen=True)
class CompareOptions:
    """Options of ``compare``; those that say how to measure go with ``interleave``."""

    directories: Annotated[list[Path], argument("DIR DIR...", "Results directories; see --interleave.")]
    fail_if_slower: Annotated[
        float | None,
        option(
            "PERCENT",
            parse_percent,
            "Exit 1 where a default is slower than the first DIR's by more than this, its whole "
            "interval, and 4 where that is not known: 3%.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        option(
            "DIR",
            parse_new_folder,
            "Write report.html, report.md, summary.csv, summary.tex and plots; with --interleave the "
            "results directory of each start.",
        ),
    ] = None
    summary: Annotated[
        Path | None,
        option("FILE", path, "Append what was found as Markdown, for a CI job: $GITHUB_STEP_SUMMARY."),
    ] = None
    interleave: Annotated[
        bool,
        typer.Option(
            "--interleave",
            help="Measure: both DIRs are checkouts of code, or Python environments, started in turn, "
            "as in: compare --interleave ../main . --fail-if-slower 3%",
        ),
    ] = False
    study: Annotated[
        str | None,
        typer.Option(metavar="STUDY", help="With --interleave: whose default, at its largest world size."),
    ] = None
    starts: Annotated[int | None, option("N", starts, "With --interleave: of each DIR; default 5.")] = None
    smoke: Annotated[
        bool, typer.Option("--smoke", help="With --interleave: the study's own small sizes.")
    ] = False
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="With --interleave: dotted, of the study, as in TOML."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raise ``RequestError`` for options that say how to measure where nothing is measured."""
        given = {"--study": self.study, "--starts": self.starts, "--smoke": self.smoke, "--set": self.set_}
        without = [name for name, value in given.items() if value]
        if without and not self.interleave:
            raise RequestError(f"{without[0]}: goes with --interleave, which measures (received without it)")


@with_options(CompareOptions)
def compare(*, options: CompareOptions) -> None:
    """Results side by side: hardware, interconnect, versions, workloads, days."""
    from raybench.commands.compare_run import compare_directories, compare_interleaved
    from raybench.commands.console import make_console

    run = compare_interleaved if options.interleave else compare_directories
    leave(lambda: run(options, make_console()))
