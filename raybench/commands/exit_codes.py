"""With which code a command ends."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

DONE, NOTHING_COMPLETED, WRONG_REQUEST, INTERRUPTED = 0, 1, 2, 130
SLOWER = 1  # of ``compare --fail-if-slower``
CANNOT_WRITE = 2  # a full disk or one that is gone: the request cannot be carried out there


def leave(code: int) -> NoReturn:
    """End the command; at once where it was interrupted: threads of an abandoned Ray would wait, or abort."""
    if code == INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
