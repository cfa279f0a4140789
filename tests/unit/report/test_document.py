"""The files of a report: all are there, each is whole, and they say what was measured."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from raybench.analysis.findings.case import Around
from raybench.machine.gpus import Gpu
from raybench.records.record import TrialRecord
from raybench.report.answer import SMOKE, Clause, answer
from raybench.report.document import write_report
from raybench.report.finding_texts import evidence, next_step
from raybench.report.pages import make_pages
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import STARTED_AT, FakeRunner, Noise
from tests.unit.studies import MACHINE, asked, grid, searched, study

SPEC = study(
    knobs={"batch_size": [512, 32, 128], "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 6},
)
PLOTS = ("scaling", "waterfall")
GPU = Gpu(name="H200", memory_bytes=139 << 30)
AROUND = Around(MACHINE.model_copy(update={"hostname": "a<b>", "gpus": (GPU,)}))


def failure(reason: str) -> TrialRecord:
    wanted = asked(SPEC, "search", Setting(batch_size=128, precision="bf16", static_graph=True), 2)
    return TrialRecord(
        study="fake",
        trial_id=wanted.trial_id,
        request=wanted,
        state="crashed",
        reason=reason,
        started_at=STARTED_AT,
        wall_time_s=1.0,
    )


@pytest.fixture(scope="module")
def records() -> list[TrialRecord]:
    runner = FakeRunner(seed=2, noise=Noise(preemption=0.1))
    found = searched(SPEC, (1, 2), Setting(batch_size=512, precision="bf16"), runner)
    return [*found, failure("<script>alert(1)</script> & more")]


@pytest.fixture(scope="module")
def directory(records: list[TrialRecord], tmp_path_factory: pytest.TempPathFactory, pictures: None) -> Path:
    path = tmp_path_factory.mktemp("a study")
    write_report(path, analyse(SPEC, records, AROUND))
    return path


def test_every_file_of_the_contract_is_there(directory: Path) -> None:
    names = {str(path.relative_to(directory / "report")) for path in (directory / "report").rglob("*.*")}
    plots = {f"plots/{name}.{kind}" for name in PLOTS for kind in ("png", "svg")}
    assert (
        names
        == {
            "report.html",
            "report.md",
            "summary.csv",
            "summary.json",
            "trials.csv",
            "summary.tex",
            "diagnosis.md",
        }
        | plots
    )


def test_html_needs_nothing_else(directory: Path) -> None:
    page = (directory / "report/report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"<script[^>]|@import|url\(", page)
    assert "http://" not in re.sub(r"base64,[^\"]*", "", page)
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page


def test_the_answer_comes_first(directory: Path, records: list[TrialRecord]) -> None:
    box = answer(analyse(SPEC, records, AROUND))
    page, markdown = ((directory / f"report/report.{kind}").read_text() for kind in ("html", "md"))
    questions = ["Scaling", "Why", "What to change", "More devices", "Trust", "Failed"]
    assert [each.question for each in box] == questions
    about = "mlp on 2 CPU workers on fake cpu, gloo · torch 2.14.1 · 2026-01-01 00:00 UTC"
    assert markdown.splitlines()[2:5:2] == [about, f"- **Scaling**: {box[0].words}"]
    assert f"<title>{SPEC.name}: {about} · raybench</title>" in page
    body = page[page.index("<body>") :]
    assert (
        body.index("2 devices ") < body.index("<table>") < body.index("<figure>") < body.index('id="causes"')
    )


def test_what_one_types_is_code_in_the_page_and_what_is_between_is_no_html() -> None:
    box = [Clause("What to change", "try `raybench doctor` & <b>`<i>`</b>")]
    files = make_pages(Path("a"), {}, asked_by="x", title="n", box=box, sections={}, method=())
    page = str(files["report.html"])
    assert "try <code>raybench doctor</code> &amp; &lt;b&gt;<code>&lt;i&gt;</code>&lt;/b&gt;" in page


def test_causes_stand_in_every_document(directory: Path, records: list[TrialRecord]) -> None:
    first = analyse(SPEC, records, AROUND).diagnosis[0]
    for kind in ("html", "md"):
        text = html.unescape((directory / f"report/report.{kind}").read_text())
        text = re.sub("</?code>", "`", text) if kind == "html" else text
        assert evidence(first) in text
        assert next_step(first) in text


def test_sections_are_read_in_their_order(directory: Path) -> None:
    page = (directory / "report/report.html").read_text()
    order = re.findall(r'<section id="([^"]*)"', page)
    wanted = ["scaling", "causes", "cost", "settings", "environment", "trials", "use"]
    assert [name for name in order if name in wanted] == wanted
    assert not re.search(r"<section[^>]*>\s*<h2>[^<]*</h2>\s*</section>", page)  # none is empty
    for target in re.findall(r'href="#([^"]*)"', page):
        assert f'id="{target}"' in page


def test_every_trial_is_in_the_page(directory: Path, records: list[TrialRecord]) -> None:
    page = (directory / "report/report.html").read_text()
    table = page[page.index('<table id="every">') :]
    for record in records:
        assert record.trial_id in table


def test_what_was_left_out_is_said(records: list[TrialRecord], tmp_path: Path) -> None:
    words = "3 of 6 suggestions"
    write_report(tmp_path, analyse(SPEC, records, replace(AROUND, left_out=(words,))))
    for kind in ("html", "md"):
        assert words in (tmp_path / f"report/report.{kind}").read_text()


def test_it_says_how_it_was_measured_and_how_to_do_it_again(directory: Path) -> None:
    for kind in ("html", "md"):
        text = (directory / f"report/report.{kind}").read_text()
        for words in (
            "rounds",
            "Intervals are 95%",
            "All trials are one fit",
            "python -m raybench.study scaling",
            "study.toml",
            "2.14.1",
            "8.0 GiB",
            "H200",
        ):
            assert words in text, (kind, words)


def test_the_command_is_quoted_for_the_shell(directory: Path) -> None:
    assert f"scaling '{directory}/study.toml'" in (directory / "report/report.md").read_text()


def test_failed_trials_have_their_reason(directory: Path) -> None:
    for name in ("report.md", "diagnosis.md"):
        assert "alert(1)" in (directory / "report" / name).read_text()


def test_plots_in_markdown_exist(directory: Path) -> None:
    names = re.findall(r"\]\((plots/[^)]*)\)", (directory / "report/report.md").read_text())
    assert names
    assert all((directory / "report" / name).is_file() for name in names)


def test_a_second_report_replaces_the_first(records: list[TrialRecord], tmp_path: Path) -> None:
    write_report(tmp_path, analyse(SPEC, records))
    paths = write_report(tmp_path, analyse(SPEC, [failure("gone")]))
    assert all(path.is_file() for path in paths)
    assert paths[0] == tmp_path / "report/report.html"
    assert not list((tmp_path / "report/plots").iterdir())
    assert "No trial completed: 1 crashed (gone)." in paths[0].read_text()
    assert not [path for path in (tmp_path / "report").iterdir() if path.name.startswith(".")]


def test_a_report_of_nothing_is_written(tmp_path: Path) -> None:
    paths = write_report(tmp_path, analyse(SPEC, []))
    assert "Nothing was measured." in paths[0].read_text()


def test_one_device_and_four(tmp_path: Path) -> None:
    spec = study(knobs={"batch_size": [64]})
    for sizes in ([1], [1, 2, 4]):
        results = analyse(spec, grid(spec, sizes)[0])
        paths = write_report(tmp_path / str(len(sizes)), results)
        assert (tmp_path / str(len(sizes)) / "report/plots/scaling.png" in paths) == (len(sizes) > 1)


def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file in the way")
    with pytest.raises(OSError, match="report"):
        write_report(tmp_path, analyse(SPEC, []))


def test_a_smoke_run_is_marked_wherever_its_answer_stands(records: list[TrialRecord], tmp_path: Path) -> None:
    for is_smoke in (True, False):
        results = analyse(SPEC.model_copy(update={"is_smoke": is_smoke, "question": "Why?"}), records)
        write_report(tmp_path, results)
        for name in ("report.html", "report.md", "diagnosis.md"):
            assert (SMOKE in (tmp_path / "report" / name).read_text()) is is_smoke
        assert "<h1>Why?</h1>" in (tmp_path / "report/report.html").read_text()
