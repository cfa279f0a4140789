"""A factory that leaves, lies or fails before any worker starts: one line, never a silent end."""

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
from raybench.machine.resources import WorkerNeeds
from raybench.spec.load import resolve
from raybench.spec.workloads import FactorySpec
from raybench.workloads import check, num_samples, own_code

leave = os._exit

MODULE = """
import multiprocessing, os, sys
class Own:
    def __init__(self, given): self._given = given
    def model(self): pass
    def loss(self, model, batch): pass
    def dataset(self, split):
        if self._given == "exits": sys.exit(0)
        while self._given == "endless": pass
        if self._given == "raises": raise OSError("no file a\\udcff")
        return {"none": None, "iterator": iter([1]), "number": 3, "negative": Sized(-1),
                "huge": Sized(10**30), "typeless": Sized("3"), "fails": Sized(None),
                "points": Sized(3)}[self._given]
class Sized:
    def __init__(self, length): self._length = length
    def __getitem__(self, index): return index
    def __len__(self):
        if self._length is None: raise KeyboardInterrupt
        return self._length
class Sly:
    def __getattr__(self, name): raise SystemExit(3)
def build(given="", leaves="", sly=False):
    if leaves == "exit": sys.exit(0)
    if leaves == "interrupt": raise KeyboardInterrupt
    if leaves == "at once": os._exit(0)
    if leaves == "a child":
        child = multiprocessing.get_context("fork").Process(target=os._exit, args=(7,))
        child.start(); child.join()
        assert child.exitcode == 7
    return Sly() if sly else Own(given)
"""


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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"leaves": "exit"}, "hostile_factory:build raised SystemExit: 0"),
        ({"leaves": "interrupt"}, "hostile_factory:build raised KeyboardInterrupt"),
        ({"leaves": "at once"}, "hostile_factory:build raised SystemExit: os._exit(0)"),
        ({"sly": True}, "returned raised SystemExit: 3"),
        ({"name": "exits_when_imported:build"}, "importing exits_when_imported raised SystemExit: 0"),
        ({"given": "none"}, "is a map-style data set, with __len__ and __getitem__ (received a NoneType)"),
        ({"given": "iterator"}, "(received a list_iterator)"),
        ({"given": "number"}, "(received a int)"),
        ({"given": "exits"}, 'dataset("train") raised SystemExit: 0'),
        ({"given": "raises"}, r"raised OSError: no file a\udcff"),
        ({"given": "negative"}, 'dataset("train") raised ValueError'),
        ({"given": "huge"}, 'dataset("train") raised OverflowError'),
        ({"given": "typeless"}, 'dataset("train") raised TypeError'),
        ({"given": "fails"}, 'dataset("train") raised KeyboardInterrupt'),
    ],
)
def test_one_line_says_what_the_code_did(arguments: dict[str, Any], told: str, factory: Any) -> None:
    for look in (check, num_samples):
        with pytest.raises(RequestError) as refused:
            look(factory(**arguments), None)
        (line,) = refused.value.problems
        assert told in line
        assert line.startswith("workload")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "import torch\n\nimport torhc\n",
            "ModuleNotFoundError: No module named 'torhc' (own_train.py, line 3)",
        ),
        ("import torch\nfrom torch import nm\n", "(own_train.py, line 2)"),
        ("import own_parts\n", "No module named 'torhc' (own_parts.py, line 2)"),
        ("\nx = NAME\n", "NameError: name 'NAME' is not defined (own_train.py, line 2)"),
        ("\ndef build(:\n", "SyntaxError: invalid syntax (own_train.py, line 2)"),
    ],
    ids=["missing", "name", "deeper", "raises", "syntax"],
)
def test_a_fault_in_the_users_file_is_told_with_file_and_line(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_train.py").write_text(text)
    (tmp_path / "own_parts.py").write_text("\nimport torhc\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequestError) as refused:
        check(FactorySpec(factory="own_train:build"), None)
    (line,) = refused.value.problems
    assert line.startswith("workload.factory: importing own_train raised ")
    assert line.endswith(told)


@pytest.mark.parametrize("name", ["own_trian:build", "own_trian.parts:build"])
def test_a_file_that_is_not_there_is_no_fault_of_a_line(name: str) -> None:
    with pytest.raises(RequestError) as refused:
        check(FactorySpec(factory=name), None)
    told = f"workload.factory: a module that imports: No module named 'own_trian' (received '{name}')"
    assert refused.value.problems == (told,)


def test_a_process_that_the_code_starts_leaves_as_it_likes(factory: Any) -> None:
    check(factory(given="points", leaves="a child"), None)
    assert os._exit is leave


def test_code_that_does_not_come_back_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_code, "SILENT_S", 0.05)
    with own_code.fails_in_words('workload: dataset("train")'):
        time.sleep(0.3)
    told = 'workload: dataset("train") has not returned for 0.05 s (Ctrl-C ends it)\n'
    assert capfd.readouterr().err == told
    with own_code.fails_in_words("quick"):
        pass
    time.sleep(0.15)
    assert capfd.readouterr().err == ""


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
    handler, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    with own_code.ended_after(0.2, "measure.timeout_seconds"):
        with own_code.fails_in_words("workload: what comes back"):
            pass
        with pytest.raises(RequestError) as refused, own_code.fails_in_words("workload: dataset"):
            exec(compile(endless, "own_train.py", "exec"))
    assert time.monotonic() - began < 10
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
