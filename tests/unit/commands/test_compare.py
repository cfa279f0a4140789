"""The command ``compare``: directories side by side, in words, and whether one has become slower."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raybench.analysis.findings.finding import FindingName
from raybench.analysis.resolve import resolve
from raybench.commands import compare_run
from raybench.commands.compare import CompareOptions
from raybench.commands.compare_run import compare_directories
from raybench.commands.console import make_console
from raybench.commands.options import parse_new_folder
from raybench.commands.predict_run import read_source
from raybench.commands.process import NOT_KNOWN
from raybench.commands.report import analysed
from raybench.errors import RequestError
from raybench.machine.environment import Spreads
from raybench.plan import notes
from raybench.records.requests import Configuration
from raybench.records.store import ResultsDirectory
from raybench.spec.knobs import Setting
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import MACHINE, asked, failed, grid, study

LARGER = {"name": "mlp", "input_dim": 64, "hidden_dim": 128, "output_dim": 8}


def planted(
    folder: Path, name: str, plain_s: float, exposed_s: float = 0.002, seed: int = 1, **fields: Any
) -> Path:
    """A results directory on one and two devices; batch 64 takes twice the time."""
    machine = fields.pop("machine", MACHINE)
    noise = {"noise": QUIET} if fields.pop("quiet", False) else {}
    others = fields.pop("others", None)
    spec = study(knobs={"batch_size": fields.pop("batches", [32])}, **fields)

    def model(config: Configuration, setting: Setting) -> StepCosts:
        alone_s = plain_s * setting.batch_size / 32
        costs = StepCosts(plain_s=alone_s, base_s=2 * alone_s, exposed_s=exposed_s)
        return costs if others is None else replace(costs, other_cores=others, host_cores=2)

    records, _ = grid(spec, (1, 2), FakeRunner(model, seed=seed, **noise))
    with ResultsDirectory.create(folder / name, spec, machine) as store:
        for record in records:
            store.append(record)
    return folder / name


def printed(*directories: Path, width: int | None = None, **options: Any) -> tuple[int, str]:
    console = make_console(io.StringIO())
    if width:
        console.width = width
    code = compare_directories(CompareOptions([*directories], **options), console)
    return code, console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.promise("fail if slower")
def test_a_slowdown_is_told_and_fails_where_it_is_to(tmp_path):
    """24 ms after 12 ms: a speed of 0.5, whose interval ends below 0.9 and above 0.2."""
    monday = planted(tmp_path, "monday", 0.010)
    tuesday = planted(tmp_path, "tuesday", 0.020, 0.004, seed=2)
    code, text = printed(monday, tuesday, fail_if_slower=0.1)
    assert code == 1
    assert "tuesday is slower than monday by more than 10%: 0.4" in text
    code, text = printed(monday, tuesday, fail_if_slower=0.8)
    assert code == 0
    assert "is slower than" not in text
    assert printed(tuesday, monday, fail_if_slower=0.0)[0] == 0  # faster is no failure
    assert printed(monday, tuesday)[0] == 0  # nobody asked


def test_a_figure_has_the_interval_of_its_report(tmp_path: Path) -> None:
    """By the spreads that the machine had shown, whichever command asks, and so has a gate."""
    steady = Spreads(trial=0.005, unit=0.002, start=0.002, start_unit=0.001)
    machine = MACHINE.model_copy(update={"spreads": steady})
    one = planted(tmp_path, "one", 0.010, quiet=True, machine=machine)
    two = planted(tmp_path, "two", 0.0104, 0.0021, seed=2, quiet=True, machine=machine)
    side = compare_run._side(one, "one", make_console(io.StringIO()))
    with ResultsDirectory.open_readonly(one) as store:
        reported = analysed(store)
    for results in (side.results, read_source([one], None).facts):
        assert results is not None
        assert results.headline_scaling == reported.headline_scaling
    assert side.results.fit.pool.spreads != resolve(reported.study, reported.records).fit.pool.spreads
    assert printed(one, two, fail_if_slower=0.0)[0] == 1  # starts differ by less than 4%


def test_what_cannot_be_planned_here_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured under a torch that this machine has not."""
    one, two = (planted(tmp_path, name, 0.010, seed=seed) for name, seed in (("one", 1), ("two", 2)))

    def refuse(*_: object) -> None:
        raise RequestError("knobs: batched_grad_copy needs torch 2.14")

    monkeypatch.setattr(notes, "make_plan", refuse)
    assert printed(one, two)[0] == 0


