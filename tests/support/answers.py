"""How a command answers within this process: its exit code and lines, and whether it kept to the contract."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from raybench.errors import LONGEST_LINE, RequestError
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.spec.load import resolve
from raybench.spec.toml import to_toml

MOST_LINES, MOST_CHARACTERS = 21, 2100  # of what is refused, and of a line


class TooLongError(Exception):
    """A command took longer than it may."""


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    output: str
    errors: str


def answer_of(main: Callable[[], Any], arguments: Sequence[str], limit_s: float) -> Answer:
    """``raybench`` with these arguments, in this process's main thread; ``main`` is ``raybench.study``'s.

    Whatever comes out of it but its own end is raised; ``TooLongError`` after ``limit_s``.
    """
    output, errors, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["raybench", *arguments]
    try:
        with at_most(limit_s), redirect_stdout(output), redirect_stderr(errors):
            try:
                main()
            except SystemExit as end:
                code = end.code
    finally:
        sys.argv = before
    return Answer(code if isinstance(code, int) else 0, output.getvalue(), errors.getvalue())


def check_answer(answer: Answer, longest_word: int = 0) -> None:
    """Done, or refused in a few lines, which may quote a whole word; raises ``AssertionError``."""
    assert answer.code in (0, 2), answer
    if answer.code == 2:
        lines = answer.errors.splitlines()
        assert 1 <= len(lines) <= MOST_LINES, lines[:30]
        assert all(len(line) <= MOST_CHARACTERS + longest_word for line in lines), max(map(len, lines))
        assert "Traceback" not in answer.errors, answer.errors


def check_command(main: Callable[[], Any], words: Sequence[str], limit_s: float) -> Answer:
    """``scaling --dry-run`` with these words, in a folder of which nothing is changed.

    Raises ``AssertionError``, ``TooLongError``, or what came out of the command.
    """
    kept = Path("kept.txt")
    kept.write_text("mine")
    before = files_of(Path.cwd())
    answer = answer_of(main, ["scaling", "--dry-run", "--device", "cpu", *words], limit_s)
    check_answer(answer, max(map(len, words), default=0))
    assert files_of(Path.cwd()) == before
    return answer


def check_tables(data: Mapping[str, Any], limit_s: float) -> bool:
    """Whether these tables are a study: one that its text gives again, with a plan or why none.

    Raises as ``check_command``.
    """
    resources = data.get("resources")
    on_cpus = {**(resources if isinstance(resources, dict) else {}), "device": "cpu"}
    try:
        with at_most(limit_s):
            study = resolve({**data, "resources": on_cpus})
            assert resolve(tomllib.loads(to_toml(study))) == study
            make_plan(study, Resources("cpu", 2, "a CPU"))
    except RequestError as refused:
        _check_lines(refused.problems)
        return False
    return True


def check_records(
    directory: Path, lines: Sequence[bytes], limit_s: float, report: Callable[[Any], Any] | None = None
) -> bool:
    """Whether a results directory with these lines is read, and has a ``report``, which is given it.

    What is left out is said in lines. Raises as ``check_command``.
    """
    from raybench.records.store import ResultsDirectory

    (directory / "trials.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    try:
        with at_most(limit_s), ResultsDirectory.open_readonly(directory) as store:
            assert len(store.records()) + len(store.warnings) == len(lines)
            if report is not None:
                report(store)
            return bool(store.records())
    except RequestError as refused:
        _check_lines(refused.problems)
        return False


def check_measured(file: Path, content: bytes, limit_s: float, report: Callable[[Path], Any]) -> bool:
    """The same of a CSV file of measurements made elsewhere; ``report`` reads it, and may draw it."""
    file.write_bytes(content)
    try:
        with at_most(limit_s):
            report(file)
    except RequestError as refused:
        _check_lines(refused.problems)
        return False
    return True


def _check_lines(problems: Sequence[str]) -> None:
    assert problems
    for problem in problems:
        assert problem.isprintable(), problem
        assert len(problem) <= LONGEST_LINE, len(problem)


@contextmanager
def at_most(limit_s: float) -> Iterator[None]:
    """Inside, ``TooLongError`` is raised after so many seconds of a core, or ten times as many of the clock.

    What a busy machine takes from this process does not count, nor do the imports before.
    """
    from raybench import workloads  # torch takes seconds, and what cuts its import short breaks it
    from raybench.workloads import causal_lm, text, vision

    assert all((workloads, causal_lm, text, vision))

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLongError(f"longer than {limit_s:g} s")

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, limit_s),
        (signal.SIGALRM, signal.ITIMER_REAL, 10 * limit_s),
    )
    before = {number: signal.signal(number, stop) for number, _, _ in timers}
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def files_of(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` with a digest of its content."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where) / name
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
