"""The command ``report``, and the report at the end of every run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from raybench.commands.console import say, say_to_copy, shown_path
from raybench.commands.options import BatchMode, Quiet, Sources, choice, with_options
from raybench.commands.process import DONE, NOTHING_COMPLETED, one_blas_thread
from raybench.errors import RequestError, StoreError, system_words

if TYPE_CHECKING:
    from rich.console import Console

    from raybench.analysis.results import StudyResults
    from raybench.records.store import ResultsDirectory

Format = Literal["github-action-benchmark"]


@with_options()
def report(
    sources: Sources,
    scaling: BatchMode = None,
    quiet: Quiet = False,
    format_: Annotated[
        Format | None, choice(Format, "Print the step times as this, and write nothing.")
    ] = None,
) -> None:
    """Analysis and report again, from the results on disk, or of measurements made elsewhere."""
    one_blas_thread()
    from raybench.commands.console import make_console
    from raybench.records.store import ResultsDirectory

    directory = sources[0]
    if len(sources) > 1 or not directory.is_dir():
        if format_ is not None:
            raise RequestError(f"--format: of a results directory (received {directory})")
        if any(each.is_dir() for each in sources):
            raise RequestError(
                "report: one results directory, or files of step times; compare takes several directories "
                f"(received {' '.join(map(str, sources))})"
            )
        from raybench.commands.predict_run import report_files

        raise typer.Exit(report_files(sources, scaling, make_console(), quiet=quiet))
    if scaling is not None:
        raise RequestError(f"--scaling: of files; {directory} has its own")
    with ResultsDirectory.open_readonly(directory) as store:
        if format_ is not None:
            from raybench.report.summary_json import benchmark_json

            found = analysed(store)
            typer.echo(benchmark_json(found), nl=False)
            raise typer.Exit(DONE if found.complete else NOTHING_COMPLETED)
        code = write_and_print(store, make_console(), store.warnings, quiet=quiet)
    raise typer.Exit(code)


def write_and_print(
    store: ResultsDirectory,
    console: Console,
    notes: Sequence[str] = (),
    *,
    quiet: bool = False,
    command: str = "scaling",
    stopped: bool = False,
) -> int:
    """Analysis and report from the records on disk; 1 where no trial completed.

    ``command`` goes on where a study stopped: what has just ``stopped`` says it as its last line, and nowhere
    else.
    """
    if store.is_sweep:
        from raybench.analysis.collectives import analyse_sweep
        from raybench.commands.communication import command_of
        from raybench.report.communication import answer_of_sweep, print_sweep, write_sweep_report

        swept = analyse_sweep(store.sweep(), list(store.latest().values()))
        environment = store.environment().model_dump(mode="json")
        is_complete, words, show = bool(swept.complete), answer_of_sweep(swept), partial(print_sweep, swept)
        write = partial(write_sweep_report, store.path, swept, environment, command_of(swept.sweep))
    else:
        from raybench.report.answer import answer_of
        from raybench.report.document import write_report
        from raybench.report.terminal import print_summary

        found = analysed(store, command)
        is_complete, words = bool(found.complete), answer_of(found)
        show = partial(print_summary, found, commands=not stopped)
        write = partial(write_report, store.path, found)
    if quiet:
        say(console, words)
    else:
        show(console)
    for note in notes:
        say(console, f"note: {note}")
    try:
        files = write()
    except OSError as error:
        raise StoreError(f"{store.path}: {system_words(error)}; the records are as they were") from None
    say_to_copy(console, f"\nReport:  {shown_path(files[0])}")
    say_to_copy(console, f"Results: {shown_path(store.path)}")
    return DONE if is_complete else NOTHING_COMPLETED


def analysed(store: ResultsDirectory, command: str = "scaling") -> StudyResults:
    """All that follows from the records in ``store``; ``command`` goes on with the rest."""
    from raybench.analysis.findings.case import Around
    from raybench.analysis.resolve import resolve
    from raybench.analysis.results import found_in
    from raybench.commands.notes import left_out_words
    from raybench.plan.notes import left_out

    study, records, environment = store.study(), list(store.latest().values()), store.environment()
    base = resolve(study, records, environment)
    best = {each.trial_id for each in base.winners}  # as they were asked: of a script results have counts
    winners = [record for record in records if record.trial_id in best]
    missing = list[str]()
    with suppress(RequestError):  # what cannot be planned here, as under an older torch, can be read
        notes = left_out(study, records, len(environment.every_node), winners)
        missing += map(left_out_words, notes)
    return found_in(base, Around(environment, resume_command(store.path, command), tuple(missing)))


def resume_command(path: Path, command: str) -> str:
    """The line that goes on where a run of ``command`` stopped."""
    return f"python -m raybench.study {command} --resume --output {shlex.quote(shown_path(path))}"