def test_a_side_says_what_its_report_says_of_what_was_not_reached(tmp_path: Path) -> None:
    """As "nothing: no loss is large and certain enough to act on" where no other setting was measured."""
    one, two = (
        planted(tmp_path, name, 0.010, 0.0, seed, quiet=True, batches=[32, 64])
        for name, seed in (("one", 1), ("two", 2))
    )
    for directory in (one, two):
        trials = directory / "trials.jsonl"
        lines = trials.read_text().splitlines(keepends=True)
        trials.write_text("".join(line for line in lines if '"batch_size":64' not in line))
    side = compare_run._side(one, "one", make_console(io.StringIO()))
    with ResultsDirectory.open_readonly(one) as store:
        reported = analysed(store)
    assert FindingName.NOT_REACHED in [each.name for each in side.results.diagnosis]
    assert side.results.diagnosis == reported.diagnosis
    assert printed(one, two, summary=tmp_path / "summary.md")[0] == 0
    assert "Not known yet: no other setting was measured." in (tmp_path / "summary.md").read_text()


def test_a_side_without_numbers_says_why(tmp_path):
    """As a column of dashes, and no word on what had happened."""
    monday = planted(tmp_path, "monday", 0.010)
    spec = study(knobs={"batch_size": [32]})
    crash = failed(asked(spec, "scaling", Setting(batch_size=32), 2), "crashed", "RuntimeError: boom")
    with ResultsDirectory.create(tmp_path / "tuesday", spec, MACHINE) as store:
        store.append(crash)
    text = printed(monday, tmp_path / "tuesday", width=160)[1]
    assert re.search(r"failed +– +1 crashed \(RuntimeError: boom\)", text)
    assert "other processes" not in text  # which neither tells
    assert "failed" not in printed(monday, planted(tmp_path, "wednesday", 0.010))[1]


def test_a_slowdown_under_load_names_what_else_ran(tmp_path):
    monday = planted(tmp_path, "monday", 0.010, others=0.1)
    tuesday = planted(tmp_path, "tuesday", 0.020, 0.004, seed=2, others=0.9)
    code, text = printed(monday, tuesday, fail_if_slower=0.0, width=200)
    assert code == 1
    assert re.search(r"other processes, cores +0\.10 of 2 +0\.90 of 2", text)


def test_what_cannot_be_told_is_neither_passed_nor_failed(tmp_path: Path) -> None:
    """12.5 ms after 12 ms is more than the rounds leave open, and less than starts differ by."""
    one = planted(tmp_path, "one", 0.010, quiet=True)
    two = planted(tmp_path, "two", 0.0104, 0.0021, seed=2, quiet=True)
    code, text = printed(one, two, fail_if_slower=0.0)
    assert code == NOT_KNOWN == 4
    words = " ".join(text.split())
    assert "whether two is slower than one by more than 0% is not known: " in words
    assert "one start each" in words
    assert re.search(r"\d+ starts of each would tell", words)


def test_one_that_is_slower_fails_whatever_is_not_known_of_another(tmp_path: Path) -> None:
    one = planted(tmp_path, "one", 0.010, quiet=True)
    two = planted(tmp_path, "two", 0.0104, 0.0021, seed=2, quiet=True)
    three = planted(tmp_path, "three", 0.030, 0.006, seed=3, quiet=True)
    assert printed(one, two, three, fail_if_slower=0.0)[0] == 1


def test_several_starts_are_counted(tmp_path: Path) -> None:
    one, two = (
        planted(tmp_path, name, 0.010, seed=seed, quiet=True, measure={"starts": starts})
        for name, seed, starts in (("one", 1, 3), ("two", 2, 4))
    )
    code, text = printed(one, two, fail_if_slower=0.5)
    assert code == 0
    assert "3 and 4 starts" in " ".join(text.split())


