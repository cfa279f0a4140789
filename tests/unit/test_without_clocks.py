"""Unit tests start nothing, wait for nothing and read no clock: what does so is in tests/processes.

conftest.py refuses it while a test runs; here the tests are read, for what they would do in a thread.
"""

from __future__ import annotations

import ast
from pathlib import Path

import psutil
import pytest

from tests.support.planted.faults import until

HERE = Path(__file__).parent
MODULES = {"subprocess", "multiprocessing", "concurrent", "pty"}
CLOCKS = {
    "sleep",
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "process_time",
    "thread_time",
}


def breaches(code: str) -> list[str]:
    """The lines that import what starts processes, or take a clock from ``time``."""
    found = []
    for node in ast.walk(ast.parse(code)):
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names if each.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            taken = {each.name for each in node.names}
            names = [module] if module.partition(".")[0] in MODULES else []
            names += [f"time.{each}" for each in taken & CLOCKS if module == "time"]
            names += ["os.fork"] if module == "os" and "fork" in taken else []
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            names = [name] if name in {*(f"time.{each}" for each in CLOCKS), "os.fork"} else []
        found += [f"line {node.lineno}: {name}" for name in names]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("import subprocess", 1),
        ("from multiprocessing import get_context", 1),
        ("import time\ntime.sleep(0.1)\nbegan = time.perf_counter()", 2),
        ("from time import monotonic as now", 1),
        ("from concurrent.futures import ProcessPoolExecutor", 1),
        ("import os\nos.fork()", 1),
        ("import threading, time\ntime.strftime('%Y')", 0),
    ],
)
def test_a_breach_is_seen(code: str, number: int) -> None:
    assert len(breaches(code)) == number


def test_no_unit_test_starts_a_process_sleeps_or_reads_the_clock() -> None:
    found = {str(path.relative_to(HERE)): breaches(path.read_text()) for path in HERE.rglob("*.py")}
    found.pop("conftest.py")  # it refuses them
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_process_and_a_sleep_are_refused_while_a_test_runs() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"subprocess\.Popen: a unit test"):
        psutil.Popen(["true"])
    with pytest.raises(pytest.fail.Exception, match=r"time\.sleep: a unit test"):
        until(lambda: False, 60)
