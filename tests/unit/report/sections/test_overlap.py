"""What the traces say stands beside what the stopwatch says, or why there is none."""

from __future__ import annotations

from typing import Any

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.records.results import TracedRank
from raybench.report.sections.overlap import overlap_table
from raybench.report.table import NONE
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


def of(*records: TrialRecord) -> StudyResults:
    return analyse(study(knobs={"batch_size": [256]}), records)


def scaling(**fields: Any) -> TrialRecord:
    return measured(SIXTEEN_TENTHS, setting=Setting(batch_size=256), **fields)


def test_the_traces_beside_the_stopwatch() -> None:
    record = with_result(scaling(measure=PROFILED), profile=TRACES)
    table = overlap_table(of(record))
    assert [row[2:4] for row in table.rows] == [
        ("step", "13.0 (12.0 to 14.0)"),
        ("transfers", "4.50 (4.00 to 5.00)"),
        ("transfers that are hidden", "2.00 (1.00 to 3.00)"),
        ("communication (not hidden)", "2.50 (1.00 to 4.00)"),
    ]
    assert {row[4] for row in table.rows} == {"3 x 2"}
    exposed = table.rows[-1][5]
    assert 0.8 < float(exposed.split()[0]) < 1.2  # as planted: 1 ms
    assert f"traces/{record.trial_id}/" in table.caption


def test_a_profile_without_all_variants_has_the_figures_of_its_setting() -> None:
    """Of a search's trial, whose setting has a curve; alone it has none to stand against."""
    searched = with_result(
        scaling(role="search", measure=PROFILED, variants=("ddp", "anchor"), anchor=Setting()),
        profile=TRACES,
    )
    lines = overlap_table(of(scaling(), searched)).rows
    (exposed,) = (row for row in lines if row[2].startswith("communication"))
    assert NONE not in exposed
    alone = overlap_table(of(searched)).rows[-1]
    assert alone[3] != NONE
    assert alone[5:] == (NONE, NONE)


def test_a_profile_that_could_not_be_had_says_why() -> None:
    table = overlap_table(of(with_result(scaling(measure=PROFILED), missing={"profile": "planted"})))
    assert {row[3] for row in table.rows} == {NONE}
    assert "no profile: planted." in table.caption


def test_one_device_communicates_nothing() -> None:
    record = with_result(scaling(measure=PROFILED, world_size=1), profile=TRACES[:1])
    assert [row[2] for row in overlap_table(of(record)).rows] == ["step"]


def test_nothing_where_nothing_was_asked_for() -> None:
    assert overlap_table(of(scaling())).rows == ()


def test_a_profile_stays_where_its_setting_was_visited_again() -> None:
    """The second visit has none; the stopwatch is that of both."""
    first = with_result(scaling(measure=PROFILED), profile=TRACES, missing={"memory_snapshot": "planted"})
    again = scaling(visit=1)
    results = of(first, again)
    table = overlap_table(results)
    assert table.rows[0][3] == "13.0 (12.0 to 14.0)"
    assert f"traces/{first.trial_id}/" in table.caption
    assert "no memory snapshot: planted" in table.caption
    (traced,) = results.profiled
    assert traced.waterfall == results.waterfalls[again.trial_id]
    assert traced.waterfall is not None
