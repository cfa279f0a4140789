"""report.html as a browser shows it: nothing runs out of a phone's screen, the table sorts and filters."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

from raybench.analysis.findings.case import Around
from raybench.report.document import first_screen, write_report
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner
from tests.unit.studies import MACHINE, searched, study

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SPEC = study(
    knobs={"batch_size": [512, 32, 128], "precision": ["fp32", "bf16"], "bucket_cap_mb": ["default", 1, 25]},
    search={"method": "optuna", "trials": 12},
)
# The page is put into a frame of a phone's width: a window cannot be made that narrow everywhere.
FRAME = """<!DOCTYPE html><body style="margin:0"><iframe id="page" src="{page}" width="{width}"
height="800" style="border:0"></iframe><pre id="said"></pre><script>
const frame = document.getElementById("page");
frame.onload = () => {{
  const page = frame.contentDocument, view = frame.contentWindow;
  const said = (() => {{ {script} }})();
  document.getElementById("said").textContent = "said:" + JSON.stringify(said) + ":said";
}};
</script></body>"""

# Styles as a notebook has them, dark and of classes that weigh more than a page's own rules.
NOTEBOOK = """<!DOCTYPE html><style>
.theirs.theirs {{ color: #ddd; }} .theirs.theirs td {{ border: 3px solid red; }}
.theirs.theirs tbody tr:nth-child(odd) {{ background: #444; }} h1 {{ color: rgb(0, 255, 0); }}</style>
<body style="background: #111"><div class="theirs">{fragment}
<h1>outside</h1><table><tr><td>outside</td></tr></table></div></body>"""

Ask = Callable[..., str]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """What a script answers in the page, shown in a frame of so many pixels; as JSON."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium (Debian: apt-get install chromium)")
    folder = tmp_path_factory.mktemp("browser")
    records = searched(SPEC, (1, 2), Setting(batch_size=512, precision="bf16"), FakeRunner(seed=2))
    results = analyse(SPEC, records, Around(MACHINE.model_copy(update={"hostname": "n" * 200})))
    write_report(folder, results)
    notebook = NOTEBOOK.format(fragment=first_screen(results))
    (folder / "report/notebook.html").write_text(notebook)

    def asked(width: int, script: str, page: str = "report.html") -> str:
        frame = folder / "report/frame.html"
        frame.write_text(FRAME.format(width=width, script=script, page=page))
        done = subprocess.run(
            [
                browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                f"--user-data-dir={folder / 'profile'}", "--allow-file-access-from-files",
                "--virtual-time-budget=5000", "--dump-dom", frame.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )  # fmt: skip
        found = re.search(r"said:(.*):said</pre>", done.stdout)
        assert found, done.stderr[-2000:]
        return found.group(1)

    return asked


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_never_scrolls_sideways(ask: Ask, width: int) -> None:
    script = """page.querySelectorAll("details").forEach(each => { each.open = true; });
    return [page.documentElement.scrollWidth, view.innerWidth];"""
    inner, window = map(int, ask(width, script).strip("[]").split(","))
    assert window == width
    assert inner <= width


def test_the_table_sorts_by_number_and_filters(ask: Ask) -> None:
    script = """const table = page.getElementById("every"), heads = [...table.tHead.rows[0].cells];
    const column = heads.findIndex(head => head.textContent.startsWith("samples/s"));
    const cells = () => [...table.tBodies[0].rows].map(row => parseFloat(
        row.cells[column].textContent.replace(/,/g, "") || "NaN"));
    const before = cells();
    heads[column].click(); const up = cells();
    heads[column].click(); const down = cells();
    const filter = page.getElementById("filter");
    filter.value = "bf16 search"; filter.oninput();
    const rows = [...table.tBodies[0].rows].map(row => row.textContent);
    const rising = up.every((value, place) => !place || up[place - 1] <= value);
    const falling = down.every((value, place) => !place || down[place - 1] >= value);
    const sort = heads[column].getAttribute("aria-sort"), fewer = rows.length < before.length;
    return [before.length > 10, rising, falling, sort, rows.length > 0, fewer,
            rows.every(text => text.includes("bf16") && text.includes("search"))];
    """
    assert ask(1280, script) == '[true,true,true,"descending",true,true,true]'


def test_in_a_notebook_neither_style_reaches_the_other(ask: Ask) -> None:
    script = """const style = (each, name) => view.getComputedStyle(each)[name];
    const ours = page.getElementById("raybench-results"), inside = name => ours.querySelector(name);
    const outside = [...page.querySelectorAll("h1, td")].filter(each => each.textContent === "outside");
    return [style(inside("h1"), "color"), style(inside("td"), "color"), style(inside("td"), "borderTopWidth"),
            style(inside("tbody tr"), "backgroundColor"), style(inside("th.right"), "textAlign"),
            style(outside[0], "color"), style(outside[1], "borderTopWidth"),
            style(outside[1], "paddingLeft")];"""
    dark, clear = "rgb(28, 28, 28)", "rgba(0, 0, 0, 0)"
    ours, theirs = [dark, dark, "0px", clear, "right"], ["rgb(0, 255, 0)", "3px", "1px"]
    assert json.loads(ask(900, script, "notebook.html")) == [*ours, *theirs]
