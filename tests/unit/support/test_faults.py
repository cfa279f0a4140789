"""When faults happen; that they happen is asked in tests/processes."""

from __future__ import annotations

from tests.support.planted.faults import schedule


def test_every_kind_comes_once_before_any_comes_again() -> None:
    planned = schedule(["a", "b", "c"], 8, 90, seed=3)
    assert planned == schedule(["a", "b", "c"], 8, 90, seed=3)
    assert [fault.at for fault in planned] == [10, 20, 30, 40, 50, 60, 70, 80]
    kinds = [fault.kind for fault in planned]
    assert set(kinds[:3]) == set(kinds[3:6]) == {"a", "b", "c"}
    assert len(set(kinds[6:])) == 2
