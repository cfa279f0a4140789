"""A factory that never comes back: what it does is named, and the command ends in a line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raybench.errors import RequestError
from raybench.launch import readable
from raybench.launch.cluster import Cluster
from raybench.machine.host import WorkerNeeds
from raybench.spec.load import resolve
from raybench.workloads import user_code
from tests.processes.starting import LIMIT_S
from tests.support.planted.faults import until


def test_code_that_does_not_come_back_is_named_with_its_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "SILENT_S", 0.05)
    told: list[str] = []
    with user_code.fails_in_words('workload: dataset("train")'):
        assert until(lambda: told.append(capfd.readouterr().err) or "".join(told).endswith("\n"), LIMIT_S)
    line = "".join(told)
    assert line.startswith('workload: dataset("train") has not returned for 0.05 s, now at ')
    assert line.endswith(" (Ctrl-C ends it)\n")
    monkeypatch.setattr(user_code, "SILENT_S", 10 * LIMIT_S)
    with user_code.fails_in_words("quick"):
        (late,) = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    late.join(LIMIT_S)
    assert not late.is_alive()  # it has nothing to say any more


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