def test_it_fits_the_width_and_names_whom_nothing_is_in_common_with(tmp_path):
    other = MACHINE.model_copy(
        update={"cpu_model": "Another CPU", "packages": {**MACHINE.packages, "torch": "9.9"}}
    )
    one = planted(tmp_path, "one", 0.010)
    two = planted(tmp_path, "two", 0.010, machine=other, time_budget_seconds=60.0, seed=2)
    three = planted(tmp_path, "three", 0.010, workload=LARGER)
    _, text = printed(one, two, three, width=80)
    assert "three over one: Not compared: " in text
    assert max(map(len, text.splitlines())) <= 80
    text = printed(one, planted(tmp_path, "four", 0.010, batches=[64]))[1]
    assert "has not measured the default of one" in " ".join(text.split())


def test_wrong_requests(tmp_path):
    one, other = planted(tmp_path, "one", 0.010), planted(tmp_path, "other", 0.010, batches=[64])
    for wrong in ([one], [one, one], [one, tmp_path / "." / "one"]):
        with pytest.raises(RequestError, match="two different results directories"):
            printed(*wrong)
    with pytest.raises(RequestError, match="not a results directory"):
        printed(one, tmp_path)
    with pytest.raises(RequestError, match="--fail-if-slower: other has measured the default of one"):
        printed(one, other, fail_if_slower=0.0)


def test_one_without_a_complete_trial_stands_beside_the_others(tmp_path):
    one = planted(tmp_path, "one", 0.010)
    ResultsDirectory.create(tmp_path / "empty", study(knobs={"batch_size": [32]}), MACHINE).close()
    code, text = printed(one, tmp_path / "empty")
    assert code == 0
    assert "empty over one: Not compared: " in text


@pytest.mark.promise("compare")
def test_the_files_of_a_report_are_written(tmp_path: Path) -> None:
    one = planted(tmp_path, "ag_news", 0.010)
    other = planted(tmp_path, "imdb", 0.020, batches=[32, 64], seed=2)
    out = tmp_path / "out"
    _, text = printed(one, other, output=out)
    assert "report.html" in text
    names = {str(path.relative_to(out)) for path in out.rglob("*.*") if path.suffix != ".svg"}
    plots = {f"plots/{name}.png" for name in ("scaling", "waterfall")}
    assert names == {"report.html", "report.md", "summary.csv", "summary.tex"} | plots
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert {row["results"] for row in rows} == {"ag_news", "imdb"}
    assert len(rows) == 2 + 4
    assert all(float(row["efficiency"]) > 0 for row in rows if row["world_size"] == "2")
    tex = (out / "summary.tex").read_text()
    assert tex.count(r"\begin{table}") == 1
    assert r"ag\_news" in tex
    assert "imdb" in tex
    assert "& status" in tex
    page = (out / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "study.toml").touch()
    for output in (tmp_path, tmp_path / "study.toml"):
        with pytest.raises(RequestError, match="nothing is overwritten"):
            parse_new_folder(str(output), "--output")


def test_a_summary_is_appended_to_what_a_ci_job_has(tmp_path):
    """Verdicts first, then each side's answer and the tables, as Markdown that GitHub draws."""
    monday = planted(tmp_path, "monday", 0.010)
    tuesday = planted(tmp_path, "tuesday", 0.020, 0.004, seed=2)
    summary = tmp_path / "summary.md"
    summary.write_text("# The job\n")
    assert printed(monday, tuesday, fail_if_slower=0.1, summary=summary)[0] == 1
    lines = summary.read_text().splitlines()
    assert lines[:2] == ["# The job", "## monday and tuesday"]
    assert lines[3].startswith("- tuesday is slower than monday by more than 10%: 0.4")
    assert [line.split(":")[0] for line in lines[4:7]] == ["- tuesday over monday", "- monday", "- tuesday"]
    assert "### Side by side" in lines
    assert any(re.fullmatch(r"\| :--- \|.*", line) for line in lines)
    printed(monday, tuesday, summary=summary)
    assert summary.read_text().count("## monday and tuesday") == 2
    assert summary.read_text().count("is slower than") == 1  # where nobody asked there is no verdict


def test_a_summary_that_cannot_be_written_is_named(tmp_path):
    sides = planted(tmp_path, "monday", 0.010), planted(tmp_path, "tuesday", 0.010)
    with pytest.raises(OSError, match="nowhere"):
        printed(*sides, summary=tmp_path / "nowhere" / "summary.md")
