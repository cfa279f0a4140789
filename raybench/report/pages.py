"""A report's pages, whatever it reports: one HTML file that needs nothing else, and the same in Markdown."""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from raybench.records.whole_files import replace_whole
from raybench.report import render
from raybench.report.method import environment_lines
from raybench.report.plot import DrawnPlot
from raybench.report.table import Table, without_constant
from raybench.spec.plural import plural

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

MOST_CAUSES = 3  # further ones are folded
COMMAND = re.compile("`([^`]*)`")
SCOPE = "raybench-results"  # the id of a fragment: it weighs more than any class of the page around it
PAGE = re.compile(r":root|\bbody\b(?= \{)")  # selectors of the whole page: & in rules that are nested


# A section stands before the causes, below them, or is folded where they have been read.
Level = Literal["first", "shown", "folded"]


@dataclass(frozen=True)
class Section:
    """One heading with what stands under it; ``folded`` is for those who ask on."""

    title: str
    plots: tuple[DrawnPlot, ...] = ()
    tables: tuple[Table, ...] = ()
    level: Level = "shown"
    sentence: str = ""  # what to take from it


def _with_something(sections: Mapping[str, Section]) -> dict[str, Section]:
    """The sections that have something to show."""
    found = {
        name: replace(each, tables=tuple(without_constant(table) for table in each.tables if table.rows))
        for name, each in sections.items()
    }
    return {name: each for name, each in found.items() if each.plots or each.tables or each.sentence}


def make_pages(
    directory: Path,
    environment: Mapping[str, Any],
    *,
    asked_by: str,
    sections: Mapping[str, Section],
    **named: Any,
) -> dict[str, str | bytes]:
    """``report.html``, ``report.md`` and their plots, by name.

    ``directory`` is the results directory, ``environment`` what environment.json holds, ``asked_by`` the
    command that measures the same again, ``sections`` are by their anchors, in order. ``named`` is by the
    names that the templates know: title, about (what was measured, on what and when), box, method, and of a
    study causes and the advice of each, trials.
    """
    values = {
        **_DEFAULTS,
        "sections": _with_something(sections),
        "trials": None,
        "environment": environment_lines(environment),
        "command": asked_by,
        "again": f"python -m raybench.study report {quoted(directory)}",
        **named,
    }
    html = template("template.html.j2").render(values)  # its script and style are in it: no network
    markdown = template("template.md.j2").render(values)  # the same words and tables
    files: dict[str, str | bytes] = {"report.html": html, "report.md": markdown}
    for plot in (plot for each in sections.values() for plot in each.plots):
        files |= {f"plots/{plot.name}.png": plot.png, f"plots/{plot.name}.svg": plot.svg}
    return files


_DEFAULTS: dict[str, Any] = {
    "about": "",
    "causes": (),
    "no_causes": "",
    "not_examined": "",
    "most_causes": MOST_CAUSES,
    "is_page": True,
}


def make_fragment(sections: Mapping[str, Section], **named: Any) -> str:
    """The first screen of ``report.html`` for a page of others, as a notebook; as for ``make_pages``.

    It has the report's style, which reaches nothing outside of it, and takes none from that page.
    """
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    style = f"#{SCOPE}, #{SCOPE} * {{ all: revert; }}\n{scoped(css, f'#{SCOPE}')}"
    values = _DEFAULTS | named | {"sections": _with_something(sections), "is_page": False}
    return template("fragment.html.j2").render(values, scope=SCOPE, style=style)


def scoped(css: str, scope: str) -> str:
    """The rules of ``css`` for ``scope``, a selector, in the place of the page, and for what is in it."""
    return f"{scope} {{\n{PAGE.sub('&', css)}\n}}"


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write the files of a report; their paths in this order.

    Every file is whole at any moment: it is written beside its place and moved there. Raises ``OSError``
    where the directory cannot be written.
    """
    for path in [*(folder / "plots").glob("*.[ps][nv]g"), folder / "predictions.csv"]:
        if str(path.relative_to(folder)) not in contents:  # it would be taken for one of this report
            path.unlink(missing_ok=True)
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_whole(folder / name, content)
    return [folder / name for name in contents]


def quoted(path: Path) -> str:
    """A path as a shell takes it, from whatever folder it is typed in."""
    return shlex.quote(str(path.absolute()))


def anew(directory: Path) -> str:
    """The same for files that are made again: nothing is overwritten, so they go beside ``directory``."""
    return quoted(directory.with_name(f"{directory.name}-again"))


def _in_two_lines_at_most(cell: str) -> str:
    """A figure, which a narrow table breaks before its interval alone."""
    return cell.replace(" ", "\u00a0").replace("\u00a0[", " [")


def _commands(text: str) -> Markup:
    """Words for HTML; what stands between backticks, as in Markdown, is what one types."""
    from markupsafe import Markup, escape

    return Markup(COMMAND.sub(r"<code>\1</code>", str(escape(text))))


@cache
def template(name: str) -> jinja2.Template:
    """A template of this folder; what it is given must be complete."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=name.endswith("html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        number=_in_two_lines_at_most,
        base64=lambda data: b64encode(data).decode(),  # an image of its own: ids of two plots do not meet
        text=render.markdown_text,
        code=render.markdown_code,
        cell=render.markdown_cell,
        markdown=render.to_markdown,
        plural=plural,
        commands=_commands,
    )
    return environment.get_template(name)
