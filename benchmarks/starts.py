"""What does it cost to start a study, until its first worker group is ready?

Starts the default study from two checkouts in turn, and prints the CPU time of the whole family of processes
at the moment when the group is ready, by kind of process, and the time on the clock. There each study is
interrupted. The clock asks for idle cores; CPU times too grow by some tenths where others work.

    python -m benchmarks.starts BEFORE AFTER -n 10
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from raybench.machine import host

READY = "worker group of "  # in the line that says so
LOOK_S = 0.1  # what a process had used that ends before the group is ready is known as of the last look
START_S, END_S = 300, 60
# By what its command line begins with, then by what is in it; a worker of Ray's has the name of its actor.
DRIVER, OTHER_ACTORS = "driver", "other actors"
BEGINS = {
    "ray::RayTrainWorker": "workers",
    "ray::_RayTrainWorker": "workers",
    "ray::execute": "workers",
    "ray::TrainController": "Train's controller",
    "ray::TrainStateActor": "Train's state actor",
    "ray::Mailbox": "mailbox",
    "ray::DashboardAgent": "dashboard, agents",
    "ray::RuntimeEnvAgent": "dashboard, agents",
    "ray-dashboard": "dashboard, agents",
    "ray::": OTHER_ACTORS,
}
HAS = {
    "/raylet/raylet ": "raylet, GCS",
    "/gcs_server": "raylet, GCS",
    "log_monitor": "log monitor, autoscaler",
    "monitor.py": "log monitor, autoscaler",
    "dashboard": "dashboard, agents",
    "runtime_env": "dashboard, agents",
    "multiprocessing": "dashboard, agents",
}
KINDS = (DRIVER, *dict.fromkeys([*BEGINS.values(), *HAS.values()]))


@dataclass(frozen=True)
class Start:
    """What one start took, in s: of the clock, and of CPUs by kind of process."""

    ready_s: float
    cpu_s: dict[str, float]

    @property
    def all_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another")
    parser.add_argument("-n", type=int, default=10, help="starts of each")
    options = parser.parse_args()
    sides = {"before": options.before, "after": options.after}
    starts: dict[str, list[Start]] = {name: [] for name in sides}
    for turn in range(options.n):
        for name in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            starts[name].append(start(sides[name].resolve()))
            took = starts[name][-1]
            words = f"{name}: {took.ready_s:.1f} s, CPU {took.all_cpu_s:.1f} s, load {os.getloadavg()[0]:.1f}"
            print(words, flush=True)
    before, after = starts.values()
    for words, value in rows():
        print(f"{words:<28}{spread(before, value):>28}{spread(after, value):>28}")
    cpu, clock = (f"{spread(before, value)} to {spread(after, value)}" for _, value in list(rows())[-2:])
    print(
        f"| What does a start cost, until the first worker group is ready? | `starts.py -n {options.n}`, "
        f"{host.usable_cores()} cores ({host.cpu_model()}, Python {platform.python_version()}) "
        f"| CPU {cpu}; clock {clock}; medians and ranges | {time.strftime('%Y-%m-%d')} |"
    )


def start(checkout: Path) -> Start:
    """Start the default study of ``checkout``, and interrupt it when its first group is ready."""
    variables = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1"}
    variables.pop("RAY_ADDRESS", None)
    with TemporaryDirectory(prefix="starts-", ignore_cleanup_errors=True) as folder:
        began = time.monotonic()
        driver = subprocess.Popen(
            [sys.executable, "-m", "raybench.study", "scaling", "--device", "cpu", "--output", "out"],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            return _until_ready(driver, began)
        finally:
            _end(driver)


def _until_ready(driver: subprocess.Popen[str], began: float) -> Start:
    said, ready = list[str](), threading.Event()
    ready_s = [0.0]

    def read() -> None:
        assert driver.stdout is not None
        for line in driver.stdout:
            said.append(line)
            if READY in line and not ready.is_set():
                ready_s[0] = time.monotonic() - began
                ready.set()

    threading.Thread(target=read, daemon=True).start()
    seen = dict[int, tuple[str, float]]()
    while not ready.wait(LOOK_S):
        assert driver.poll() is None, "".join(said)
        assert time.monotonic() < began + START_S, "".join(said)
        _look(driver.pid, seen)
    _look(driver.pid, seen)
    cpu_s = dict.fromkeys(KINDS, 0.0)
    for kind, seconds in seen.values():
        cpu_s[kind] += seconds
    return Start(ready_s[0], cpu_s)


def _look(driver: int, seen: dict[int, tuple[str, float]]) -> None:
    """Put down what each process of the family is for, and has used."""
    for process in (psutil.Process(driver), *psutil.Process(driver).children(recursive=True)):
        try:
            with process.oneshot():
                used = process.cpu_times()
                seen[process.pid] = kind_of(" ".join(process.cmdline())), used.user + used.system
        except psutil.NoSuchProcess:
            continue


def _end(driver: subprocess.Popen[str]) -> None:
    family = psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []
    driver.send_signal(signal.SIGINT)
    try:
        driver.wait(END_S)
    except subprocess.TimeoutExpired:
        driver.kill()
        driver.wait()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def kind_of(command: str) -> str:
    """What a process is for, by its command line."""
    begins = (kind for words, kind in BEGINS.items() if command.startswith(words))
    # the raylet's command line has those of its agents in it, and stands first
    return next(begins, None) or next((kind for words, kind in HAS.items() if words in command), DRIVER)


def rows() -> list[tuple[str, Callable[[Start], float]]]:
    """What is printed of the starts of one side: its words, and the number of one start."""

    def of(kind: str) -> Callable[[Start], float]:
        return lambda start: start.cpu_s[kind]

    by_kind = [(f"CPU, {kind}", of(kind)) for kind in KINDS]
    return [*by_kind, ("CPU, all", lambda start: start.all_cpu_s), ("clock", lambda start: start.ready_s)]


def spread(starts: Sequence[Start], value: Callable[[Start], float]) -> str:
    """Median and range."""
    values = [value(start) for start in starts]
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
