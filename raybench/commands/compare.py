"""The command ``compare``: results directories side by side, and whether one has become slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raybench.analysis import analyse
from raybench.analysis.comparison import Side, side_by_side
from raybench.errors import RequestError
from raybench.records.store import ResultsDirectory
from raybench.report.comparison import print_comparison
from raybench.report.wording import times

if TYPE_CHECKING:
    from rich.console import Console

DONE, SLOWER = 0, 1


def compare(directories: Sequence[Path], console: Console, *, fail_if_slower: bool = False) -> int:
    """Print the comparison; 1 where ``fail_if_slower`` and one is.

    Raises:
        RequestError: fewer than two directories, one twice, one that is none, or nothing to fail by.
    """
    resolved = [directory.resolve() for directory in directories]
    if len(set(resolved)) < max(len(resolved), 2):
        told = ", ".join(str(directory) for directory in directories)
        raise RequestError(f"compare: two different results directories or more (received {told})")
    names = [directory.name for directory in resolved]
    unique = len(set(names)) == len(names)
    studies = side_by_side(
        [
            _side(directory, name if unique else str(directory))
            for directory, name in zip(directories, names, strict=True)
        ]
    )
    print_comparison(studies, console)
    if not fail_if_slower:
        return DONE
    code, first = DONE, studies.first
    for other in studies.others:
        headline = other.headline
        if headline is None:
            raise RequestError(
                f"--fail-if-slower: {other.name} has measured the default of {first.name} at its largest "
                "world size too (received a directory without that trial)"
            )
        if headline.is_slower:
            code = SLOWER
            words = f"{other.name} is slower than {first.name}: {times(headline.speed)} ({headline.label})"
            console.print(words, soft_wrap=True, highlight=False, markup=False)
    return code


def _side(directory: Path, name: str) -> Side:
    with ResultsDirectory.open_readonly(directory) as store:
        results = analyse(store.study(), list(store.latest().values()))
        return Side(name, results, store.environment())
