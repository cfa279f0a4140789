"""The watchdog ends a process that takes too long, even one that holds the GIL; in time it does nothing."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from raybench.worker.watchdog import EXIT_CODE

SLEEPS = "import time; time.sleep(30)"
HOLDS_THE_GIL = "import ctypes; ctypes.PyDLL(None).sleep(30)"
LONG_REGEX = "import re; re.match('(a*)*b', 'a' * 40)"


def _run(body: str, timeout_s: float) -> tuple[int, str, float]:
    code = (
        "from raybench.worker.watchdog import Watchdog\n"
        f"with Watchdog({timeout_s}, 'trial 0123'):\n    {body}\nprint('through')\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25)
    return done.returncode, done.stderr + done.stdout, time.monotonic() - began


def test_a_process_that_sleeps_is_ended_with_the_reason() -> None:
    code, text, seconds = _run(SLEEPS, 0.5)
    assert code == EXIT_CODE
    assert "trial 0123 took over 0.5 s" in text
    assert "most recent call first" in text  # where it hung
    assert seconds < 15


@pytest.mark.parametrize("body", [HOLDS_THE_GIL, LONG_REGEX])
def test_a_process_that_holds_the_gil_is_ended_too(body: str) -> None:
    code, text, seconds = _run(body, 0.5)
    assert code == 1  # faulthandler's
    assert "Timeout" in text
    assert "most recent call first" in text
    assert seconds < 15


def test_called_off_in_time_it_does_nothing() -> None:
    code, text, _ = _run("pass", 0.3)
    assert (code, text) == (0, "through\n")
    body = "pass\nimport time; time.sleep(3)"  # past both deadlines, after the context
    code, text, _ = _run(body, 0.3)
    assert (code, text) == (0, "through\n")


def test_it_is_called_off_by_an_exception_as_well() -> None:
    body = (
        "pass\nimport time\ntry:\n    with Watchdog(0.3, 'trial 4567'):\n        raise ValueError\n"
        "except ValueError:\n    time.sleep(3)"
    )
    code, text, _ = _run(body, 60)
    assert (code, text) == (0, "through\n")
