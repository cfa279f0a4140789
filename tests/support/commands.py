"""Runs the command line as a user would, and watches its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psutil

from tests.conftest import ROOT
from tests.support import budget


class Command:
    """``python -m raybench.study ARGUMENTS`` in a session of its own, its output in a file."""

    program: tuple[str, ...] = ("-m", "raybench.study")
    _started: ClassVar[list[Command]] = []
    _starts_ray = False  # and has not been counted for that

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        log: str = "output.txt",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.output_file = folder / log
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(variables or {})}
        environment.pop("RAY_ADDRESS", None)
        with self.output_file.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._family: dict[int, psutil.Process] = {}
        Command._started.append(self)
        self._starts_ray, self._joins = True, "--address" in arguments
        budget.took(budget.PROCESSES)

    @staticmethod
    def end_all() -> None:
        """End what was started and still runs, with its family."""
        while Command._started:
            command = Command._started.pop()
            command._watch()
            if command.process.poll() is None:
                command.process.kill()
            for process in command._family.values():
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
            command.process.wait()
            command._count()

    @property
    def output(self) -> str:
        return self.output_file.read_text()

    def wait(self, timeout_s: float = 300) -> int:
        """Wait for the end; the family is watched meanwhile."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still runs after {timeout_s} s:\n{self.output}"
            self._watch()
            time.sleep(0.2)
        self._count()
        return self.process.returncode

    def wait_for(self, text: str, times: int = 1, timeout_s: float = 300) -> None:
        """Wait until ``text`` was printed so often."""
        deadline = time.monotonic() + timeout_s
        while self.output.count(text) < times:
            assert self.process.poll() is None, f"ended before {text!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"no {text!r} after {timeout_s} s:\n{self.output}"
            self._watch()
            time.sleep(0.1)
        self._watch()

    def send(self, number: signal.Signals) -> None:
        self._watch()
        self.process.send_signal(number)

    def survivors(self, within_s: float, ignored: tuple[str, ...] = ()) -> list[str]:
        """Processes of the family that still run after ``within_s``."""
        deadline = time.monotonic() + within_s
        while True:
            alive = [words for words in map(_words, self._family.values()) if words]
            alive = [words for words in alive if not any(name in words for name in ignored)]
            if not alive or time.monotonic() > deadline:
                return alive
            time.sleep(0.2)

    def workers(self) -> list[int]:
        """Process ids of the training workers."""
        return [process.pid for process in self.processes("RayTrainWorker")]

    def processes(self, name: str) -> list[psutil.Process]:
        """Those of the family that run, with ``name`` in their command line."""
        self._watch()
        return [process for process in self._family.values() if name in (_words(process) or "")]

    def listening(self) -> list[tuple[str, str]]:
        """Processes of the family to which others can connect, and the address of each."""
        self._watch()
        found = []
        for process in (psutil.Process(self.process.pid), *self._family.values()):
            try:
                sockets = process.net_connections("tcp")
            except psutil.NoSuchProcess:
                continue
            at = [each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN]
            found += [(str(_words(process)), place.removeprefix("::ffff:")) for place in at]
        return found

    def _count(self) -> None:
        """What it took of the budget, by what it said; once."""
        if not self._starts_ray:
            return
        self._starts_ray, said = False, self.output
        if "Ray dashboard" in said and not self._joins:  # it has started
            budget.took(budget.CLUSTERS)
        for _ in range(said.count("worker group of ")):
            budget.took(budget.GROUPS)

    def _watch(self) -> None:
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._family.setdefault(child.pid, child)
        except psutil.NoSuchProcess:
            pass


def _words(process: psutil.Process) -> str | None:
    """What the process is, or None once it is gone."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return " ".join(process.cmdline())[:200] or process.name()
    except psutil.NoSuchProcess:
        return None
