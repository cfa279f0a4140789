"""What every command that measures does: survives interrupts and full disks, and ends with a report."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from raybench.commands.console import is_read, own_output, say, say_to_copy, shown_path
from raybench.commands.display import NOT_READ, Display
from raybench.commands.process import CANNOT_WRITE, DONE, INTERRUPTED, RAY_DIED, exit_watcher
from raybench.commands.report import resume_command, write_and_print
from raybench.commands.request import needs_of
from raybench.driver.in_flight import GroupPlan
from raybench.errors import (
    GroupLostError,
    Interrupted,
    NoRoomError,
    RayDiedError,
    RequestError,
    StoreError,
)
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster
from raybench.launch.runner import TrialRunner
from raybench.records.store import ResultsDirectory
from raybench.records.whole_files import not_written
from raybench.spec.plural import plural
from raybench.spec.study import Study
from raybench.spec.sweep import Sweep


@dataclass(frozen=True)
class Ended:
    """How a command that measures has ended: its exit code, and the results directory unless it was dry."""

    code: int
    directory: Path | None = None


def measure_and_report(
    store: ResultsDirectory,
    measure: Callable[[Display], list[str]],
    *,
    command: str,
    quiet: bool,
) -> Ended:
    """Measure and report; a full disk and a lost group leave what was measured, and say so.

    ``measure`` returns notes for the report; ``command`` goes on where it stopped.
    """
    notes, ended, goes_on, told, read = list(store.warnings), DONE, False, False, True
    goes_on_by = f"To go on: {resume_command(store.path, command)}"
    with _said_if_killed(store, goes_on_by), own_output(store.path / "ray.log") as own:
        with Display(own, quiet=quiet) as display:
            try:
                with interrupt.held():
                    notes += measure(display)
            except RayDiedError as died:
                ended = RAY_DIED
                notes.append(f"{died}; what Ray said is in {shown_path(store.path / 'ray.log')}")
            except Interrupted as signal:
                ended = INTERRUPTED
                display.line(f"{signal}: the workers are gone, what was measured is kept")
            except (GroupLostError, NoRoomError) as lost:
                goes_on = True
                notes.append(f"{lost}; what Ray said is in {store.path / 'ray.log'}")
            except StoreError as error:
                ended = CANNOT_WRITE
                notes += error.problems
        try:
            with interrupt.held(second_raises=True):
                goes_on = goes_on or ended != DONE  # an interrupt from now on is told of below
                code = write_and_print(store, own, notes, quiet=quiet, command=command, stopped=goes_on)
                told = goes_on
        except Interrupted:  # after the report, unless it came twice
            code = ended = INTERRUPTED
        except OSError as error:
            say(own, f"no report: {not_written(store.path, error)}")
            code = ended = CANNOT_WRITE
        except RequestError as error:  # what it is made of was deleted, or damaged, meanwhile
            for line in (*notes, *(f"no report: {problem}" for problem in error.problems)):
                say(own, line)
            code = ended = CANNOT_WRITE
        if (goes_on or ended != DONE) and not told and store.is_there:
            say_to_copy(own, goes_on_by)
        read = is_read(own)
    if not read and (goes_on or ended != DONE) and store.is_there:
        _say_elsewhere(f"{NOT_READ}: what was measured is kept in {shown_path(store.path)}", goes_on_by)
    return Ended(ended or code, store.path)


def _say_elsewhere(*lines: str) -> None:
    """On stderr, where stdout has no reader; a terminal that is gone had both."""
    try:
        os.write(2, "".join(f"{line}\n" for line in lines).encode(errors="replace"))
    except OSError:
        pass


def _said_if_killed(store: ResultsDirectory, goes_on_by: str) -> AbstractContextManager[None]:
    path = shown_path(store.path)
    return exit_watcher(
        "raybench was ended from outside: killed, by a person or for lack of memory, or by Ray's core, whose "
        f"raylet died. What was measured is kept in {path}; what Ray said is in its ray.log",
        goes_on_by,
        f"The report: python -m raybench.study report {shlex.quote(path)}",
    )


@contextmanager
def ending(runner: TrialRunner, *, lives_on: bool = False) -> Iterator[None]:
    """End every process that ``runner`` started when the block ends, however that happens.

    An interrupt ends them at once, unless this process ``lives_on``: Ray's core would end it a while later.
    """
    try:
        try:
            yield
        except (Interrupted, StoreError):
            raise
        except Exception:
            interrupt.check_death()  # what Ray's calls raise where Ray has died is no error of theirs
            raise
        runner.close()
    except BaseException as error:
        if isinstance(error, Interrupted) and (not lives_on or isinstance(error, RayDiedError)):
            runner.abandon()
            raise
        try:
            runner.close()
        except Interrupted:
            runner.abandon()
        raise


@contextmanager
def workers(
    cluster: Cluster,
    asked: Study | Sweep,
    plan: GroupPlan,
    store: ResultsDirectory,
    display: Display,
    kind: Literal["group", "tune"] = "group",
    suffix: str = "",
    *,
    lives_on: bool = False,
) -> Iterator[TrialRunner]:
    """The runner of ``plan``; Ray starts with its first group, and all its processes end with the block.

    ``suffix``: of the line that says what starts; ``lives_on``: as ``ending``.
    """
    needs = needs_of(asked.resources)
    device, backend = ("GPU", "NCCL") if needs.device == "cuda" else ("CPU", "gloo")
    if kind == "tune":
        what = f"Ray Tune; every trial gets {device} workers of its own"
    else:
        what = plural(plan.group_size, f"{device} worker")
    display.stage(f"raybench {asked.name}: starting Ray and {what} on {backend}{suffix}")
    concurrent = plan.group_size if plan.oversubscribed else 0
    cluster.prepare(needs, oversubscribed_workers=concurrent, tell=display.line)
    # what Ray Train keeps of a run is of no use afterwards
    with tempfile.TemporaryDirectory(prefix="raybench-", ignore_cleanup_errors=True) as storage:
        runner = runner_class(kind)(
            cluster,
            needs=needs,
            storage=Path(storage),
            results=store.path,
            name=asked.name,
            wait_s=asked.resources.wait_seconds,
        )
        with ending(runner, lives_on=lives_on):
            yield runner


def runner_class(kind: Literal["group", "tune"]) -> Callable[..., TrialRunner]:
    """The class of runners of a kind; Ray Tune is imported only where it serves."""
    if kind == "tune":
        from raybench.launch.tune_runner import TuneRunner

        return TuneRunner
    from raybench.launch.group_runner import WorkerGroupRunner

    return WorkerGroupRunner


def teller(console: Console, *, quiet: bool) -> Callable[[str], None]:
    """Says what goes on before there is a display."""
    if quiet:
        return lambda words: None
    return lambda words: say(console, words)
