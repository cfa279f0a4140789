"""What the user sees while a study runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from raybench.commands.console import is_read, say
from raybench.launch import signals as interrupt
from raybench.records.messages import Progress
from raybench.report.format import clock

REFRESH_PER_S = 2  # a third busy process on two cores would be in every measurement
LONG_PHASE_S = 2.0  # from then on its seconds are shown
NOT_READ = "nobody reads this output any more"
LEAST_NAME = 12  # characters of a trial's name, without which its line is not kept to one


class Display:
    """Writes through a console of its own, so that Ray's lines never tear it."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console, self._quiet = console, quiet
        self._stage = self._trial = self._phase = self._best = ""
        self._done, self._since = 0, monotonic()
        self._total: int | None = None
        self._left_s: float | None = None
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self.console.is_terminal and not self._quiet:
            self._live = Live(
                get_renderable=self._render, console=self.console, refresh_per_second=REFRESH_PER_S,
                transient=True, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            say(self.console, text)

    def stage(self, text: str) -> None:
        """What the study is at."""
        self._stage, self._trial, self._phase = text, "", ""
        if self._live is None:
            self.line(text)

    def trial(self, words: str, *, done: int, total: int | None, left_s: float | None) -> None:
        """A trial begins."""
        self._trial, self._phase, self._done, self._total, self._left_s = words, "", done, total, left_s
        self._since = monotonic()

    def progress(self, progress: Progress) -> None:
        """The trial's phase; a study that nobody follows any more is asked to end, as by a signal."""
        if not is_read(self.console):
            interrupt.ask(NOT_READ)
        phase = f"{progress.phase} {progress.detail}".strip()
        if phase != self._phase:
            self._phase, self._since = phase, monotonic()

    def trial_done(self, names: Sequence[str], outcome: str) -> None:
        """A trial has ended; one line that stays.

        Of its names, the shortest last, the first one that leaves room for the outcome on a line of the
        terminal; where none does, the end of the last is cut. An outcome that needs a line for itself, such
        as why a trial failed, takes several.
        """
        room = self.console.width - len(f"  : {outcome}")
        name = names[0]
        if self.console.is_terminal and room >= LEAST_NAME:
            name = next((each for each in names if len(each) <= room), f"{names[-1][: room - 1]}…")
        self.line(f"  {name}: {outcome}")

    def best(self, words: str) -> None:
        """The best so far."""
        self._best = words

    def _render(self) -> Group:
        count = f"{self._done + 1}" + (f" of {self._total}" if self._total else "")
        left = "" if self._left_s is None else f", about {clock(self._left_s)} left"
        lines = [f"{self._stage}: trial {count}{left}" if self._trial else self._stage]
        if self._trial:
            for_s = monotonic() - self._since
            since = f", {clock(for_s)}" if for_s >= LONG_PHASE_S else ""
            lines.append(f"  {self._trial}: {self._phase or 'waiting'}{since}")
        if self._best:
            lines.append(f"  best so far: {self._best}")
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))
