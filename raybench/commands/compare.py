"""The command ``compare``: results directories side by side, and whether one has become slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raybench.commands.console import say, say_to_copy, shown_path
from raybench.commands.options import argument, option, parse_new_folder, parse_percent
from raybench.commands.process import DONE, NOT_KNOWN, SLOWER
from raybench.errors import RequestError
from raybench.spec.user_input import real_path

if TYPE_CHECKING:
    from rich.console import Console

    from raybench.analysis.comparison import FurtherSide, Side
    from raybench.analysis.stats.verdict import Verdict


def compare(
    directories: Annotated[list[Path], argument("DIR DIR...", "Results directories.")],
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
            "Write report.html, report.md, summary.csv, summary.tex and plots.",
        ),
    ] = None,
) -> None:
    """Results side by side: hardware, interconnect, versions, workloads, days."""
    from raybench.commands.console import make_console

    raise typer.Exit(
        compare_directories(directories, make_console(), fail_if_slower=fail_if_slower, output=output)
    )


def compare_directories(
    directories: Sequence[Path],
    console: Console,
    *,
    fail_if_slower: float | None,
    output: Path | None = None,
) -> int:
    """Print the comparison; 1 where one is slower by more than the share ``fail_if_slower``, for certain.

    4 where that cannot be told, 0 where none is. ``output``: where the files of a report are written.

    Raises:
        RequestError: fewer than two directories, one twice, one that is none, nothing to fail by, or an
            ``output`` that cannot be written.
    """
    from raybench.analysis.comparison import side_by_side
    from raybench.analysis.stats.verdict import Verdict
    from raybench.records.whole_files import not_written
    from raybench.report.comparison import print_comparison, write_comparison
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
    if fail_if_slower is None:
        return DONE
    verdicts = [_told(console, studies.first, other, fail_if_slower) for other in studies.others]
    if Verdict.WORSE in verdicts:
        return SLOWER
    return NOT_KNOWN if Verdict.UNKNOWN in verdicts else DONE


def _told(console: Console, first: Side, other: FurtherSide, limit: float) -> Verdict:
    """Whether a side is slower by more than ``limit``, said where it is not known not to be."""
    from raybench.analysis.stats.verdict import Verdict
    from raybench.report.comparison import loads_words, starts_words
    from raybench.report.format import share, times

    headline = other.headline
    if headline is None:
        raise RequestError(
            f"--fail-if-slower: {other.name} has measured the default of {first.name} at its largest "
            "world size too (received a directory without that trial)"
        )
    found = headline.slower_by(limit)
    figures = f"{times(headline.speed)} ({headline.label}; {starts_words(headline)})"
    if found is Verdict.WORSE:
        say(console, f"{other.name} is slower than {first.name} by more than {share(limit)}: {figures}")
        if headline.is_under_load:
            say(console, f"measured under load: {loads_words(headline)}; measure again without it")
    if found is Verdict.UNKNOWN:
        starts = headline.starts_to_tell(limit)
        tell = f"; {starts} starts of each would tell (measure.starts, or --interleave)" if starts else ""
        say(
            console,
            f"whether {other.name} is slower than {first.name} by more than {share(limit)} is not known: "
            f"{figures}{tell}",
        )
    return found


def _side(directory: Path, name: str, console: Console) -> Side:
    from raybench.analysis import analyse
    from raybench.analysis.comparison import Side
    from raybench.records.store import ResultsDirectory

    with ResultsDirectory.open_readonly(directory) as store:
        for warning in store.warnings:
            say(console, f"note: {warning}")
        results = analyse(store.study(), list(store.latest().values()))
        return Side(name, results, store.environment())
