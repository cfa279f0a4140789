"""How many threads a command's own arithmetic takes."""

from __future__ import annotations

import os
import sys


def one_blas_thread() -> None:
    """Before numpy is imported: fits solve hundreds of small systems, for which threads only wait.

    On two busy cores a fit to 124 points took 5.6 s of processor time with two threads, 1.7 s with one. What
    the user has set stays; where numpy is there already it is too late.
    """
    if "numpy" not in sys.modules:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
