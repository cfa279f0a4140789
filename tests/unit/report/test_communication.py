"""The report of a sweep: its files, tables and plots, and what it says in a line."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from raybench.analysis.collectives import SweepResults, analyse_sweep
from raybench.report.communication import (
    answer_of_sweep,
    draw_messages,
    links_table,
    print_sweep,
    sweep_answer,
    times_table,
    write_sweep_report,
)
from raybench.report.format import size_words
from raybench.spec.sweep import Sweep
from tests.support.planted import FakeLink
from tests.unit.sweeps import KIB, MIB, swept

LINK = FakeLink(latency_s=60e-6, bandwidth_bytes_per_s=2e9)


@pytest.fixture(scope="module")
def results() -> SweepResults:
    return swept(LINK, world_sizes=(2, 4))[1]


def answers(results: SweepResults) -> dict[str, str]:
    return {each.question: each.words for each in sweep_answer(results)}


def test_the_answer_names_latency_and_bandwidth(results: SweepResults) -> None:
    found = answers(results)
    assert found["Measured on"] == "4 devices on 1 node, pack, fake."
    assert re.fullmatch(
        r"6\d\.\d µs for 1 KiB, bus bandwidth (2\.0|1\.9)\d? GB/s for 256 MiB\.", found["all_reduce"]
    )
    assert answer_of_sweep(results).startswith("Measured on: 4 devices on 1 node, pack, fake. all_reduce: 6")


def test_nothing_measured_is_an_answer() -> None:
    assert answer_of_sweep(analyse_sweep(Sweep(), [])) == "Result: Nothing was measured."


def test_all_files_are_written(results: SweepResults, tmp_path: Path) -> None:
    files = write_sweep_report(tmp_path, results, {"hostname": "a<b>"}, "measure --again")
    assert files[0] == tmp_path / "report" / "report.html"
    assert {path.relative_to(tmp_path / "report").as_posix() for path in files} == {
        "report.html", "report.md", "communication.csv",
        "plots/communication.png", "plots/communication.svg",
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "communication.csv").read_text())))
    assert len(rows) == len(results.messages) == 2 * 4 * 10
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## Latency and bandwidth" in text
    assert "Again: `measure --again`" in text
    assert "<h2>Times</h2>" in files[0].read_text()
    about = (tmp_path / "report/report.md").read_text().splitlines()[2]
    assert re.fullmatch(r"collectives on \d+ .*, gloo · .*\d{4}-\d\d-\d\d \d\d:\d\d UTC", about)


def test_tables_have_a_row_for_each_message_and_line(results: SweepResults) -> None:
    assert len(links_table(results).rows) == len(results.links) == 8
    times = times_table(results)
    named = [column.heading for column in times.columns]
    assert named == [
        "devices", "nodes", "placement", "message", "all_reduce", "reduce_scatter", "all_gather",
        "broadcast",
    ]  # fmt: skip
    assert len(times.rows) == 2 * 10


def test_a_part_that_failed_is_named() -> None:
    records, results = swept(LINK, message_bytes=(KIB,))
    crashed = records[0].model_copy(update={"state": "crashed", "reason": "planted", "result": None})
    found = analyse_sweep(results.sweep, [*records, crashed])
    assert answers(found)["Failed"] == "1 crashed (planted)."


def test_the_plot_shows_a_place(results: SweepResults) -> None:
    assert results.headline is not None
    left, right = draw_messages(results, results.headline).axes
    assert [axes.get_ylabel() for axes in (left, right)] == ["time (µs)", "bus bandwidth (GB/s)"]
    assert len(right.containers) == 4  # a line with error bars for each collective


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_has_whole_lines(results: SweepResults, width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    print_sweep(results, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any("256 MiB" in line for line in lines)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (4, "4 B"),
        (1020, "1,020 B"),
        (KIB, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 * MIB, "64 MiB"),
        (1 << 30, "1 GiB"),
    ],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_words(size) == words
