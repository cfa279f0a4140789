from __future__ import annotations

import io

import pytest
from rich.console import Console

from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import setting_words
from raybench.analysis.results import StudyResults
from raybench.report import print_summary
from raybench.report.formats import summary_tex, tex_escape, to_markdown
from raybench.report.tables.tables import (
    Column,
    Table,
    communication_table,
    confirmation_table,
    failures_table,
    scaling_table,
    suggestions_table,
    waterfall_table,
)
from raybench.report.wording import aligned, duration_words, figures, interval, percent, times
from raybench.spec import Setting


def printed(results: StudyResults, width: int = 80) -> str:
    text = io.StringIO()
    print_summary(results, Console(file=text, width=width))
    return text.getvalue()


@pytest.mark.parametrize("which", ["results", "wide"])
def test_the_terminal_table_fits_80_columns(which: str, request: pytest.FixtureRequest) -> None:
    text = printed(request.getfixturevalue(which))
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 80


def test_a_narrow_terminal_is_not_overrun(results: StudyResults) -> None:
    assert max(map(len, printed(results, 60).splitlines())) <= 60


def test_the_answer_stands_below_the_table(results: StudyResults) -> None:
    text = " ".join(printed(results).split())
    assert text.endswith("over the default")
    assert "best of 6: bf16" in text


def test_failures_are_in_the_terminal_table(wide: StudyResults) -> None:
    assert "oom" in printed(wide)
    assert "trials more in the report" in " ".join(printed(wide).split())


def test_every_number_has_interval_and_n(results: StudyResults) -> None:
    table = scaling_table(results)
    assert table.columns[-1].heading == "n"
    for row in table.rows:
        assert "[" in row[2]
        assert "[" in row[3]
        assert int(row[-1]) >= 10
    assert [row[0] for row in table.rows] == ["1", "2", "1", "2"]


def test_suggestions_are_ordered_by_speed_and_say_what_batch_means(results: StudyResults) -> None:
    table = suggestions_table(results)
    speeds = [float(row[2].split()[0].replace(",", "")) for row in table.rows]
    assert speeds == sorted(speeds, reverse=True)
    assert "a choice about speed alone" in table.caption


def test_parts_and_communication(results: StudyResults) -> None:
    assert [row[0] for row in waterfall_table(results).rows] == [
        "ideal",
        "contention",
        "DDP wrapper",
        "skew",
        "exposed communication",
        "step time",
    ]
    names = [row[0] for row in communication_table(results).rows]
    assert "T_comm = T(n) - T(1), ms" in names
    assert "Amdahl's serial fraction f" in names


def test_confirmation_and_failures(results: StudyResults, wide: StudyResults) -> None:
    (row,) = confirmation_table(results).rows
    assert row[0] == "bf16"
    assert row[3] == "better"
    assert all(row[3] == "oom" and "out of memory" in row[4] for row in failures_table(wide).rows)
    assert len(failures_table(wide).rows) == len(wide.failed) > 0


def test_markdown_escapes_what_would_break_a_row() -> None:
    table = Table("", "", (Column("a"), Column("b", True)), (("x|y", "two\nlines"),))
    assert to_markdown(table) == "| a | b |\n| :--- | ---: |\n| x\\|y | two lines |\n"
    assert to_markdown(Table("", "", (Column("a"),), ())) == ""


def test_latex_is_booktabs_and_escaped(wide: StudyResults) -> None:
    text = summary_tex(wide)
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"gradient\_as\_bucket\_view", r"\%"):
        assert word in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert tex_escape(r"50% of A_1 & {x} \ #$~^") == (
        r"50\% of A\_1 \& \{x\} \textbackslash{} \#\$\textasciitilde{}\textasciicircum{}"
    )


def test_numbers_in_words() -> None:
    assert interval(Estimate(5123.4, 5050, 5190.2, 12)) == "5,123 [5,050, 5,190]"
    assert times(Estimate(1.664, 1.636, 1.69, 12)) == "1.66x [1.64, 1.69]"
    assert percent(Estimate(0.14, 0.11, 0.17, 9), sign=True) == "+14% [11, 17]"
    assert percent(Estimate(0.001, -0.002, 0.003, 9), sign=True) == "+0.1% [-0.2, 0.3]"
    assert percent(Estimate(-0.0001, -0.02, 0.02, 9)) == "0% [-2, 2]"
    assert aligned(12.345, 12.1, 12.6) == ("12.3", "12.1", "12.6")
    assert aligned(1e-15, 0, 1e-15) == ("0", "0", "0")
    assert [figures(value) for value in (5120.4, 45.06, 1.657, 0.01234, 0)] == [
        "5,120",
        "45.1",
        "1.66",
        "0.0123",
        "0",
    ]
    assert [duration_words(each) for each in (1.25, 0.0123, 1e-16)] == ["1.25 s", "12.3 ms", "0 ms"]


def test_settings_in_words() -> None:
    setting = Setting(
        precision="bf16", bucket_cap_mb=25, gradient_accumulation=4, gradient_compression="fp16"
    )
    knobs = ("precision", "bucket_cap_mb", "gradient_accumulation", "gradient_compression", "static_graph")
    words = "bf16, 25 MiB buckets, accumulation 4, fp16 compression, no static_graph, NCCL_ALGO=Ring"
    assert setting_words(setting, knobs, {"NCCL_ALGO": "Ring"}) == words
    assert setting_words(setting, ()) == "default"
