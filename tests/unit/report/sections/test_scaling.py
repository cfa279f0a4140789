"""Every trial with its interval and its n."""

from __future__ import annotations

import re

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.report.sections.scaling import STATUS_WORDS, _serial_fraction, overheads_table, scaling_table
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET
from tests.unit.studies import (
    SIXTEEN_TENTHS,
    exactly,
    exactly_strong,
    measured,
    planted,
    study,
    without_intervals,
)


def test_every_number_has_interval_and_n(results: StudyResults) -> None:
    table = scaling_table(results)
    headings = [each.heading for each in table.columns]
    assert headings[-2:] == ["in another run", "status"]
    assert len(headings) <= 8
    for row in table.rows:
        assert "[" in row[2]
        assert "[" in row[3]
        assert bool(row[-2]) is (row[0] == "2")  # one device's efficiency is 1 in every run
    assert re.search(r"n = \d+ to \d+ rounds in 1 to \d+ visits, spread over the study\.", table.caption)
    assert [row[0] for row in table.rows][:4] == ["1", "2", "1", "2"]


def test_every_row_divides_by_the_one_device_that_stands_in_the_table() -> None:
    """Whoever divides two rows finds the speed-up that stands there."""
    costs = {("default",): exactly(0.8, 0.01), (1,): exactly(0.7, 0.01)}
    rows = scaling_table(planted(costs, "bucket_cap_mb")).rows
    rates = [float(row[3].split()[0].replace(",", "")) for row in rows]
    assert [row[0] for row in rows] == ["1", "2", "2"]
    for row, rate in zip(rows[1:], rates[1:], strict=True):
        assert without_intervals(row[4]) == f"{rate / rates[0]:.2f}x"


def test_overheads_stand_side_by_side_with_intervals() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    (row,) = overheads_table(found).rows
    figures = [without_intervals(cell).replace(".0%", "%") for cell in row[2:6]]
    assert figures == ["2.50", "20%", "1.00", "8%"]


def test_amdahls_fraction_and_its_limit_are_of_strong_scaling() -> None:
    """1.6 times as fast on two devices: f is a quarter, the limit four times as fast as one.

    Under weak scaling the same work is not done by one device: there the returns of each device say it.
    """
    (row,) = overheads_table(
        planted({(32,): exactly_strong(0.8)}, "batch_size", scaling={"mode": "strong"})
    ).rows
    assert [without_intervals(cell) for cell in row[-2:]] == ["25%", "4.00x"]
    table = overheads_table(planted({(32,): exactly(0.8)}, "batch_size", scaling={"mode": "weak"}))
    assert "Amdahl" not in table.caption + " ".join(each.heading for each in table.columns)


def test_gpus_have_their_mfu_over_both_peaks_and_their_status() -> None:
    """An H100 at a fifth of the 989 TFLOP/s of its data sheet; of other GPUs the measured peak is known."""
    spec = study(knobs={"batch_size": [32], "precision": ["bf16"]}, resources={"device": "cuda"})
    record = measured(
        SIXTEEN_TENTHS, QUIET, device="cuda", setting=Setting(batch_size=32, precision="bf16"), world_size=1
    )
    assert record.steps is not None
    told = {"flops_per_step": 0.2 * 989e12 * 0.010, "matrix_peak_flops_per_s": 0.5 * 989e12}
    result = record.steps.model_copy(update=told)
    shown = {}
    for name in ("NVIDIA H100 80GB HBM3", "another"):
        told_of = record.model_copy(update={"result": result, "device_name": name})
        table = scaling_table(analyse(spec, [told_of]))
        (row,) = table.rows
        shown[name] = dict(zip((each.heading for each in table.columns), row, strict=True))
    assert shown["NVIDIA H100 80GB HBM3"]["MFU"] == "40.0% (20.0%)"
    assert shown["another"]["MFU"] == "40.0%"
    assert shown["another"]["status"] == "baseline"
    assert STATUS_WORDS in table.caption
    assert len(table.columns) <= 8


def test_tokens_of_a_sample_are_said_where_there_are_any() -> None:
    record = measured(SIXTEEN_TENTHS, setting=Setting(batch_size=32))
    assert record.steps is not None
    steps = record.steps.model_copy(update={"tokens_per_step": 128 * record.steps.samples_per_step})
    spec = study(knobs={"batch_size": [32]})
    told = scaling_table(analyse(spec, [record.model_copy(update={"result": steps})])).caption
    assert "A sample has 128 tokens." in told
    assert "tokens" not in scaling_table(analyse(spec, [record])).caption


def test_a_serial_fraction_is_a_share_or_said_to_be_none() -> None:
    """No speed-up below 1 has a serial fraction: 176% is not one."""
    assert _serial_fraction(Estimate(0.2, -0.1, 0.5, 9)) == "20% [-10, 50]"
    assert _serial_fraction(Estimate(0.9, 0.7, 1.1, 9)) == "90% [70, 110]"
    for value in (1.76, -0.1):
        assert _serial_fraction(Estimate(value, value - 0.1, value + 0.1, 9)) == "not defined"
