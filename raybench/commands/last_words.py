"""What is said of a command that was ended from outside.

SIGKILL, a kernel without memory, and Ray's core, which leaves from C++ where its raylet is gone, run no
handler. So a small process beside the command holds one end of a pipe, of which the command alone has the
other: it reads the pipe's end when the command is gone, whatever ended it. It is in a session of its own,
where no Ctrl-C of a terminal reaches it, and writes where the command wrote.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

DONE = b"."  # on the pipe: the command has said itself how it ended
# Not a module of the package: it starts in milliseconds, and holds no memory of the command's.
WATCHER = f"""
import os, sys
if {DONE!r} not in sys.stdin.buffer.read():
    shown = "\\x1b[?25h\\r\\n" if os.isatty(1) else ""  # a live line hides the cursor
    try:
        os.write(1, (shown + sys.argv[1]).encode(errors="replace"))
    except OSError:
        pass
"""


@contextmanager
def last_words(*lines: str) -> Iterator[None]:
    """Inside, ``lines`` are printed once this process ends without leaving the block."""
    sys.stdout.flush()
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WATCHER, "".join(f"{line}\n" for line in lines)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert watcher.stdin is not None
    try:
        yield
    finally:
        try:
            watcher.stdin.write(DONE)
            watcher.stdin.close()
        except BrokenPipeError:  # someone has ended it
            pass
        watcher.wait()
