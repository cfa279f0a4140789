"""With which code a command ends."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from raybench.errors import WRITING, printable, system_words

DONE, NOTHING_COMPLETED, WRONG_REQUEST, INTERRUPTED = 0, 1, 2, 130
SLOWER = 1  # of ``compare --fail-if-slower``
CANNOT_WRITE = 2  # a full disk or one that is gone: the request cannot be carried out there
RAY_DIED = 3  # a process of Ray's without which nothing goes on


def leave(code: int) -> NoReturn:
    """End the command; at once where Ray was abandoned: its threads would wait, or abort."""
    if code in (INTERRUPTED, RAY_DIED):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_without(error: OSError) -> NoReturn:
    """End the command where the system refuses: one line with the path, or what it was, and the reason."""
    what = ""
    if error.filename is None:
        what = "the output cannot be written: " if error.errno in WRITING else "this cannot go on: "
    print(printable(f"{what}{system_words(error)}"), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # it is what cannot be written, and Python would try it again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CANNOT_WRITE)
