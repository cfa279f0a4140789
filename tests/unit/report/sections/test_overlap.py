"""What the traces say, or why there are none."""

from __future__ import annotations

from typing import Any

from raybench.analysis import analyse
from raybench.records.record import TrialRecord
from raybench.records.results import TracedRank
from raybench.report.sections.overlap import overlap_table
from raybench.report.table import NONE, Table
from raybench.spec import Setting
from raybench.spec.study import MeasureSpec
from tests.unit.studies import SIXTEEN_TENTHS, measured, study

PROFILED = MeasureSpec(half_width=0.02, profile=True)
# of 3 steps on each rank: 12 and 14 ms each, of which 4 and 5 ms of transfers, 3 and 1 of them hidden
TRACES = (
    TracedRank(rank=0, num_steps=3, steps_s=0.036, compute_s=0.030, communication_s=0.012, both_s=0.009),
    TracedRank(rank=1, num_steps=3, steps_s=0.042, compute_s=0.030, communication_s=0.015, both_s=0.003),
)


def with_result(record: TrialRecord, **changed: Any) -> TrialRecord:
    assert record.steps is not None
    return record.model_copy(update={"result": record.steps.model_copy(update=changed)})


def table_of(*records: TrialRecord) -> Table:
    return overlap_table(analyse(study(knobs={"batch_size": [256]}), records))


def scaling(**fields: Any) -> TrialRecord:
    return measured(SIXTEEN_TENTHS, setting=Setting(batch_size=256), **fields)


def test_a_step_and_its_transfers_over_the_ranks() -> None:
    record = with_result(scaling(measure=PROFILED), profile=TRACES)
    table = table_of(record)
    (row,) = table.rows
    assert row[2:-1] == (
        "13.0 (12.0 to 14.0)",
        "4.50 (4.00 to 5.00)",
        "2.00 (1.00 to 3.00)",
        "2.50 (1.00 to 4.00)",
    )
    assert row[-1] == f"traces/{record.trial_id}/"


def test_a_profile_that_could_not_be_had_says_why() -> None:
    table = table_of(with_result(scaling(measure=PROFILED), missing={"profile": "planted"}))
    assert table.rows[0][2:-1] == (NONE,) * 4
    assert "no profile: planted." in table.caption


def test_one_device_communicates_nothing() -> None:
    (row,) = table_of(with_result(scaling(measure=PROFILED, world_size=1), profile=TRACES[:1])).rows
    assert row[2:-1] == ("12.0 (12.0 to 12.0)", NONE, NONE, NONE)


def test_nothing_where_nothing_was_asked_for() -> None:
    assert table_of(scaling()).rows == ()


def test_a_profile_stays_where_its_setting_was_visited_again() -> None:
    """The second visit has none."""
    first = with_result(scaling(measure=PROFILED), profile=TRACES, missing={"profile": "planted"})
    table = table_of(first, scaling(visit=1))
    assert [row[2] for row in table.rows] == ["13.0 (12.0 to 14.0)"]
    assert table.rows[0][-1] == f"traces/{first.trial_id}/"
    assert "no profile: planted." in table.caption
