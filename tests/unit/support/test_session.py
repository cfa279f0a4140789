"""What a session of tests does not let pass: a skip that is not allowed, more starts than the budget has."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import BUSY, pytest_make_collect_report, pytest_runtest_makereport
from tests.support import budget


def reported(reason: str, hooks: Any = pytest_runtest_makereport) -> str:
    """The outcome of a test that was skipped, or of a module."""
    where = "tests/test_it.py::test_it"
    report: Any = SimpleNamespace(nodeid=where, skipped=True, longrepr=("file", 1, reason), outcome="skipped")
    hook = hooks()
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    return str(report.outcome)


@pytest.mark.parametrize("reason", ["needs a GPU for each of 2 ranks", "no pdflatex", f"{BUSY}: 0.4 cores"])
def test_what_may_skip_is_skipped(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBENCH_CI", "1")
    assert reported(f"Skipped: {reason}") == "skipped"


def test_any_other_skip_fails_where_all_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBENCH_CI", "1")
    assert reported("Skipped: no real data") == "failed"
    assert reported("Skipped: could not import 'ray'", pytest_make_collect_report) == "failed"
    monkeypatch.delenv("RAYBENCH_CI")
    assert reported("Skipped: no real data") == "skipped"


def test_one_start_more_than_the_budget_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(budget.FILE, "somewhere")
    most = budget.AT_MOST[budget.CLUSTERS]
    monkeypatch.setattr(budget, "TAKEN", {kind: Counter[str]() for kind in budget.AT_MOST})
    for _ in range(most):
        budget.took(budget.CLUSTERS)
    assert budget.exceeded() == []
    budget.took(budget.CLUSTERS)
    assert budget.exceeded() == [budget.CLUSTERS]
    assert budget.counted()[0].startswith(f"Ray clusters: {most + 1} of {most} ({most + 1} tests/unit/")
