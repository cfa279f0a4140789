"""The command line in a process that is forked from one which has the imports behind it, without Ray.

A study's workers are forked ranks (``tests.support.ranks_runner``). What the command prints, writes and
ends with is as from the shell; it starts in a tenth of a second, its workers in one.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import ROOT
from tests.support import budget
from tests.support.commands import Command
from tests.support.forkserver import FORKSERVER, SERVER_OF_ALL, ForkedPopen
from tests.support.ranks_runner import PIDS


class ForkedCommand(Command):
    """``raybench ARGUMENTS`` as ``Command`` runs it, but forked, its workers forked ranks."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        log: str = "output.txt",
        variables: Mapping[str, str] | None = None,
        terminal: str | None = None,
        pipe: Path | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        """``terminal``: in the place of the log; ``pipe``: of its stdout alone; ``changed``: called first."""
        self.output_file = folder / log
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(variables or {})}
        environment.pop("RAY_ADDRESS", None)
        self._pids = self.output_file.with_suffix(".pids")
        environment[PIDS] = str(self._pids)
        self.output_file.write_text("")
        self.process: Any = ForkedPopen(
            FORKSERVER.Process(
                target=_command,
                args=(arguments, folder, environment, self.output_file, terminal, pipe, changed),
            )
        )
        budget.took(budget.STUDIES)
        self._family: dict[int, psutil.Process] = {}
        Command._started.append(self)

    def _watch(self) -> None:
        super()._watch()
        for pid in map(int, self._pids.read_text().split() if self._pids.exists() else ()):
            if pid not in self._family:  # the ranks are forked by somebody else
                try:
                    self._family[pid] = psutil.Process(pid)
                except psutil.NoSuchProcess:
                    pass


def _command(
    arguments: tuple[str, ...],
    folder: Path,
    environment: dict[str, str],
    output: Path,
    terminal: str | None,
    pipe: Path | None,
    changed: Callable[[], None] | None,
) -> None:
    from raybench import study
    from raybench.launch import group_runner, readable
    from raybench.report import document
    from tests.support.ranks_runner import RanksRunner

    setattr(*SERVER_OF_ALL)
    os.setsid()
    if terminal is not None:
        out = os.open(terminal, os.O_RDWR)
        fcntl.ioctl(out, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as it is but under ``nohup``
        os.dup2(out, 0)
    else:
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out if pipe is None else os.open(pipe, os.O_WRONLY), 1)
    os.dup2(out, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [str(folder)]
    sys.argv[:] = ["raybench", *arguments]
    vars(group_runner)["WorkerGroupRunner"] = RanksRunner
    # a factory is looked at here: that it has a process of its own is shown in tests/processes
    vars(readable)["call_apart"] = lambda what, limit_s, function, *given: function(*given)
    # plots take most of a report's time: those of a study are drawn in tests/ray/test_study.py
    vars(document)["drawn"] = lambda *plot: ()
    if changed is not None:
        changed()
    try:
        study.main()
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        raise
