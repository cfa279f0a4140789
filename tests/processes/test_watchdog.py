"""The watchdog ends a process that takes too long, even one that holds the GIL."""

from __future__ import annotations

from raybench.worker.watchdog import EXIT_CODE
from tests.processes.starting import Done, Ready

SLEEPS = "import time; time.sleep(30)"
LONG_REGEX = "import re; re.match('(a*)*b', 'a' * 40)"


def _run(body: str, ready: Ready) -> Done:
    watched = f"with watchdog(0.5, 'trial 0123'):\n    {body}\nprint('through')\n"
    return ready.run(f"from raybench.worker.watchdog import watchdog\n{watched}")


def test_a_process_that_sleeps_is_ended_with_the_reason(bare: Ready) -> None:
    done = _run(SLEEPS, bare)
    assert (done.returncode, done.stdout) == (EXIT_CODE, "")
    assert "trial 0123 took over 0.5 s" in done.stderr
    assert "most recent call first" in done.stderr  # where it hung


def test_a_process_that_holds_the_gil_is_ended_too(bare: Ready) -> None:
    done = _run(LONG_REGEX, bare)
    assert (done.returncode, done.stdout) == (1, "")  # faulthandler's
    assert "Timeout" in done.stderr
    assert "most recent call first" in done.stderr
