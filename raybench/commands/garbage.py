"""When a command looks for objects that nothing reaches any more."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collected() -> Iterator[None]:
    """No search for unreachable cycles meanwhile.

    A report of many trials makes millions of objects that are all in use to its end; each search walks over
    all of them, again and again, and finds next to nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
