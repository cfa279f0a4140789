"""The files of ``report/``: one HTML file that needs nothing else, Markdown, tables, plots, diagnosis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from raybench.analysis.findings.compute import OtherProcesses
from raybench.analysis.history import SHOWN
from raybench.analysis.results import StudyResults
from raybench.report import render
from raybench.report.answer import SMOKE, answer, answer_of
from raybench.report.code import use_it
from raybench.report.contents import draw_all, make_tables, with_something
from raybench.report.diagnosis import diagnosis_markdown, grouped
from raybench.report.finding_texts import evidence_among, not_examined_words
from raybench.report.method import measured_words, method_words
from raybench.report.pages import exploratory_once, make_pages, quoted, write_files
from raybench.report.sections.configurations import advice_of
from raybench.report.summary_json import summary_json
from raybench.report.table import without_constant

REPORT = "report"  # the folder of a results directory


def write_report(
    directory: Path,
    results: StudyResults,
    environment: Mapping[str, Any],
    samples_dir: Path | None = None,
    left_out: Sequence[str] = (),
    spreads: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory, ``environment`` what environment.json holds, ``left_out`` what
    was asked and not measured, in words, ``spreads`` what it has shown of them. Raises ``OSError`` where the
    directory cannot be written.
    """
    plots, tables = draw_all(results, samples_dir), make_tables(results)
    findings, said = grouped(results.findings, results.diagnosis), answer(results, left_out)
    pages = make_pages(
        directory,
        environment,
        asked_by=f"python -m raybench.study scaling {quoted(directory / 'study.toml')}",
        title=results.study.question or results.study.name,
        about=measured_words(results, environment),
        mark=SMOKE if results.study.is_smoke else "",
        box=said,
        sections=with_something(tables.sections, plots),
        plots=plots,
        # what Ray and the kernel take is part of the trust
        causes=[
            each
            for each in results.diagnosis
            if not (isinstance(each.rule, OtherProcesses) and each.rule.is_own)
        ],
        advice=partial(advice_of, verified=results.verifications),
        evidence=evidence_among(results.diagnosis),
        not_examined=not_examined_words(results.not_examined),
        trials=without_constant(tables.trials),
        method=method_words(results),
        use=use_it(results, environment),
    )
    contents: dict[str, str | bytes] = {
        **pages,
        "diagnosis.md": exploratory_once(diagnosis_markdown(results, tables, answer_of(results), findings)),
        "summary.csv": render.summary_csv(results.summaries),
        "trials.csv": render.summary_csv(results.trials),
        "summary.json": summary_json(results, said, environment),
        "summary.tex": render.to_tex(tables.summary, results.study.name),
    }
    if spreads is not None:
        contents[SHOWN] = json.dumps(spreads, indent=2) + "\n"
    return write_files(directory / REPORT, contents, plots)
