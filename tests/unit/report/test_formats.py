"""Tables as Markdown and LaTeX."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.contents import make_tables
from raybench.report.formats import tex_escape, to_markdown, to_tex
from raybench.report.tables.base import Heading, Table


def test_markdown_escapes_what_would_break_a_row() -> None:
    table = Table("", "", (Heading("a"), Heading("b", right=True)), (("x|y", "two\nlines"),))
    assert to_markdown(table) == "| a | b |\n| :--- | ---: |\n| x\\|y | two lines |\n"
    assert to_markdown(Table("", "", (Heading("a"),), ())) == ""


def test_latex_is_booktabs_and_escaped(wide: StudyResults) -> None:
    text = to_tex(make_tables(wide).summary, wide.study.name)
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"gradient\_as\_bucket\_view", r"\%"):
        assert word in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert tex_escape(r"50% of A_1 & {x} \ #$~^") == (
        r"50\% of A\_1 \& \{x\} \textbackslash{} \#\$\textasciitilde{}\textasciicircum{}"
    )
