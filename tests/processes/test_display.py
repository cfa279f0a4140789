"""Only the console reaches the user; everything else, of C and of children too, goes to the log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes.starting import LIMIT_S, Done, Ready, program

COLUMNS = 80
LONG = "2 devices, batch 512, 25 MiB buckets, bf16, accumulation 4, fp16 compression, static_graph, 4 workers"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
BEGIN = """
import os, subprocess, sys
from pathlib import Path
from raybench.commands.console import own_output
from raybench.commands.progress import Display
"""
Run = Callable[..., Done]


@pytest.fixture
def run(ready: Ready) -> Run:
    return lambda body, *arguments: ready.run(BEGIN + textwrap.dedent(body), *arguments)


def test_only_the_console_reaches_the_user(tmp_path: Path, run: Run) -> None:
    done = run(
        """
        print("before")
        with own_output(Path(sys.argv[1])) as console:
            print("from Python")
            print("to stderr", file=sys.stderr)
            os.write(1, b"from C\\n")
            os.write(2, b"to C's stderr\\n")
            child = "import sys; print('from a child'); print('oops', file=sys.stderr)"
            subprocess.run([sys.executable, "-c", child])
            console.print("the answer")
        print("after")
        print("and to stderr", file=sys.stderr)
        os.write(1, b"from C again\\n")
        """,
        str(tmp_path / "ray.log"),
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"before", "the answer", "after", "from C again"}
    assert done.stderr == "and to stderr\n"
    log = (tmp_path / "ray.log").read_text().splitlines()
    assert set(log) == {"from Python", "to stderr", "from C", "to C's stderr", "from a child", "oops"}


def test_a_notebooks_cell_gets_plain_lines_and_nothing_else(tmp_path: Path, run: Run) -> None:
    """Its streams are objects that call themselves terminals, with the kernel's own output as their file."""
    done = run(
        """
        import io
        class Cell(io.StringIO):
            isatty = lambda self: True
            fileno = lambda self: 1
        sys.stdout, sys.stderr = cell, errors = Cell(), Cell()
        with own_output(Path(sys.argv[1])) as console, Display(console) as display:
            print("from Python")
            print("to stderr", file=sys.stderr)
            os.write(1, b"from C\\n")
            display.stage("Measuring")
            display.trial("a trial", done=0, total=1, left_s=None)
            display.trial_done(["a trial"], "fast")
        print("after")
        assert sys.stdout is cell and sys.stderr is errors
        os.write(1, cell.getvalue().encode())
        assert errors.getvalue() == ""
        """,
        str(tmp_path / "ray.log"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Measuring\n  a trial: fast\nafter\n"
    assert set((tmp_path / "ray.log").read_text().splitlines()) == {"from Python", "to stderr", "from C"}


def test_both_are_back_after_an_exception(tmp_path: Path, run: Run) -> None:
    done = run(
        """
        try:
            with own_output(Path(sys.argv[1])) as console:
                console.print("the answer")
                raise KeyError("in the middle")
        except KeyError:
            print("caught")
        open_now = set(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with own_output(Path(sys.argv[1])):
                pass
        assert set(os.listdir("/proc/self/fd")) == open_now, "descriptors were left open"
        raise ValueError("seen by the user")
        """,
        str(tmp_path / "ray.log"),
    )
    assert done.stdout.split("\n")[:2] == ["the answer", "caught"]
    assert "ValueError: seen by the user" in done.stderr
    assert (tmp_path / "ray.log").read_text() == ""


def test_where_nobody_reads_any_more_it_goes_on_and_is_asked_to_end(tmp_path: Path, run: Run) -> None:
    """The console writes into nothing, however often, and what comes after it has a whole stdout."""
    body = """
        import signal
        from raybench.commands.console import is_read
        from raybench.errors import Interrupted
        from raybench.launch import signals
        from raybench.records.messages import Progress
        reads, writes = os.pipe()
        os.dup2(writes, 1)
        os.close(writes)
        with own_output(Path(sys.argv[1])) as console, Display(console) as display:
            display.line("read")
            display.progress(Progress("measure", ""))
            signals.check()
            assert is_read(console.file)
            os.close(reads)
            for _ in range(3):
                display.line("not read")
            assert not is_read(console.file)
            display.progress(Progress("measure", ""))
            try:
                signals.check()
            except Interrupted as asked:
                print(asked, file=sys.stderr)
        """
    done = run(body, str(tmp_path / "ray.log"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ray.log").read_text() == "nobody reads this output any more\n"


def test_a_full_disk_under_the_output_is_told(tmp_path: Path, run: Run) -> None:
    body = """
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, 1)
        with own_output(Path(sys.argv[1])) as console:
            try:
                console.print("does not fit")
            except OSError as error:
                sys.stderr.write(error.strerror)
                os.dup2(2, console.file.fileno())
        """
    run(body, str(tmp_path / "ray.log"))
    assert (tmp_path / "ray.log").read_text().startswith("No space left on device")


def test_a_second_run_appends_to_the_log(tmp_path: Path, run: Run) -> None:
    log = tmp_path / "ray.log"
    for _ in range(2):
        run("with own_output(Path(sys.argv[1])):\n    print('a line')", str(log))
    assert log.read_text() == "a line\n" * 2


STUDY = """
from raybench.records.messages import Progress
LONG = sys.argv[2]
with own_output(Path(sys.argv[1])) as console, Display(console, quiet=len(sys.argv) > 3) as display:
    display.line("Ray dashboard: http://127.0.0.1:8265")
    display.stage("Searching for the best of 12 suggestions at 2 devices, which takes a while, so be patient")
    for done in range(3):
        display.trial(LONG, done=done, total=12, left_s=95.0 - done)
        display.progress(Progress("measure", "round 7, +-3.2%"))
        print("(pid=123) Ray says something")
        display.trial_done(["batch 32"], "1,234 samples/s, n=10")
console = None
print("the end")
"""


def test_piped_output_is_plain_lines(tmp_path: Path, run: Run) -> None:
    done = run(STUDY, str(tmp_path / "ray.log"), LONG)
    assert done.returncode == 0, done.stderr
    assert not CONTROL.search(done.stdout)
    lines = done.stdout.splitlines()
    assert lines[0] == "Ray dashboard: http://127.0.0.1:8265"
    assert lines[1].startswith("Searching for the best of 12 suggestions")
    assert lines[1].endswith("so be patient")  # one line, however long: it may be searched
    assert lines[2:] == ["  batch 32: 1,234 samples/s, n=10"] * 3 + ["the end"]


def test_quiet_says_nothing_on_the_way(tmp_path: Path, run: Run) -> None:
    assert run(STUDY, str(tmp_path / "ray.log"), LONG, "quiet").stdout == "the end\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = program(
        BEGIN + STUDY,
        tmp_path_factory.mktemp("log") / "ray.log",
        LONG,
        stdin=follower,
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**kept, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)},
    )
    os.close(follower)
    written = b""
    while True:
        try:
            read = os.read(leader, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not read:
            break
        written += read
    os.close(leader)
    errors = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 0, errors
    return written.decode()


def test_the_live_lines_fit_the_terminal(written: str) -> None:
    without_codes = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    lines = [line for part in without_codes.split("\n") for line in part.split("\r")]
    assert all(len(line) <= COLUMNS for line in lines), max(lines, key=len)
    assert any(re.match(r"Searching .*…$", line) for line in lines)  # cut, not wrapped
    assert "Ray says" not in written
    assert lines.count("  batch 32: 1,234 samples/s, n=10") == 3  # these stay
    assert "\x1b[?25h" in written  # and the cursor is back


def test_the_live_lines_are_gone_at_the_end(written: str) -> None:
    """What stays on the screen is what was printed to stay."""
    assert screen(written) == [
        "Ray dashboard: http://127.0.0.1:8265",
        *["  batch 32: 1,234 samples/s, n=10"] * 3,
        "the end",
    ]


def screen(written: str) -> list[str]:
    """The lines that a terminal shows after ``written``: enough of one for rich's own codes."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
        elif part.startswith("\x1b"):
            number = int(re.sub(r"\D", "", part) or 1)
            if part.endswith("A"):
                row -= number
            elif part.endswith("K"):
                lines[row] = "" if number == 2 else lines[row][:column]
        else:
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
        while row >= len(lines):
            lines.append("")
    return [line.rstrip() for line in lines if line.strip()]


def test_the_log_is_made_where_it_is_asked(tmp_path: Path, run: Run) -> None:
    done = run("with own_output(Path(sys.argv[1])):\n    pass", str(tmp_path / "no" / "ray.log"))
    assert "No such file" in done.stderr  # and is seen, not lost with a closed stderr
