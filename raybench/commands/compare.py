"""The command ``compare``: results directories side by side, and whether one has become slower.

With ``--interleave`` what it compares is measured first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raybench.commands.console import say, say_to_copy, shown_path
from raybench.commands.options import (
    argument,
    option,
    parse_new_folder,
    parse_path,
    parse_percent,
    parse_starts,
    with_options,
)
from raybench.commands.process import DONE, NOT_KNOWN, SLOWER, leave
from raybench.errors import RequestError
from raybench.spec.user_input import real_path

if TYPE_CHECKING:
    from rich.console import Console

    from raybench.analysis.comparison import FurtherSide, Side
    from raybench.analysis.stats.verdict import Verdict


@dataclass(frozen=True)
class Interleaved:
    """Options of ``compare --interleave``: what is measured in each start, and how often."""

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
    starts: Annotated[
        int | None, option("--starts", "N", parse_starts, "With --interleave: of each DIR; default 5.")
    ] = None
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


@with_options(Interleaved)
def compare(
    *,
    directories: Annotated[list[Path], argument("DIR DIR...", "Results directories; see --interleave.")],
    fail_if_slower: Annotated[
        float | None,
        option(
            "--fail-if-slower",
            "PERCENT",
            parse_percent,
            "Exit 1 where a default is slower than the first DIR's by more than this, its whole "
            "interval, and 4 where that is not known: 3%.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "DIR",
            parse_new_folder,
            "Write report.html, report.md, summary.csv, summary.tex and plots; with --interleave the "
            "results directory of each start.",
        ),
    ] = None,
    summary: Annotated[
        Path | None,
        option(
            "--summary",
            "FILE",
            parse_path,
            "Append what was found as Markdown, for a CI job: $GITHUB_STEP_SUMMARY.",
        ),
    ] = None,
    options: Interleaved,
) -> None:
    """Results side by side: hardware, interconnect, versions, workloads, days."""
    from raybench.commands.console import make_console

    console = make_console()
    if options.interleave:
        from raybench.commands.interleave import compare_interleaved

        leave(
            lambda: compare_interleaved(
                directories, options, console, fail_if_slower=fail_if_slower, output=output, summary=summary
            )
        )
    raise typer.Exit(
        compare_directories(
            directories, console, fail_if_slower=fail_if_slower, output=output, summary=summary
        )
    )


def compare_directories(
    directories: Sequence[Path],
    console: Console,
    *,
    fail_if_slower: float | None,
    output: Path | None = None,
    summary: Path | None = None,
) -> int:
    """Print the comparison; 1 where one is slower by more than the share ``fail_if_slower``, for certain.

    4 where that cannot be told, 0 where none is. ``output``: where the files of a report are written;
    ``summary``: what Markdown is appended to.

    Raises:
        RequestError: fewer than two directories, one twice, one that is none, nothing to fail by, or an
            ``output`` or ``summary`` that cannot be written.
    """
    from raybench.analysis.comparison import side_by_side
    from raybench.records.whole_files import not_written
    from raybench.report.comparison import comparison_markdown, print_comparison, write_comparison
    from raybench.report.pages import anew, quoted

    resolved = [real_path(directory) for directory in directories]
    if len(set(resolved)) < max(len(resolved), 2):
        told = ", ".join(str(directory) for directory in directories)
        raise RequestError(f"compare: two different results directories or more (received {told})")
    names = [directory.name for directory in resolved]
    unique = len(set(names)) == len(names)
    studies = side_by_side(
        [
            _side(directory, name if unique else str(directory), console)
            for directory, name in zip(directories, names, strict=True)
        ]
    )
    print_comparison(studies, console)
    if output is not None:
        words = " ".join(map(quoted, resolved))
        command = f"python -m raybench.study compare {words} --output {anew(output)}"
        try:
            files = write_comparison(output, studies, command)
        except OSError as error:
            raise RequestError(f"--output: {not_written(output, error)}") from None
        say_to_copy(console, f"Report:  {shown_path(files[0])}")
    with recorded(console) as said:
        verdicts = (
            []
            if fail_if_slower is None
            else [_told(console, studies.first, other, fail_if_slower) for other in studies.others]
        )
    if summary is not None:
        append_summary(summary, comparison_markdown(studies, said))
    return exit_code(verdicts)


@contextmanager
def recorded(console: Console) -> Iterator[list[str]]:
    """Gives the lines that are said inside, once the block has ended."""
    lines = list[str]()
    console.record = True
    yield lines
    lines += console.export_text().splitlines()
    console.record = False


def append_summary(path: Path, text: str) -> None:
    """Append to a file that may have more in it; raises ``RequestError`` where it cannot be written."""
    from raybench.records.whole_files import not_written

    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RequestError(f"--summary: {not_written(path, error)}") from None


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Of ``--fail-if-slower``: that one is slower, else that one is not known, else done."""
    from raybench.analysis.stats.verdict import Verdict

    if Verdict.WORSE in verdicts:
        return SLOWER
    return NOT_KNOWN if Verdict.UNKNOWN in verdicts else DONE


def _told(console: Console, first: Side, other: FurtherSide, limit: float) -> Verdict:
    """Whether a side is slower by more than ``limit``, said where it is not known not to be."""
    from raybench.analysis.stats.verdict import Verdict
    from raybench.report.comparison import loads_words, starts_words
    from raybench.report.format import times

    headline = other.headline
    if headline is None:
        raise RequestError(
            f"--fail-if-slower: {other.name} has measured the default of {first.name} at its largest "
            "world size too (received a directory without that trial)"
        )
    found = headline.slower_by(limit)
    figures = f"{times(headline.speed)} ({headline.label}; {starts_words(headline)})"
    starts = headline.starts_to_tell(limit)
    tell = f"{starts} starts of each would tell (measure.starts, or --interleave)" if starts else ""
    say_verdict(console, found, f"{other.name} is slower than {first.name}", limit, figures, tell)
    if found is Verdict.WORSE and headline.is_under_load:
        say(console, f"measured under load: {loads_words(headline)}; measure again without it")
    return found


def say_verdict(
    console: Console, found: Verdict, claim: str, limit: float, figures: str, tell: str = ""
) -> None:
    """That the ``claim`` of being slower by more than ``limit`` holds, or is not known; else nothing."""
    from raybench.analysis.stats.verdict import Verdict
    from raybench.report.format import share

    if found is Verdict.WORSE:
        say(console, f"{claim} by more than {share(limit)}: {figures}")
    if found is Verdict.UNKNOWN:
        more = f"; {tell}" if tell else ""
        say(console, f"whether {claim} by more than {share(limit)} is not known: {figures}{more}")


def _side(directory: Path, name: str, console: Console) -> Side:
    from raybench.analysis import analyse
    from raybench.analysis.comparison import Side
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(directory) as store:
        for warning in store.warnings:
            say(console, f"note: {warning}")
        results = analyse(store.study(), list(store.latest().values()))
        return Side(name, results, store.environment())
