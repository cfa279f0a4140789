"""The files of ``report/``: one HTML file that needs nothing else, Markdown, tables, plots, diagnosis."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.analysis.results import StudyResults, analyse
from raybench.records.record import TrialRecord
from raybench.report import formats
from raybench.report.answer import answer_of
from raybench.report.contents import DrawnPlot, ReportTables, draw_all, make_tables
from raybench.report.diagnosis import diagnosis_markdown, grouped
from raybench.report.environment import environment_lines
from raybench.report.files import remove_old_plots, write_whole
from raybench.report.method import method_words
from raybench.spec.study import Study

if TYPE_CHECKING:
    import jinja2


@dataclass(frozen=True)
class Report:
    """All that the documents of one report show, made once."""

    results: StudyResults
    plots: Sequence[DrawnPlot]
    tables: ReportTables
    environment: Mapping[str, Any]  # what environment.json holds
    directory: Path  # of the results

    def html(self) -> str:
        """``report.html``: self-contained, no script, no network."""
        return _template("template.html.j2").render(self._named())

    def markdown(self) -> str:
        """``report.md``: the same words and tables; plots by their files."""
        return _template("template.md.j2").render(self._named())

    def _named(self) -> dict[str, Any]:
        """By the names that the templates know."""
        return {
            "name": self.results.study.name,
            "answer": answer_of(self.results),
            "plots": self.plots,
            "tables": self.tables.documents,
            "findings": list(grouped(self.results.findings)),
            "environment": environment_lines(self.environment),
            "method": method_words(self.results),
            "command": f"python -m raybench.study scaling {_quoted(self.directory / 'study.toml')}",
            "again": f"python -m raybench.study report {_quoted(self.directory)}",
            "markdown": formats.to_markdown,
        }


def write_report(
    directory: Path,
    study: Study,
    records: Sequence[TrialRecord],
    environment: Mapping[str, Any],
    samples_dir: Path | None = None,
    results: StudyResults | None = None,
) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory, ``environment`` what environment.json holds. Every file is
    whole at any moment: it is written beside its place and moved there. ``results`` saves the analysis
    where the caller has it already. Raises ``OSError`` where the directory cannot be written.
    """
    results = results or analyse(study, records)
    plots, tables = draw_all(results, samples_dir), make_tables(results)
    report = Report(results, plots, tables, environment, directory)
    contents: dict[str, str | bytes] = {
        "report.html": report.html(),
        "report.md": report.markdown(),
        "diagnosis.md": diagnosis_markdown(results, tables),
        "summary.csv": formats.summary_csv(results.summaries),
        "summary.tex": formats.to_tex(tables.summary, results.study.name),
    }
    for plot in plots:
        contents[f"plots/{plot.name}.png"] = plot.png
        contents[f"plots/{plot.name}.svg"] = plot.svg
    folder = directory / "report"
    remove_old_plots(folder / "plots", {f"{plot.name}.{kind}" for plot in plots for kind in ("png", "svg")})
    return [write_whole(folder / name, content) for name, content in contents.items()]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


@cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=name.endswith("html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name)
