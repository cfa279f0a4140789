"""A factory that starts processes, never comes back, or is found from anywhere."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.launch.readable import check_workload
from raybench.machine.host import WorkerNeeds
from raybench.spec.load import resolve
from raybench.spec.workloads import FactorySpec
from raybench.workloads import check, own_code
from tests.processes.starting import LIMIT_S
from tests.support.planted.faults import until
from tests.unit.workloads.test_own_code import MODULE

leave = os._exit


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "hostile_factory.py").write_text(MODULE)
    (tmp_path / "exits_when_imported.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str = "hostile_factory:build", **arguments: Any) -> FactorySpec:
        return FactorySpec.model_validate({"factory": name, "input": "real", **arguments})

    yield make
    for name in ("hostile_factory", "exits_when_imported"):
        sys.modules.pop(name, None)


def test_a_process_that_the_code_starts_leaves_as_it_likes(factory: Any) -> None:
    check(factory(given="points", leaves="a child"), None)
    assert os._exit is leave


def test_code_that_does_not_come_back_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "SILENT_S", 0.05)
    told: list[str] = []
    with own_code.fails_in_words('workload: dataset("train")'):
        assert until(lambda: told.append(capfd.readouterr().err) or "".join(told).endswith("\n"), LIMIT_S)
    assert "".join(told) == 'workload: dataset("train") has not returned for 0.05 s (Ctrl-C ends it)\n'
    monkeypatch.setattr(own_code, "SILENT_S", 10 * LIMIT_S)
    with own_code.fails_in_words("quick"):
        (late,) = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    late.join(LIMIT_S)
    assert not late.is_alive()  # it has nothing to say any more


@pytest.mark.parametrize(
    "endless",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "while True:\n  try: 1 / 0\n  except Exception: pass",
    ],
    ids=["loop", "sleep", "catches"],
)
def test_code_that_never_comes_back_is_ended_after_the_time_of_a_trial(endless: str) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    limit = own_code.ended_after(LIMIT_S, "measure.timeout_seconds")
    with limit, own_code.fails_in_words("workload: what comes back"):
        pass
    limit, called = own_code.ended_after(0.2, "measure.timeout_seconds"), "workload: dataset"
    with limit, pytest.raises(RequestError) as refused, own_code.fails_in_words(called):
        exec(compile(endless, "own_train.py", "exec"))
    (line,) = refused.value.problems
    told = "workload: dataset has not returned in 0.2 s, of measure.timeout_seconds (own_train.py, line "
    assert line.startswith(told)
    assert signal.getsignal(signal.SIGALRM) is handler


def test_another_thread_is_not_ended() -> None:
    failed = list[BaseException]()

    def call() -> None:
        try:
            with own_code.ended_after(0.05, "measure.timeout_seconds"), own_code.fails_in_words("workload"):
                time.sleep(0.2)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert failed == []


def test_a_study_ends_what_does_not_come_back(factory: Any) -> None:
    spec = factory(given="endless")
    study = resolve(
        {
            "name": "x",
            "workload": spec.model_dump(),
            "training": {"epochs": 1, "seeds": 1},
            "measure": {"max_seconds": 0.1, "timeout_seconds": 0.3},
        }
    )
    with pytest.raises(RequestError, match=r'dataset\("train"\) has not returned in 0.3 s'):
        check_workload(Cluster(), study, WorkerNeeds("cpu", 1))
