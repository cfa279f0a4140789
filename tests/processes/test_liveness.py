"""A process of Ray's that dies ends the run where a signal would."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from raybench.errors import RayDiedError
from raybench.launch import liveness, signals
from tests.processes.starting import LIMIT_S
from tests.support.planted.faults import until

WATCHER = "raybench-ray-alive"  # the name of its threads


@contextmanager
def raylet(folder: Path) -> Iterator[psutil.Popen]:
    """A child that is called so."""
    program = folder / "raylet"
    shutil.copy(shutil.which("sleep") or "", program)
    child = psutil.Popen([str(program), "60"])
    try:
        assert until(lambda: child.name() == "raylet", LIMIT_S)
        yield child
    finally:
        if child.is_running():
            child.kill()
        child.wait()


def test_a_death_is_raised_once_where_it_is_safe(tmp_path: Path) -> None:
    with raylet(tmp_path) as child:
        watch = liveness.RayAlive()
        watch.watch_children()
        signals.check()
        child.kill()  # it stays a zombie: nobody asks how it ended
        assert until(lambda: signals._asked is not None, LIMIT_S)
        with pytest.raises(RayDiedError, match=r"^Ray's raylet died$"):
            signals.check()
        signals.check()
        watch.stop()


def test_what_is_ended_on_purpose_is_no_death(tmp_path: Path) -> None:
    with raylet(tmp_path) as child:
        watch = liveness.RayAlive()
        watch.watch_children()
        watch.stop()
        watch.stop()
        child.kill()
        child.wait()
        assert until(lambda: not any(each.name == WATCHER for each in threading.enumerate()), LIMIT_S)
        signals.check()
