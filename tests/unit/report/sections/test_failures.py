"""Trials without numbers, and why."""

from __future__ import annotations

from raybench.analysis.results import StudyResults
from raybench.report.sections.trials import failures_table
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.unit.studies import asked, failed, study


def test_every_failure_has_its_state_and_reason(wide: StudyResults) -> None:
    assert all(row[4] == "oom" and "out of memory" in row[5] for row in failures_table(wide).rows)
    assert len(failures_table(wide).rows) == len(wide.failed) > 0


def test_one_setting_that_failed_in_two_trials_has_two_roles() -> None:
    """The search's and the curve's: else it looks like one trial told twice."""
    spec = study(knobs={"batch_size": [64, 128]}, search={"method": "optuna", "trials": 2})
    requests = [asked(spec, role, Setting(batch_size=64), 2) for role in ("search", "scaling")]
    results = analyse(spec, [failed(each) for each in requests])
    assert [row[2] for row in failures_table(results).rows] == ["search", "scaling"]
