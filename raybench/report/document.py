"""The files of ``report/``: one HTML file that needs nothing else, Markdown, tables, plots, diagnosis."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raybench.analysis.results import StudyResults
from raybench.report import formats
from raybench.report.answer import answer_of
from raybench.report.contents import draw_all, make_tables
from raybench.report.diagnosis import diagnosis_markdown, grouped
from raybench.report.environment import environment_lines
from raybench.report.files import remove_old_plots, write_whole
from raybench.report.method import method_words

if TYPE_CHECKING:
    import jinja2


def write_report(
    directory: Path,
    results: StudyResults,
    environment: Mapping[str, Any],
    samples_dir: Path | None = None,
) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory, ``environment`` what environment.json holds. Every file is
    whole at any moment: it is written beside its place and moved there. Raises ``OSError`` where the
    directory cannot be written.
    """
    plots, tables, answer = draw_all(results, samples_dir), make_tables(results), answer_of(results)
    findings = grouped(results.findings)
    named = {  # by the names that the templates know
        "answer": answer,
        "plots": plots,
        "tables": tables.documents,
        "findings": findings,
        **_how_words(directory, results, environment),
    }
    contents: dict[str, str | bytes] = {
        "report.html": _template("template.html.j2").render(named),  # self-contained: no script, no network
        "report.md": _template("template.md.j2").render(named),  # the same words and tables
        "diagnosis.md": diagnosis_markdown(results, tables, answer, findings),
        "summary.csv": formats.summary_csv(results.summaries),
        "summary.tex": formats.to_tex(tables.summary, results.study.name),
    }
    for plot in plots:
        contents[f"plots/{plot.name}.png"] = plot.png
        contents[f"plots/{plot.name}.svg"] = plot.svg
    folder = directory / "report"
    remove_old_plots(folder / "plots", {f"{plot.name}.{kind}" for plot in plots for kind in ("png", "svg")})
    return [write_whole(folder / name, content) for name, content in contents.items()]


def _how_words(directory: Path, results: StudyResults, environment: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured where and how, and the commands that do it again, as the templates name them."""
    return {
        "name": results.study.name,
        "environment": environment_lines(environment),
        "method": method_words(results),
        "command": f"python -m raybench.study scaling {_quoted(directory / 'study.toml')}",
        "again": f"python -m raybench.study report {_quoted(directory)}",
        "markdown": formats.to_markdown,
    }


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
