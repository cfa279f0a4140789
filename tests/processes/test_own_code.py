"""A factory that never comes back: the command ends in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.errors import RequestError
from raybench.launch import readable
from raybench.launch.cluster import Cluster
from raybench.machine.host import WorkerNeeds
from raybench.spec.load import resolve


def test_a_study_ends_what_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless_factory.py").write_text("def build():\n    while True: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(readable, "STARTS_S", 0.1)
    monkeypatch.setattr(readable, "MOST_CALLS", 1)
    study = resolve(
        {
            "name": "x",
            "workload": {"factory": "endless_factory:build"},
            "measure": {"max_seconds": 0.1, "timeout_seconds": 0.3},
        }
    )
    with pytest.raises(RequestError, match=r"endless_factory:build has not returned in 0\.4 s"):
        readable.check_workload(Cluster(), study, WorkerNeeds("cpu", 1))
