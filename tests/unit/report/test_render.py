"""Tables as Markdown and LaTeX; summary.csv: the columns that users read."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from raybench.analysis.results import StudyResults
from raybench.records.csv_files import rows_csv
from raybench.records.measured_elsewhere import read_measured_csv
from raybench.report.document import make_sections
from raybench.report.render import markdown_code, markdown_text, tex_escape, to_markdown, to_tex
from raybench.report.table import Column, Table
from tests.support.analysis import analyse
from tests.unit.studies import grid, study

CONTRACT = [
    "study",
    "model",
    "device_name",
    "input",
    "trial_id",
    "visits",
    "role",
    "state",
    "status",
    "strategy",
    "scaling",
    "world_size",
    "nodes",
    "placement",
    "batch_size",
    "global_batch_size",
    "bucket_cap_mb",
    "precision",
    "gradient_accumulation",
    "gradient_compression",
    "VARYING",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "mean_step_time_s",
    "throughput_samples_per_s",
    "throughput_tokens_per_s",
    "baseline_world_size",
    "baseline_strategy",
    "baseline_step_time_s",
    "speedup",
    "efficiency",
    "efficiency_low",
    "efficiency_high",
    "efficiency_again_low",
    "efficiency_again_high",
    "ideal_s",
    "small_batch_s",
    "contention_s",
    "wrapper_s",
    "skew_s",
    "exposed_communication_s",
    "hidden_communication_s",
    "communication_fraction",
    "gradient_bytes",
    "bus_bandwidth_bytes_per_s",
    "data_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "other_s",
    "flops_per_s",
    "mfu",
    "mfu_datasheet",
    "peak_memory_bytes",
    "device_memory_bytes",
    "device_utilization",
    "energy_joules",
    "plain_energy_joules",
    "epoch_time_s",
    "accuracy",
    "time_to_target_s",
    "oversubscribed",
    "rounds",
    "starts",
    "wall_time_s",
]


def test_markdown_escapes_what_would_break_a_row() -> None:
    table = Table("", "", (Column("a"), Column("b", right=True)), (("x|y", "two\nlines"),))
    assert to_markdown(table) == "| a | b |\n| :--- | ---: |\n| x\\|y | two lines |\n"
    assert to_markdown(Table("", "", (Column("a"),), ())) == ""


def test_what_is_in_a_cell_is_no_html() -> None:
    table = Table("", "", (Column("reason"),), (("<img src=x onerror=alert(1)> & 1 < 2",),))
    assert "| &lt;img src=x onerror=alert(1)&gt; &amp; 1 &lt; 2 |" in to_markdown(table)


def test_a_summary_of_a_name_with_commas_and_quotes_reads_back(tmp_path: Path) -> None:
    spec = study(knobs={"batch_size": [64]})
    name = 'the "fast" CPU, 2 GHz'
    records = [each.model_copy(update={"device_name": name}) for each in grid(spec, [1, 2])[0]]
    results = analyse(spec, records)
    file = tmp_path / "summary.csv"
    file.write_text(rows_csv(each.row() for each in results.summaries))
    rows = read_measured_csv(file).rows
    assert len(rows) == 2
    assert all(name in dict(row.context).values() for row in rows)


def test_latex_is_booktabs_and_escaped(wide: StudyResults) -> None:
    text = to_tex(make_sections(wide)["scaling"].tables[0], wide.study.name)
    label = r"\label{tab:a-rather-long-name-of-a-study}"
    for word in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"gradient\_as\_bucket\_view",
        r"\%",
        label,
        r"1.18$\times$ [",
    ):
        assert word in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert tex_escape(r"50% of A_1 & {x} \ #$~^") == (
        r"50\% of A\_1 \& \{x\} \textbackslash{} \#\$\textasciitilde{}\textasciicircum{}"
    )


def test_summary_has_the_columns_of_the_contract() -> None:
    spec = study(
        knobs={"batch_size": [64], "static_graph": [False, True]}, environment={"OMP_PROC_BIND": ["false"]}
    )
    results = analyse(spec, grid(spec, [1, 2])[0])
    rows = list(csv.DictReader(io.StringIO(rows_csv(each.row() for each in results.summaries))))
    place = CONTRACT.index("VARYING")
    assert list(rows[0]) == [*CONTRACT[:place], "static_graph", *CONTRACT[place + 1 :]]
    one, two = rows[0], rows[1]
    assert (one["world_size"], one["efficiency"], one["strategy"]) == ("1", "1", "single")
    assert one["exposed_communication_s"] == ""
    assert two["oversubscribed"] == "false"
    parts = ("ideal_s", "contention_s", "wrapper_s", "skew_s", "exposed_communication_s")
    assert sum(float(two[name]) for name in parts) == pytest.approx(float(two["step_time_s"]), rel=1e-6)
    assert two["baseline_world_size"] == "1"


def test_text_in_markdown_is_no_link() -> None:
    told = markdown_text("[x](javascript:alert(1)) <img src=x onerror=alert(1)>")
    assert told == r"[x]\(javascript:alert(1)) &lt;img src=x onerror=alert(1)&gt;"


def test_code_in_markdown_means_nothing_whatever_is_in_it() -> None:
    assert (
        markdown_code("model.py:31, in __init__: self.a = x*y*z")
        == "`model.py:31, in __init__: self.a = x*y*z`"
    )
    assert markdown_code("a `b` ``c``\nd") == "``` a `b` ``c`` d ```"


def test_what_latex_has_no_letter_for_is_said_in_ascii() -> None:
    assert tex_escape("a_b 5% µs") == r"a\_b 5\% $\mu$s"
    assert tex_escape("中") == "?"
