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
    left_out_table,
    links_table,
    messages_plot,
    messages_table,
    places_plot,
    print_sweep,
    sweep_answer,
    times_table,
    write_sweep_report,
)
from raybench.report.format import size_words
from raybench.spec.sweep import Sweep
from tests.support.planted import FakeLink
from tests.unit.sweeps import KIB, MIB, swept

LINK = FakeLink(latency_s=60e-6, bandwidth_bytes_per_s=2e9, memory_bytes=64 * MIB, unsupported=("broadcast",))


@pytest.fixture(scope="module")
def results() -> SweepResults:
    return swept(LINK, world_sizes=(2, 4))[1]


def test_the_answer_names_latency_bandwidth_and_what_is_missing(results: SweepResults) -> None:
    place, *clauses = sweep_answer(results).split("; ")
    assert place == "4 devices on 1 node, pack, fake"
    assert clauses[0].startswith("all_reduce: 6")
    assert "for 1 KiB, bus bandwidth 2.0" in clauses[0] or "for 1 KiB, bus bandwidth 1.9" in clauses[0]
    assert "for 64 MiB" in clauses[0]
    assert clauses[-1].startswith("not measured: ")
    assert "broadcast (unsupported)" in clauses[-1]
    assert clauses[-1].endswith("more")


def test_where_the_cores_decide_the_link_is_not_named_as_the_reason() -> None:
    by_cores = FakeLink(busy_cores=0.95, host_busy=0.5)
    results = swept(by_cores, message_bytes=(KIB, MIB), collectives=("all_reduce",))[1]
    words = "the cores decide here, not the link: all_reduce (2 of 2 messages)"
    assert words in sweep_answer(results)
    assert messages_table(results).rows[0][-1] == "the cores: 0.95 cores a rank, 50% of the host"
    by_link = swept(FakeLink(busy_cores=0.1, host_busy=0.2), message_bytes=(KIB, MIB))[1]
    assert "decide" not in sweep_answer(by_link)
    assert messages_table(by_link).rows[0][-1].startswith("the link: 0.10 cores")


def test_nothing_measured_is_an_answer() -> None:
    assert sweep_answer(analyse_sweep(Sweep(), [])) == "nothing was measured"


def test_all_files_are_written(results: SweepResults, tmp_path: Path) -> None:
    files = write_sweep_report(tmp_path, results, {"hostname": "a<b>"})
    assert files[0] == tmp_path / "report" / "report.html"
    assert {path.relative_to(tmp_path / "report").as_posix() for path in files} == {
        "report.html", "report.md", "communication.csv",
        "plots/communication.png", "plots/communication.svg", "plots/places.png", "plots/places.svg",
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "communication.csv").read_text())))
    assert len(rows) == len(results.messages) == 2 * 3 * 9
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## Latency and bandwidth" in text
    assert "## Findings" not in text
    assert "python -m raybench.study communication --collectives all_reduce," in text
    assert "<h2>Messages</h2>" in files[0].read_text()
    # the report of fewer places has no plot of an earlier one
    write_sweep_report(tmp_path, swept(LINK)[1], {})
    assert not (tmp_path / "report" / "plots" / "places.png").exists()
    about = (tmp_path / "report/report.md").read_text().splitlines()[2]
    assert re.fullmatch(r"collectives on \d+ .*, gloo · .*\d{4}-\d\d-\d\d \d\d:\d\d UTC", about)


def test_tables_have_a_row_for_each_message_line_and_gap(results: SweepResults) -> None:
    assert len(messages_table(results).rows) == len(results.messages)
    assert len(links_table(results).rows) == len(results.links) == 6
    assert len(left_out_table(results).rows) == 2 * (3 + 1)  # 256 MiB of three collectives, broadcast at all
    times = times_table(results)
    assert [column.heading for column in times.columns] == [
        "message",
        "all_reduce",
        "reduce_scatter",
        "all_gather",
    ]
    assert len(times.rows) == 9


def test_plots_show_the_headline_and_every_place(results: SweepResults) -> None:
    plot, places = messages_plot(results), places_plot(results)
    assert plot is not None
    assert plot.place.startswith("4 devices")
    assert [line.label for line in plot.times] == ["all_reduce", "reduce_scatter", "all_gather"]
    assert all(plot.fitted)
    assert places is not None
    assert [line.label for line in places.bandwidths] == [
        "4 devices on 1 node, pack", "2 devices on 1 node, pack",
    ]  # fmt: skip
    assert places_plot(swept(LINK)[1]) is None


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
