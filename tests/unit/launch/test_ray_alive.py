"""A process of Ray's that dies ends the run where a signal would."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from raybench.errors import RayDiedError
from raybench.launch import ray_alive, signals
from raybench.testing.faults import until


@contextmanager
def raylet(folder: Path) -> Iterator[psutil.Popen]:
    """A child that is called so."""
    program = folder / "raylet"
    shutil.copy(shutil.which("sleep") or "", program)
    child = psutil.Popen([str(program), "60"])
    try:
        assert until(lambda: child.name() == "raylet", 10)
        yield child
    finally:
        if child.is_running():
            child.kill()
        child.wait()


def test_a_death_is_raised_once_where_it_is_safe(tmp_path: Path) -> None:
    with raylet(tmp_path) as child:
        watch = ray_alive.RayAlive()
        watch.watch_children()
        signals.check()
        child.kill()  # it stays a zombie: nobody asks how it ended
        assert until(lambda: signals._asked is not None, 10)
        with pytest.raises(RayDiedError, match=r"^Ray's raylet died$"):
            signals.check()
        signals.check()
        watch.stop()


def test_what_is_ended_on_purpose_is_no_death(tmp_path: Path) -> None:
    with raylet(tmp_path) as child:
        watch = ray_alive.RayAlive()
        watch.watch_children()
        watch.stop()
        watch.stop()
        child.kill()
        child.wait()
    signals.check()


def test_a_head_that_is_silent_for_long_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_alive, "LOOK_AT_HEAD_S", 0.02)
    monkeypatch.setattr(ray_alive, "SILENT_S", 0.5)
    watch = ray_alive.RayAlive()
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        watch.watch_head(address)
        time.sleep(1.0)
        signals.check()  # it answers
    gone = time.monotonic()
    assert until(lambda: signals._asked is not None, 10)
    assert time.monotonic() - gone >= 0.4  # a break as short as this ends nothing
    with pytest.raises(RayDiedError, match=rf"^the head of the cluster, {address}, has not answered for"):
        signals.check()
    watch.stop()


def test_a_head_that_comes_back_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_alive, "LOOK_AT_HEAD_S", 0.02)
    monkeypatch.setattr(ray_alive, "SILENT_S", 5.0)
    watch = ray_alive.RayAlive()
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        watch.watch_head(f"127.0.0.1:{port}")
        time.sleep(0.1)
    time.sleep(0.3)
    with socket.create_server(("127.0.0.1", port)):
        time.sleep(0.3)
        watch.stop()
    signals.check()
