"""Every trial with its interval and its n."""

from __future__ import annotations

from raybench.analysis.results import StudyResults, analyse
from raybench.records.requests import Configuration
from raybench.report.sections.scaling import overheads_table, scaling_table
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import SIXTEEN_TENTHS, exactly, exactly_strong, grid, planted, study


def test_every_number_has_interval_and_n(results: StudyResults) -> None:
    table = scaling_table(results)
    assert table.columns[-1].heading == "n"
    for row in table.rows:
        assert "[" in row[2]
        assert "[" in row[3]
        assert int(row[-1]) >= 10
    assert [row[0] for row in table.rows] == ["1", "2", "1", "2"]


def test_where_other_rounds_were_slower_each_row_has_its_own_base() -> None:
    """Who divides two rows finds the speed-up that stands there, or the base that it is over."""
    for slower, is_told in ((1.0, True), (1.2, False)):
        costs = {("default",): exactly(0.8, 0.01), (1,): exactly(0.8, slower * 0.01)}
        table = scaling_table(planted(costs, "bucket_cap_mb"))
        headings = [column.heading for column in table.columns]
        assert ("one device then, samples/s" not in headings) is is_told
        assert ("One device then" not in table.caption) is is_told
        for row in table.rows if not is_told else ():
            if row[0] == "2":
                rate, base = (float(row[place].split()[0].replace(",", "")) for place in (3, 4))
                assert f"{rate / base:.2f}x" in row[5]


def test_overheads_stand_side_by_side_with_intervals() -> None:
    found = planted({(32,): SIXTEEN_TENTHS}, "batch_size")
    (row,) = overheads_table(found).rows
    assert tuple(cell.replace(".0%", "%").replace(".0,", ",").replace(".0]", "]") for cell in row[2:6]) == (
        "2.50 [2.50, 2.50]",
        "20% [20, 20]",
        "1.00 [1.00, 1.00]",
        "8% [8, 8]",
    )


def test_what_further_devices_bring_stands_by_each_doubling_in_weak_scaling() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return exactly({1: 1.0, 2: 0.9, 4: 0.8}[config.world_size])

    spec = study(knobs={"batch_size": [32]})
    table = scaling_table(analyse(spec, grid(spec, (1, 2, 4), FakeRunner(costs, QUIET))[0]))
    (place,) = (place for place, each in enumerate(table.columns) if each.heading == "a further device")
    assert [row[place] for row in table.rows] == [
        "",
        "80% [80, 80] (1 to 2)",
        "70% [70, 70] (2 to 4)",
    ]
    two = scaling_table(analyse(spec, grid(spec, (1, 2), FakeRunner(costs, QUIET))[0]))
    assert "a further device" not in [each.heading for each in two.columns]  # efficiency says the same


def test_amdahls_fraction_is_of_strong_scaling() -> None:
    for mode, is_there in (("weak", False), ("strong", True)):
        table = overheads_table(planted({(32,): exactly_strong(0.8)}, "batch_size", scaling={"mode": mode}))
        assert ("Amdahl's f" in [each.heading for each in table.columns]) is is_there
