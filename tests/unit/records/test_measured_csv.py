"""Measurements made elsewhere as a CSV file: what is read, and how what is damaged or foreign is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.errors import RequestError
from raybench.records.measured_elsewhere import MeasuredTable, read_measured_csv

HEADER = "nodes,world_size,batch_size,step_time_s"
GOOD = "1,1,32,0.010\n1,2,32,0.012\n1,4,32,0.013\n"
SUMMARY = "study,trial_id,role,state,scaling,world_size,nodes,batch_size,step_time_s,oversubscribed"


def read(folder: Path, content: str | bytes) -> MeasuredTable:
    path = folder / "mine.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_measured_csv(path)


def refused(folder: Path, content: str | bytes) -> str:
    with pytest.raises(RequestError) as error:
        read(folder, content)
    assert len(error.value.problems) == 1
    return str(error.value)


def test_the_columns_of_the_contract(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        f"{HEADER},communication_s,placement,model,gpu\n"
        "2,8,32,0.040,0.010,44,bert,T4\n"
        "2,4,32,0.030,,31,bert,T4\n"
        "1,1,32,0.020,0,,gpt,T4\n",
    )
    first, second, third = table.rows
    assert (first.nodes, first.world_size, first.batch_size, first.step_time_s) == (2, 8, 32, 0.04)
    assert (first.communication_s, first.workers, first.model) == (0.01, (4, 4), "bert")
    assert (second.communication_s, second.workers) == (None, (3, 1))
    assert (third.communication_s, third.workers, third.model) == (0.0, (), "gpt")
    assert table.notes == ("columns that were not read: gpu",)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + f"{HEADER}\n{GOOD}".encode(),  # a byte order mark
        f"{HEADER}\n{GOOD}".replace("\n", "\r\n"),
        f"\n{HEADER}\n\n{GOOD}\n\n",  # empty lines
        f"{HEADER}\n{GOOD}".rstrip(),  # no end of line
        f'"nodes", "world_size", "batch_size", "step_time_s"\n{GOOD}',
        f"{HEADER}\n{GOOD}".replace("1,2,32", "1.0,2.0,32.0"),  # pandas writes columns with gaps so
        "step_time_s,batch_size,world_size,nodes\n0.010,32,1,1\n0.012,32,2,1\n0.013,32,4,1\n",
    ],
    ids=["BOM", "CRLF", "empty lines", "no last line end", "quoted", "floats", "another order"],
)
def test_files_as_programs_write_them(tmp_path: Path, content: str | bytes) -> None:
    rows = read(tmp_path, content).rows
    assert [(row.world_size, row.batch_size, row.step_time_s) for row in rows] == [
        (1, 32, 0.010),
        (2, 32, 0.012),
        (4, 32, 0.013),
    ]
    assert {row.model for row in rows} == {"mine"}  # the file's name


@pytest.mark.parametrize(
    ("cells", "column", "received"),
    [
        ("1,2,32,nan", "step_time_s", '"nan"'),
        ("1,2,32,inf", "step_time_s", '"inf"'),
        ("1,2,32,-0.01", "step_time_s", '"-0.01"'),
        ("1,2,32,1e-12", "step_time_s", '"1e-12"'),
        ("1,2,32,", "step_time_s", "nothing"),
        ("1,2,32,12 ms", "step_time_s", '"12 ms"'),
        ('1,2,32,"0,012"', "step_time_s", '"0,012"'),
        ("1,0,32,0.01", "world_size", '"0"'),
        ("1,2.5,32,0.01", "world_size", '"2.5"'),
        ("1,2,-32,0.01", "batch_size", '"-32"'),
        ("1,1e12,32,0.01", "world_size", '"1e12"'),
        ("3,2,32,0.01", "nodes", "3"),
        (",2,32,0.01", "nodes", "nothing"),
        (HEADER, "nodes", '"nodes"'),
    ],
)
def test_a_cell_that_breaks_its_rule(tmp_path: Path, cells: str, column: str, received: str) -> None:
    found = refused(tmp_path, f"{HEADER}\n{GOOD}{cells}\n")
    assert f"mine.csv: line 5: {column}: " in found
    assert f"(received {received})" in found


@pytest.mark.parametrize(
    ("more", "cells", "expected"),
    [
        ("communication_s", "1,2,32,0.01,0.02", "communication_s: below step_time_s"),
        ("communication_s", "1,2,32,0.01,-0.001", "communication_s: "),
        ("placement", "2,8,32,0.01,43", "placement: a digit for each of 2 nodes, 8 in sum"),
        ("placement", "2,8,32,0.01,80", "placement: a digit for each of 2 nodes"),
        ("step_time_low_s,step_time_high_s", "1,2,32,0.01,0.02,0.03", "step_time_low_s: at most"),
        ("step_time_low_s,step_time_high_s", "1,2,32,0.01,0.009,0.008", "step_time_high_s: at least"),
    ],
)
def test_optional_columns_have_rules_too(tmp_path: Path, more: str, cells: str, expected: str) -> None:
    assert expected in refused(tmp_path, f"{HEADER},{more}\n{cells}\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "empty: the columns nodes, world_size, batch_size, step_time_s"),
        ("\n\n", "empty"),
        (f"{HEADER}\n", "at least one measured step (received none: no row)"),
        (
            "nodes,world_size,batch_size\n1,1,32\n",
            'columns missing: step_time_s (received "nodes, world_size',
        ),
        ("a,b\n1,2\n", 'columns missing: nodes, world_size, batch_size, step_time_s (received "a, b")'),
        (f"{HEADER},nodes\n", "each column once (received nodes twice)"),
        (f"{HEADER}\n{GOOD}1,8,32", "line 5: 3 cells under 4 columns, a torn line"),
        (f"{HEADER}\n{GOOD}1,8,32,0,014\n", "line 5: 5 cells under 4 columns"),
        (f"{HEADER}\n{GOOD}".encode("utf-16"), "not UTF-8: invalid start byte at byte 0"),
        (f"{HEADER},model\n1,1,32,0.01,Gr\u00f6\u00dfe\n".encode("latin-1"), "not UTF-8"),
        (f'{HEADER}\n1,1,32,"0.01\n', "no CSV"),
        ('{"schema_version": 4, "study": "x"}\n', "no CSV"),
    ],
)
def test_a_file_that_is_no_table_of_steps(tmp_path: Path, content: str | bytes, expected: str) -> None:
    assert expected in refused(tmp_path, content)


def test_a_summary_says_what_was_left_out(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        f"{SUMMARY}\n"
        "s,1,scaling,complete,weak,1,,32,0.01,false\n"
        "s,2,scaling,complete,weak,2,1,32,0.012,false\n"
        "s,3,scaling,oom,weak,4,,32,,false\n"
        "s,4,training,complete,weak,4,1,32,,false\n"
        "s,5,scaling,complete,weak,4,1,32,0.013,true\n",
    )
    assert [(row.world_size, row.nodes) for row in table.rows] == [(1, 1), (2, 1)]
    (note,) = table.notes
    assert "1 row that ended oom, 1 row of the role training, 1 row oversubscribed" in note


def test_a_summary_without_a_usable_row(tmp_path: Path) -> None:
    found = refused(tmp_path, f"{SUMMARY}\ns,3,scaling,oom,weak,4,,32,,false\n")
    assert "at least one measured step (received none: 1 row that ended oom)" in found


def test_a_summary_of_a_study_that_explores_workers_of_loaders(tmp_path: Path) -> None:
    """A knob's column has the name of a field of a row."""
    header = SUMMARY.replace("step_time_s", "gradient_compression,workers,step_time_s")
    rows = [f"s,{n},scaling,complete,weak,{n},1,32,none,{n},0.01,false" for n in (1, 2)]
    table = read(tmp_path, "\n".join([header, *rows, ""]))
    assert [row.workers for row in table.rows] == [(), ()]
    assert [dict(row.setting)["workers"] for row in table.rows] == ["1", "2"]
