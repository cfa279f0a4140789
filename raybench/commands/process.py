"""The command's own process: exit codes, BLAS threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from raybench.errors import Interrupted, printable, system_words

DONE, NOTHING_COMPLETED, WRONG_REQUEST, INTERRUPTED = 0, 1, 2, 130
SLOWER = 1  # of ``compare --fail-if-slower``
CANNOT_WRITE = 2  # a full disk or one that is gone: the request cannot be carried out there
RAY_DIED = 3  # a process of Ray's without which nothing goes on
NOT_KNOWN = 4  # of ``compare --fail-if-slower``: the interval holds both


def leave(command: Callable[[], int]) -> NoReturn:
    """End with the exit code of ``command``, at once where Ray was abandoned: its threads would wait.

    The code is 130 where it is interrupted with nothing to keep, or a second time.
    """
    from raybench.launch import signals

    with signals.raising():
        try:
            code = command()
        except Interrupted:
            code = INTERRUPTED
    if code in (INTERRUPTED, RAY_DIED):
        with suppress(OSError):  # a terminal that is gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_without(error: OSError) -> NoReturn:
    """End the command where the system refuses: one line with the path, where there is one, and why."""
    what = "this cannot continue: " if error.filename is None else ""
    print(printable(f"{what}{system_words(error)}"), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # it is what cannot be written, and Python would try it again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CANNOT_WRITE)


def one_blas_thread() -> None:
    """Before numpy is imported: fits solve hundreds of small systems, for which threads only wait.

    On two busy cores a fit to 124 points took 5.6 s of processor time with two threads, 1.7 s with one. What
    the user has set stays; where numpy is there already it is too late.
    """
    if "numpy" not in sys.modules:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
