"""The files of ``report/``: one HTML file that needs nothing else, Markdown, tables, plots, diagnosis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from raybench.analysis.findings.finding import FindingName, Reason, Severity
from raybench.analysis.history import SHOWN, machine_of, shown
from raybench.analysis.labels import devices_of
from raybench.analysis.objectives import price_of
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.what_if import study_what_if
from raybench.records.csv_files import rows_csv
from raybench.report import render
from raybench.report.answer import Clause, answer, answer_of
from raybench.report.code import use_it
from raybench.report.finding_texts import cost, evidence, not_examined_words
from raybench.report.method import measured_words, method_words
from raybench.report.pages import Level, Section, make_fragment, make_pages, quoted, template, write_files
from raybench.report.plot import drawn
from raybench.report.prediction import draw_required, more_rows, more_table, required_table
from raybench.report.sections.cost import cost_table
from raybench.report.sections.published import published_table
from raybench.report.sections.scaling import draw_scaling, overheads_table, plotted_settings, scaling_table
from raybench.report.sections.settings import (
    advice_of,
    buckets_table,
    buckets_words,
    largest_table,
    settings_table,
    verification_table,
)
from raybench.report.sections.training import draw_training, epochs_table, training_table
from raybench.report.sections.trials import every_trial_table, failures_table
from raybench.report.sections.waterfall import draw_waterfall, phases_table, waterfall_table
from raybench.report.summary_json import summary_json
from raybench.report.table import without_constant

NO_CAUSES = "No cause is large and certain enough to act on."
REPORT = "report"  # the folder of a results directory


def write_report(directory: Path, results: StudyResults) -> list[Path]:
    """Write all files of ``directory/report`` and return their paths, ``report.html`` first.

    ``directory`` is the results directory. Raises ``OSError`` where it cannot be written.
    """
    around, device = results.around, results.study.resources.device
    sections, said = make_sections(results), answer(results, around.left_out)
    predicted = more_rows(results.outlook, results.more_devices, results.run, price_of(results.study))
    pages = make_pages(
        directory,
        around.described,
        asked_by=f"python -m raybench.study scaling {quoted(directory / 'study.toml')}",
        sections=sections,
        trials=without_constant(every_trial_table(results)),
        method=method_words(results),
        use=use_it(results),
        **_first_screen(results, said),
    )
    contents: dict[str, str | bytes] = {
        **pages,
        "diagnosis.md": diagnosis_markdown(results),
        "summary.csv": rows_csv(each.row() for each in results.summaries),
        "trials.csv": rows_csv(each.row() for each in results.trials),
        **({"predictions.csv": rows_csv(predicted)} if predicted else {}),
        "summary.json": summary_json(results, said, around.described),
        "summary.tex": render.to_tex(sections["scaling"].tables[0], results.study.name),
    }
    if around.environment is not None and device != "auto":
        spreads = shown(results, machine_of(around.environment, device))
        contents[SHOWN] = json.dumps(spreads, indent=2) + "\n"
    return write_files(directory / REPORT, contents)


def first_screen(results: StudyResults) -> str:
    """Answer, first table and plots, and causes, as HTML for a page of others."""
    said = answer(results, results.around.left_out)
    return make_fragment(make_sections(results), **_first_screen(results, said))


def _first_screen(results: StudyResults, said: Sequence[Clause]) -> dict[str, Any]:
    """What stands there, by the templates' names, but for tables and plots."""
    return {
        "title": results.study.question or results.study.name,
        "about": measured_words(results),
        "box": said,
        **_causes(results),
        "no_causes": NO_CAUSES if results.waterfall else "",
        "not_examined": not_examined_words(results.not_examined),
    }


def _causes(results: StudyResults) -> dict[str, Any]:
    """The findings that one can act on, what explains the most time first, and the words of each.

    A little load is Ray's own, which nobody can stop; one that may be all of contention is said with that.
    """
    is_said = any(each.reason is Reason.OTHERS for each in results.diagnosis)
    causes = [
        each
        for each in results.diagnosis
        if each.name != FindingName.OTHER_PROCESSES or not (is_said or each.severity is Severity.NOTE)
    ]
    return {
        "causes": causes,
        "cost": cost,
        "advice": partial(advice_of, verified=results.verifications),
        "evidence": evidence,
    }


def diagnosis_markdown(results: StudyResults) -> str:
    """``diagnosis.md``: what to do first, what was verified, what failed."""
    headline = results.headline
    tables = (verification_table(results), failures_table(results))
    return template("diagnosis.md.j2").render(
        name=results.study.name,
        answer=answer_of(results),
        headline=f"{results.headline_label} on {devices_of(headline.config)}" if headline else "",
        tables=[without_constant(table) for table in tables if table.rows],
        **_causes(results),
    )


def make_sections(results: StudyResults) -> dict[str, Section]:
    """Every table and plot of the study by their sections' anchors, in the order in which they are read."""
    settings, more, chosen = plotted_settings(results), results.more_devices, study_what_if(results)
    later: Level = "folded" if results.complete else "first"
    return {
        "scaling": Section(
            "Scaling",
            drawn("scaling", "Scaling", draw_scaling(settings))
            + drawn("waterfall", "Where the time goes", draw_waterfall(settings)),
            (scaling_table(results),),
            level="first",
        ),
        "predictions": Section(
            "More devices",
            drawn("required", "What the network must bring", draw_required(more)),
            (
                more_table(more, results.run, price_of(results.study)),
                required_table(more),
            ),
        ),
        "cost": Section("What it costs", tables=(cost_table(results),)),
        "training": Section(
            "Training",
            drawn("training", "Training", draw_training(results)),
            (training_table({"": results}),),
        ),
        "epochs": Section("Epochs", tables=(epochs_table(results),), level="folded"),
        "failures": Section("What failed", tables=(failures_table(results),), level=later),
        "parts": Section(
            "The parts of a step",
            tables=(waterfall_table(results), overheads_table(results), phases_table(results)),
            level="folded",
        ),
        "settings": Section(
            "What the settings change",
            tables=(settings_table(results), verification_table(results), largest_table(results)),
            level="folded",
        ),
        "what-if": Section(
            "What if",
            tables=(buckets_table(results, chosen),),
            level="folded",
            sentence=buckets_words(chosen),
        ),
        "published": Section("Published and measured", tables=(published_table(results),), level="folded"),
    }
