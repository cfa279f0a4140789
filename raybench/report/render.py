"""Tables as Markdown and LaTeX."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from raybench.report.table import Table


def to_markdown(table: Table) -> str:
    """The table in Markdown, without title and caption; empty where it has no rows."""
    if not table.rows:
        return ""
    lines = [
        _markdown_row([column.heading for column in table.columns]),
        _markdown_row(["---:" if column.right else ":---" for column in table.columns]),
        *(_markdown_row(row) for row in table.rows),
    ]
    return "\n".join(lines) + "\n"


def markdown_text(text: object) -> str:
    """Text in Markdown that is no HTML and no link, whatever is in it."""
    return html.escape(str(text), quote=False).replace("](", r"]\(")


def markdown_code(text: object) -> str:
    """Text as code in Markdown, where nothing in it means anything: between more backticks than it has."""
    line = " ".join(str(text).split())
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence, gap = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{gap}{line}{gap}{fence}"


def markdown_cell(text: str) -> str:
    """The same as a cell of a table."""
    return markdown_text(text).replace("|", r"\|").replace("\n", " ")


def to_tex(table: Table, study: str) -> str:
    """The table for LaTeX with booktabs, its caption after the study's name."""
    heading = " & ".join(tex_escape(column.heading) for column in table.columns)
    body = [" & ".join(map(_tex_cell, row)) + r" \\" for row in table.rows]
    lines = [
        r"% \usepackage{booktabs}", r"\begin{table}", r"\centering",
        rf"\caption{{{tex_escape(study)}. {tex_escape(table.caption)}}}",
        rf"\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', study)}}}",
        rf"\begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in table.columns)}}}",
        r"\toprule", rf"{heading} \\", r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


LATIN_END = 0x180  # letters up to here are in the fonts that LaTeX begins with
_TEX = {
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "µ": r"$\mu$",
    "·": r"$\cdot$",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "|": r"\textbar{}",
    "–": "--",
    "…": r"\ldots{}",
    "\n": " ",
}


def tex_escape(text: str) -> str:
    """``text`` as LaTeX shows it literally; letters that its plain fonts lack become a question mark."""
    return "".join(_TEX.get(each) or (each if ord(each) < LATIN_END else "?") for each in text)


def _tex_cell(text: str) -> str:
    """A cell: a factor has the sign of multiplication."""
    return re.sub(r"(?<=\d)x(?= |$)", r"$\\times$", tex_escape(text))


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(markdown_cell(cell) for cell in cells) + " |"
