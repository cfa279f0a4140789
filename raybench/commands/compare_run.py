"""``compare``: results directories side by side, and whether one has become slower.

With ``--interleave`` what it compares is measured first: two checkouts or environments, in starts that take
turns. Each start is a ``scaling`` command of its own, run by the side's own Python in the side's own folder,
and leaves a results directory. What this raybench reads of it is the default's throughput.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from raybench.analysis.comparison import (
    Side,
    headline_in_common,
    paired_speed,
    pairs_to_tell,
    shown_by_pairs,
    work_of,
)
from raybench.analysis.labels import devices_words
from raybench.analysis.resolve import resolve
from raybench.analysis.stats.statistics import Estimate, unpaired_ratio
from raybench.analysis.stats.verdict import Verdict, slower_by
from raybench.commands.compare import CompareOptions
from raybench.commands.console import say, say_to_copy, shown_path
from raybench.commands.measuring import DEFAULT_FOLDER, request_of, resources_there
from raybench.commands.options import parse_assignment
from raybench.commands.process import DONE, INTERRUPTED, NOT_KNOWN, NOTHING_COMPLETED, SLOWER, WRONG_REQUEST
from raybench.commands.report import analysed
from raybench.commands.scaling import ScalingOptions
from raybench.errors import Interrupted, RequestError, StoreError
from raybench.launch import signals
from raybench.plan.make_plan import make_plan
from raybench.records.requests import Configuration
from raybench.records.store import ResultsDirectory, foreign
from raybench.report.comparison import (
    comparison_answer,
    comparison_tables,
    listed_markdown,
    print_comparison,
    starts_words,
    write_comparison,
)
from raybench.report.format import figures, share, times
from raybench.report.pages import anew, quoted
from raybench.spec.load import DEFAULT_STUDY
from raybench.spec.user_input import home_path, real_path


def compare_directories(options: CompareOptions, console: Console) -> int:
    """Print the comparison; 1 where one is slower by more than the share ``fail_if_slower``, for certain.

    4 where that cannot be told, 0 where none is.

    Raises:
        RequestError: fewer than two directories, one twice, one that is none, nothing to fail by.
    """
    directories, limit = options.directories, options.fail_if_slower
    resolved = [real_path(directory) for directory in directories]
    if len(set(resolved)) < max(len(resolved), 2):
        told = ", ".join(str(directory) for directory in directories)
        raise RequestError(f"compare: two different results directories or more (received {told})")
    names = [directory.name for directory in resolved]
    unique = len(set(names)) == len(names)
    sides = [
        _side(directory, name if unique else str(directory), console)
        for directory, name in zip(directories, names, strict=True)
    ]
    print_comparison(sides, console)
    if options.output is not None:
        words = " ".join(map(quoted, resolved))
        command = f"python -m raybench.study compare {words} --output {anew(options.output)}"
        files = write_comparison(options.output, sides, command)
        say_to_copy(console, f"Report:  {shown_path(files[0])}")
    with _recorded(console) as said:
        verdicts = list[Verdict]()
        if limit is not None:
            verdicts = [_told(console, sides[0], other, limit) for other in sides[1:]]
    if options.summary is not None:
        lines = [*said, *(f"{each.question}: {each.words}" for each in comparison_answer(sides))]
        name = " and ".join(side.name for side in sides)
        _append_summary(options.summary, listed_markdown(name, lines, comparison_tables(sides)))
    return _exit_code(verdicts)


@contextmanager
def _recorded(console: Console) -> Iterator[list[str]]:
    """Gives the lines that are said inside, once the block has ended."""
    lines = list[str]()
    console.record = True
    yield lines
    lines += console.export_text().splitlines()
    console.record = False


def _append_summary(path: Path, text: str) -> None:
    """Append to a file that may have more in it."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    """Of ``--fail-if-slower``: that one is slower, else that one is not known, else done."""
    if Verdict.WORSE in verdicts:
        return SLOWER
    return NOT_KNOWN if Verdict.UNKNOWN in verdicts else DONE


def _told(console: Console, first: Side, other: Side, limit: float) -> Verdict:
    """Whether a side is slower by more than ``limit``, said where it is not known not to be."""
    headline = headline_in_common(first, other)
    if headline is None:
        raise RequestError(
            f"--fail-if-slower: {other.name} has measured the default of {first.name} at its largest "
            "world size too (received a directory without that trial)"
        )
    claim = f"{other.name} is slower than {first.name}"
    measured = f"{times(headline.speed)} ({headline.label}; {starts_words(headline)})"
    starts = headline.starts_to_tell(limit)
    how = "measure.starts, or --interleave"
    return _verdict(console, claim, headline.speed, limit, measured, starts, how)


def _verdict(
    console: Console, claim: str, speed: Estimate, limit: float, measured: str, starts: int | None, how: str
) -> Verdict:
    """Whether the ``claim`` of being slower by more than ``limit`` holds; said if it does, or is not known.

    ``starts`` of each would tell; ``how`` they are requested.
    """
    found = slower_by(speed, limit)
    if found is Verdict.WORSE:
        say(console, f"{claim} by more than {share(limit)}: {measured}")
    if found is Verdict.UNKNOWN:
        more = f"; {starts} starts of each would tell ({how})" if starts else ""
        say(console, f"whether {claim} by more than {share(limit)} is not known: {measured}{more}")
    return found


def _side(directory: Path, name: str, console: Console) -> Side:
    with ResultsDirectory.open_readonly(directory) as store:
        for warning in store.warnings:
            say(console, f"note: {warning}")
        return Side(name, analysed(store), store.environment())


# --- starts that take turns

DEFAULT_STARTS = 5  # of each side
SHOWN_FOR = (5, 10, 20, 40)  # pairs
DATA_VARIABLE = "RAYBENCH_DATA"
LAST_LINES = 12  # of what a start that failed has printed
KEEPING_S = 90.0  # for a start that is interrupted: it writes its report and ends Ray


@dataclass(frozen=True)
class Source:
    """One side: its Python, and the folder in which its commands run."""

    name: str  # A or B
    path: Path
    python: str
    folder: Path | None = None  # of a checkout, first on the import path; None: the current one

    @property
    def variables(self) -> dict[str, str]:
        """Variables of its starts: workers find a checkout's code first too."""
        if self.folder is None:
            return dict(os.environ)
        paths = [str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def source(name: str, path: Path) -> Source:
    """The side at a path: a python, an environment that has one, else a checkout for this python.

    Raises ``RequestError`` for a path that is neither.
    """
    # a link is not followed: Python finds its environment by the path that it is started with
    found = home_path(path).absolute()
    if found.is_dir():
        python = found / "bin" / "python"
        if not python.is_file() and foreign(found) is not None:  # results are no code
            return Source(name, path, sys.executable, found)
        found = python
    if not (found.is_file() and os.access(found, os.X_OK)):
        raise RequestError(
            f"--interleave: a directory of code, a Python environment or its python (received {str(path)!r})"
        )
    return Source(name, path, str(found))


class StartFailedError(RequestError):
    """A start that has left no default to compare; ``code`` is the command's."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(*lines)
        self.code = code


@dataclass(frozen=True)
class Started:
    """What one start has measured."""

    throughput: Estimate  # samples/s of the default at the target
    config: Configuration
    label: str


def compare_interleaved(options: CompareOptions, console: Console) -> int:
    """Measure both sides in turn, print each pair's ratio and all pairs' verdict; the exit code.

    Raises:
        RequestError: not two sides, a study that cannot be measured here, results of another schema, sides
            that measure different settings.
    """
    if len(options.directories) != 2:
        raise RequestError(
            f"--interleave: two checkouts or environments (received {len(options.directories)})"
        )
    first, second = sides = [source(*each) for each in zip("AB", options.directories, strict=True)]
    arguments, number = _arguments(first, options), options.starts or DEFAULT_STARTS
    output = options.output or DEFAULT_FOLDER / f"interleaved-{datetime.now():%Y%m%d-%H%M%S}"
    output.mkdir(parents=True, exist_ok=True)
    pairs, ended = list[tuple[Started, Started]](), DONE
    with _recorded(console) as said:
        for side in sides:
            say_to_copy(console, f"{side.name}: {side.path}")
        try:
            for turn in range(1, number + 1):
                order = (first, second) if turn % 2 else (second, first)  # A B B A A B ...
                found = {side.name: _start(side, arguments, output.absolute(), turn) for side in order}
                pairs.append((found["A"], found["B"]))
                _refuse_different(pairs)
                before, after = (each.throughput for each in pairs[-1])
                rates = f"A {figures(before.value)}, B {figures(after.value)} samples/s"
                say(console, f"pair {turn} of {number}: {rates}: {times(unpaired_ratio(after, before))}")
        except Interrupted:
            ended = INTERRUPTED
        except StartFailedError as failed:
            for line in failed.problems:
                say_to_copy(console, line)
            ended = failed.code
        if ended:
            say(console, f"ended after {len(pairs)} of {number} pairs of starts")
        code = _conclude(console, pairs, None if ended else options.fail_if_slower)
    if options.summary is not None:
        _append_summary(options.summary, listed_markdown("Compared in starts that take turns", said))
    say_to_copy(console, f"Results: {shown_path(output)}")
    return ended or code


def _arguments(side: Source, options: CompareOptions) -> list[str]:
    """What follows ``scaling``: the default alone, at the target world size, as the study is found at A."""
    typed, name = options.set_ or [], options.study or DEFAULT_STUDY
    there, here = (side.folder or Path.cwd()) / name, Path(name).absolute()
    if not there.is_file() and here.is_file():  # one file for both sides
        name, there = str(here), here
    data = os.environ.get(DATA_VARIABLE)
    overrides = [("data", data)] if data else []
    asked = ScalingOptions(
        study=str(there) if there.is_file() else name,
        smoke=options.smoke,
        overrides=(*overrides, *(parse_assignment(text) for text in typed)),
    )
    cluster, study = request_of(asked)
    with closing(cluster):
        if study.training is not None:
            raise RequestError(
                f"--study: a study without [training]: starts are compared by their steps (received {name})"
            )
        plan = make_plan(study, resources_there(cluster, study, asked, lambda words: None))
    ours = [f"scaling.world_sizes=[{plan.target}]", 'search.method="optuna"', "search.trials=1"]
    if plan.study.data:  # a relative path would be another one in each checkout
        ours.append(f"data={json.dumps(plan.study.data, ensure_ascii=False)}")
    sets = [word for text in (*typed, *ours) for word in ("--set", text)]
    return [name, *(["--smoke"] if options.smoke else []), "--quiet", *sets]


def _start(side: Source, arguments: Sequence[str], output: Path, turn: int) -> Started:
    """Measure a side once, in processes of its own. Raises ``StartFailedError``."""
    results = output / f"{side.name.lower()}-{turn}"
    log = output / f"{results.name}.log"
    command = [side.python, "-m", "raybench.study", "scaling", *arguments, "--output", str(results)]
    code = run_start(command, side, log)
    where = f"start {turn} of {side.name}"
    if code:
        told = WRONG_REQUEST if code == WRONG_REQUEST else NOTHING_COMPLETED
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise StartFailedError(told, f"{where}: exit code {code}, its last lines ({shown_path(log)}):", *last)
    with ResultsDirectory.open_readonly(results) as store:
        facts = resolve(store.study(), list(store.latest().values()), store.environment())
    if facts.headline is None or facts.headline_scaling is None:
        raise StartFailedError(
            NOTHING_COMPLETED, f"{where}: the default was not measured, {shown_path(results)} has why"
        )
    rate = facts.headline_scaling.throughput_samples_per_s
    return Started(rate, facts.headline.config, facts.headline_label)


def run_start(command: Sequence[str], side: Source, log: Path) -> int:
    """Run a command of a side to its end and return its exit code; what it prints goes to ``log``.

    It has a session of its own, so Ctrl-C reaches it from here alone: once, and it keeps what it measured. A
    second one ends it at once.
    """
    process = None
    try:
        with log.open("wb") as file, signals.held():  # not between the start and its name
            process = subprocess.Popen(
                command,
                cwd=side.folder,
                env=side.variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process.wait()
    except BaseException:
        if process is not None:
            _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a start, which then keeps what it has measured; end it where it takes too long."""
    process.send_signal(signal.SIGINT)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(KEEPING_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _refuse_different(pairs: Sequence[tuple[Started, Started]]) -> None:
    """Raise ``StoreError`` where the last pair has not measured what the first start has."""
    one = pairs[0][0]
    for name, other in zip("AB", pairs[-1], strict=True):
        if work_of(one.config) != work_of(other.config):
            raise StoreError(
                f"--interleave: the same default on both sides (received {name}'s {_described(other)}, "
                f"which is not A's {_described(one)}: study.toml of each has the difference)"
            )


def _described(started: Started) -> str:
    return f"{started.label} on {devices_words(started.config.world_size)}"


def _conclude(console: Console, pairs: Sequence[tuple[Started, Started]], limit: float | None) -> int:
    """Print B's speed against A's over all pairs, and whether that is slower by more than ``limit``."""
    if len(pairs) < 2:  # one has no spread
        return DONE
    speed = paired_speed(*([each.throughput for each in side] for side in zip(*pairs, strict=True)))
    measured = f"{times(speed)} ({_described(pairs[0][0])}; {len(pairs)} pairs of starts)"
    able = [f"{number} pairs {share(shown_by_pairs(speed, number))}" for number in SHOWN_FOR]
    say(console, f"the least difference that pairs of starts show here: {', '.join(able)}")
    if limit is None:
        say(console, f"B over A: {measured}")
        return DONE
    starts = pairs_to_tell(speed, limit)
    found = _verdict(console, "B is slower than A", speed, limit, measured, starts, f"--starts {starts}")
    if found is Verdict.AS_GOOD:
        say(console, f"B is not slower than A by more than {share(limit)}: {measured}")
    return _exit_code([found])
