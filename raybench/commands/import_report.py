"""``report FILE.csv``: the report of measurements made elsewhere."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from raybench.analysis.cost import works
from raybench.analysis.prices import Prices
from raybench.analysis.simulate.outlook import Outlook, doublings, forecast, outlook, shapes_of
from raybench.analysis.simulate.sources import groups_of_table
from raybench.analysis.simulate.steps import MeasuredGroup, ScalingMode
from raybench.commands.console import say, say_to_copy
from raybench.commands.exit_codes import DONE
from raybench.commands.paths import shown_path
from raybench.errors import RequestError
from raybench.records.measured_csv import read_measured_csv
from raybench.records.whole_files import not_written
from raybench.report.imported import imported_answer, print_imported, write_imported_report


def report_file(
    file: Path, output: Path | None, scaling: ScalingMode | None, console: Console, *, quiet: bool
) -> int:
    """Print what the file says and write its report to ``output``; the exit code.

    Raises:
        RequestError: the file cannot be read, or ``output`` holds something or cannot be written.
    """
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RequestError(f"--output: a new or empty directory, nothing is overwritten (received {output})")
    models = [_outlook(group) for group in groups_of_table(read_measured_csv(file), scaling)]
    if quiet:
        say(console, imported_answer(models))
    else:
        print_imported(models, console)
    for note in dict.fromkeys(note for model in models for note in model.forecast.group.notes):
        say(console, f"note: {note}")
    if output is None:
        told = "nothing was written: --output DIR writes report.html, report.md, summary.csv and plots"
        say(console, f"note: {told}")
        return DONE
    try:
        files = write_imported_report(output, file, models)
    except OSError as error:
        raise RequestError(f"--output: {not_written(output, error)}") from None
    say_to_copy(console, f"\nReport:  {shown_path(files[0])}")
    return DONE


def _outlook(group: MeasuredGroup) -> Outlook:
    """The next doublings, on nodes as full as the fullest that was measured."""
    found = forecast(group, shapes_of(doublings(group), group.devices_per_node))
    return outlook(found, works(), Prices())
