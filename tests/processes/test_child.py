"""The user's code before any worker starts: in a process of its own, of which nothing stays."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.launch.readable import check_workload
from raybench.machine import child
from raybench.machine.child import Child, call_apart, folder_of
from raybench.machine.host import WorkerNeeds
from raybench.spec.load import resolve
from tests.processes.starting import LIMIT_S
from tests.support.planted.faults import until

FACTORY = """
import asyncio, os, signal, sys, threading, time, torch
class Own:
    def model(self): return torch.nn.Linear(2, 1)
    def loss(self, model, batch): return model(batch).mean()
    def batch(self, size, generator): return torch.ones(size, 2)
def build(does):
    if does == "all that must not stay":
        os.chdir("/")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ.clear()
        threading.Thread(target=time.sleep, args=(600,)).start()
        print("x" * 1_000_000)
        os.close(1)
        os.close(2)
    if does == "cancelled": raise asyncio.CancelledError("gone")
    if does == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if does == "thread leaves": threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(600)
    return Own()
"""
TOLD = {
    "cancelled": "raised CancelledError: gone (own_apart.py, line 16)",
    "killed": "own_apart:build ended its process: SIGKILL",
    "thread leaves": "own_apart:build ended its process: exit code 0",
}


@pytest.fixture
def looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Look at the workload of a study, as ``scaling`` does before it starts anything."""
    (tmp_path / "own_apart.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)

    def look(does: str) -> None:
        study = resolve({"name": "x", "workload": {"factory": "own_apart:build", "does": does}})
        check_workload(Cluster(), study, WorkerNeeds("cpu", 1))

    return look


def test_what_a_factory_does_to_its_process_does_not_stay(looked_at, capfd) -> None:
    before = Path.cwd(), dict(os.environ), signal.getsignal(signal.SIGINT), threading.enumerate()
    looked_at("all that must not stay")
    after = Path.cwd(), dict(os.environ), signal.getsignal(signal.SIGINT), threading.enumerate()
    assert after == before
    assert os.write(1, b".") == os.write(2, b".") == 1
    assert capfd.readouterr().out == "."  # what the code prints is on stderr
    assert "own_apart" not in sys.modules


@pytest.mark.parametrize("does", TOLD)
def test_however_a_factory_ends_it_is_one_line(does: str, looked_at) -> None:
    with pytest.raises(RequestError) as refused:
        looked_at(does)
    (line,) = refused.value.problems
    assert line.startswith("workload.factory: own_apart:build")
    assert TOLD[does] in line


def _leave_a_child(mark: str) -> int:
    left = os.fork()
    if not left:
        time.sleep(600)
    return left


def _never_back(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def _has_begun(mark: Path) -> bool:
    return mark.exists() and bool(mark.read_text())


def _is_there(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except FileNotFoundError:
        return False


def _is_gone(process: int) -> bool:
    return until(lambda: not _is_there(process), LIMIT_S)


def test_a_child_that_outlives_the_look_is_ended(tmp_path: Path) -> None:
    assert _is_gone(call_apart("a look", 60.0, _leave_a_child, str(tmp_path / "mark")))


def test_code_that_is_not_back_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setattr(child, "monotonic", lambda: 1060.5 if _has_begun(mark) else 1000.0)
    with pytest.raises(RequestError, match="a look has not returned in 60 s"):
        call_apart("a look", 60.0, _never_back, str(mark))
    assert _is_gone(int(mark.read_text()))


def test_it_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    mark, asking = tmp_path / "mark", os.fork()
    if not asking:
        try:
            call_apart("a look", 60.0, _never_back, str(mark))
        finally:
            os._exit(0)
    assert until(lambda: _has_begun(mark), 4 * LIMIT_S)
    os.kill(asking, signal.SIGKILL)
    os.waitpid(asking, 0)
    assert _is_gone(int(mark.read_text()))


def _waits(end: Any) -> None:
    end.recv()


def test_whoever_ends_a_child_knows_the_folder_that_goes_with_it(tmp_path: Path) -> None:
    started = Child(_waits, folder=str(tmp_path))
    try:
        assert folder_of(psutil.Process(started._process.pid).cmdline()) == str(tmp_path)
    finally:
        started.close()
    assert folder_of(psutil.Process().cmdline()) == ""
