"""No unit test starts a process or sleeps; studies that the tests of tables and of plots both read."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

import matplotlib.font_manager  # asks fc-list for the fonts, once
import pytest
import torch  # asks ldconfig where its libraries are, once

from raybench.analysis.results import StudyResults
from raybench.analysis.stats import pool
from raybench.machine import environment
from raybench.report import plot as drawing
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import FakeHardware, FakeRunner
from tests.unit.studies import grid, searched, study, trained

assert torch
assert matplotlib.font_manager
HERE = Path(__file__).parent
EMPTY = {"png": b"\x89PNG\r\n\x1a\n", "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>'}
# Elsewhere a pool takes its spreads as known, in one solution in place of hundreds: hardly anything asks how
# wide an interval is.
FITTED = {
    HERE / "analysis" / "stats",
    HERE / "analysis" / "findings" / "test_causes.py",
    HERE / "analysis" / "test_selection.py",
    HERE / "analysis" / "test_comparison.py",
}
RULE = "a unit test starts no process and does not sleep: see tests/processes"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """From the setup of a test to its end, what would start a process or sleep fails it.

    ``capture`` asks git for the commit: that is asked once, in tests/processes/test_environment.py.
    """
    if HERE not in item.path.parents:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", _refusal("subprocess.Popen"))
        patch.setattr(multiprocessing.process.BaseProcess, "start", _refusal("Process.start"))
        patch.setattr(os, "fork", _refusal("os.fork"))
        for module in [time, *(each for name, each in sys.modules.items() if name.startswith("raybench."))]:
            if vars(module).get("sleep") is _SLEEP:
                patch.setattr(module, "sleep", _AWAKE)
        patch.setattr(environment, "_checkout", lambda: (None, None))
        if "pictures" not in item.fixturenames:
            patch.setattr(drawing, "saved", _not_drawn)
        if FITTED.isdisjoint({item.path, *item.path.parents}):
            patch.setattr(pool, "NODES", (0.0,))
        return (yield)


@pytest.fixture(scope="session")
def pictures() -> None:
    """What is drawn is drawn: else a picture is an empty one, which takes no time."""


def _not_drawn(figure: Any, kind: str) -> bytes:
    return EMPTY[kind]


def _awake(sleep: Callable[[float], None]) -> Callable[[float], None]:
    """A sleep for the threads of libraries alone."""

    def in_threads_only(seconds: float) -> None:
        if seconds and threading.current_thread() is threading.main_thread():
            _refusal("time.sleep")()
        sleep(seconds)

    return in_threads_only


_AWAKE, _SLEEP = _awake(time.sleep), time.sleep


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        pytest.fail(f"{name}: {RULE}")  # no Exception, so nothing that is tested catches it

    return refuse


@pytest.fixture(scope="session")
def results() -> StudyResults:
    """A search on two devices, its winner confirmed."""
    spec = study(
        knobs={"batch_size": [512, 32, 128], "precision": ["fp32", "bf16"]},
        search={"method": "optuna", "trials": 6},
    )
    return analyse(spec, searched(spec, (1, 2), Setting(batch_size=512, precision="bf16")))


@pytest.fixture(scope="session")
def wide() -> StudyResults:
    """A grid on eight devices: eight long settings with a straggler, four more that are out of memory."""
    spec = study(
        name="a_rather_long_name_of_a_study",
        knobs={
            "batch_size": [64, 256, 2048],
            "static_graph": [False, True],
            "gradient_as_bucket_view": [False, True],
        },
    )
    costs = FakeHardware(offset_s=(0, 0, 0, 0.002), jitter_s=0.001).costs
    runner = FakeRunner(costs, seed=4, memory_limit_bytes=(1 << 30) + (1 << 29))
    return analyse(spec, grid(spec, (1, 2, 4, 8), runner)[0])


@pytest.fixture(scope="session")
def trained_results() -> StudyResults:
    """Four epochs with three seeds on one device and on two, and nothing else."""
    spec = study(
        workload={"name": "vision", "input": "real"},
        training={"epochs": 4, "seeds": 3, "target_accuracy": 0.7},
    )
    return analyse(spec, trained(spec, (1, 2)))
