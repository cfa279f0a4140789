"""Does a study keep every trial, once and true, whatever happens to its processes and its disk?

Runs a grid of short trials, whose steps wait for a known time, on a local cluster of two CPU workers. While
it runs, faults happen to it for real: a worker is killed (SIGKILL) or hangs (SIGSTOP), a rank gets no memory,
Ray's raylet or the mailbox between driver and workers is killed, the disk is full, the driver is killed or
told to end (SIGTERM). A driver that ended goes on with --resume --retry. In the end every trial asked for
must be there, complete, once, with its step time: its own wait, and what every step takes beside its wait
(the median over all trials says how much); memory and open files of driver, mailbox and workers must not
grow. Exit code 1 where one of these is not so.

A full disk needs the right to mount a small tmpfs; without it that is left out, and named. --seed draws the
order of the kinds and of the batches; the moment within a trial differs from run to run. Only processes that
this benchmark's own drivers started are touched.

    python -m benchmarks.soak --trials 60 --faults 8
    python -m benchmarks.soak --trials 400 --faults 24 --directory soak
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import psutil

from raybench.records.store import ResultsDirectory
from tests.support.accounts import Accounts, accounts
from tests.support.commands import Command
from tests.support.planted.faults import (
    Fault,
    full,
    kill_one,
    schedule,
    small_disk,
    stop_one,
    until,
)
from tests.support.usage import MIB, Usage

TRUE_S = (0.010, 0.040)  # of a step: of the smallest batch, of the largest
TOLERANCE_S = 0.005  # from what a step takes: its wait, and what all of them take beside theirs
TIMEOUT_S, GRACE_S = 20, 10  # a trial is ended after this; what its end may take
LOOK_S = 0.5
HAPPENS_S = 60.0
STANDS_STILL_S = 300.0  # without a record: the session is ended
DISK = "64m"
# after a raylet's death 1 where Ray's core was faster than the report
EXIT_CODES = {
    "disk full": (2,),
    "driver killed": (-signal.SIGKILL,),
    "driver terminated": (130,),
    "raylet killed": (3, 1),
}
MORE_BYTES, MORE_FILES = 100 * MIB, 32  # than at first: it grows
FIT_BYTES = 400 * MIB  # a driver's fit of several starts: its heap is fragmented so far, and no further
ROLES = {"mailbox": "ray::Mailbox", "workers": "RayTrainWorker"}
STUDY = """
name = "soak"
[workload]
factory = "tests.support.waits:build"
kib = [64]
layer_s = {layer_s}
sample_s = {sample_s}
shortage = "{shortage}"
[knobs]
batch_size = {batches}
[scaling]
world_sizes = [2]
[resources]
device = "cpu"
[measure]
min_rounds = 3
steps = 2
warmup_steps = 1
max_seconds = 5
timeout_seconds = {timeout_s}
half_width = 0.5
"""


class Lines:
    """``trials.jsonl`` while it grows: what was once a line must stay as it is."""

    def __init__(self, path: Path) -> None:
        self._path, self._whole = path, b""
        self.states = dict[int, str]()  # of the newest record of each batch
        self.number = 0
        self.changed = list[str]()

    def look(self) -> bool:
        """Whether there are new lines."""
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not whole.startswith(self._whole):
            self.changed.append(f"one of {self.number} lines is not what it was")
        new = whole[len(self._whole) :].splitlines()
        self._whole = whole
        for line in new:
            record = json.loads(line)
            self.number += 1
            if record["request"]["role"] == "scaling":
                self.states[record["request"]["config"]["setting"]["batch_size"]] = record["state"]
        return bool(new)


@dataclass
class Soak:
    """A study, what is to happen to it, and what was seen."""

    folder: Path  # in which the drivers run
    disk: Path  # on which the results are
    faults: list[Fault]
    draw: random.Random
    shortage: Path
    usage: dict[str, Usage] = field(default_factory=lambda: {name: Usage() for name in ("driver", *ROLES)})
    broken: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # of the sessions: exit code, and the last fault

    def __post_init__(self) -> None:
        self.output = self.disk / "results"
        self.lines = Lines(self.output / "trials.jsonl")

    def run(self, trials: int) -> None:
        """Session after session, until every trial is complete; not two in a row without a record."""
        arguments = ["scaling", "soak.toml", "--output", str(self.output)]
        idle = 0
        while idle < 2 and Counter(self.lines.states.values())["complete"] < trials:
            before = self.lines.number, len(self.happened)
            log = f"session-{len(self.ends) + 1}.txt"
            command = Command(*arguments, folder=self.folder, log=log)
            code = self._watch(command)
            by = self.happened[-1].kind if len(self.happened) > before[1] else ""
            self.ends.append(f"{code}, {by} last" if by else f"{code}")
            if code not in EXIT_CODES.get(by, (code,)):
                self.broken.append(f"{log}: exit code {code}, {by}")
            if code and by != "driver killed" and "To go on: " not in command.output:
                self.broken.append(f"{log}: exit code {code}, and no line that goes on")
            print(
                f"session {len(self.ends)}: {self.lines.number} records, exit code {self.ends[-1]}",
                flush=True,
            )
            stayed = command.survivors(30, ignored=("Agent",))  # these take up to a minute
            self.broken += [f"{log}: still there after its driver: {each}" for each in stayed]
            if "Traceback" in command.output:
                self.broken.append(f"{log}: a traceback")
            Command.end_all()
            idle = 0 if (self.lines.number, len(self.happened)) != before else idle + 1
            arguments = [
                "scaling",
                "--resume",
                "--output",
                str(self.output),
                "--retry",
                "oom,timeout,crashed",
            ]

    @property
    def happened(self) -> list[Fault]:
        """In their order."""
        return [fault for fault in self.faults if fault.happened]

    def _watch(self, command: Command) -> int:
        """Let happen what is due until the driver ends; its exit code."""
        driver, grew_at = psutil.Process(command.process.pid), time.monotonic()
        while command.process.poll() is None:
            if self.lines.look():  # a sample for each: what the report takes at the end is none of trials
                grew_at = time.monotonic()
                self.usage["driver"].look(driver, self.lines.number)
                for role, name in ROLES.items():
                    for process in command.processes(name):
                        self.usage[role].look(process, self.lines.number)
            if time.monotonic() - grew_at > STANDS_STILL_S:
                self.broken.append(f"{command.output_file.name}: no record in {STANDS_STILL_S:g} s")
                command.send(signal.SIGKILL)
            due = next((fault for fault in self.faults if not fault.happened), None)
            if due is not None and due.at <= len(self.lines.states):
                time.sleep(self.draw.uniform(0, 2))  # another moment of a trial each time
                due.happened = KINDS[due.kind](self, command)
                if due.happened:
                    print(f"  {due.kind}, after {self.lines.number} records", flush=True)
            time.sleep(LOOK_S)
        self.lines.look()
        return command.process.wait()

    def run_out_of_memory(self, command: Command) -> bool:
        """Rank 1's next step asks for more than there is."""
        self.shortage.touch()
        until(lambda: not self.shortage.exists() or has_ended(command), HAPPENS_S)
        return not self.shortage.exists()

    def fill_disk(self, command: Command) -> bool:
        """Until the driver has ended of it."""
        with full(self.disk) as is_full:
            return is_full and until(lambda: has_ended(command), HAPPENS_S)

    def signal_driver(self, command: Command, number: signal.Signals) -> bool:
        """It ends by that."""
        command.send(number)
        return until(lambda: has_ended(command), HAPPENS_S)


def has_ended(command: Command) -> bool:
    """Whether the driver has."""
    return command.process.poll() is not None


# each says whether it happened; what did not is tried again
KINDS: dict[str, Callable[[Soak, Command], bool]] = {
    "worker killed": lambda soak, command: kill_one(command.processes(ROLES["workers"]), soak.draw),
    "worker hung": lambda soak, command: stop_one(command.processes(ROLES["workers"]), soak.draw),
    "rank out of memory": Soak.run_out_of_memory,
    "mailbox killed": lambda soak, command: kill_one(command.processes(ROLES["mailbox"]), soak.draw),
    "raylet killed": lambda soak, command: kill_one(command.processes("raylet/raylet "), soak.draw),
    "disk full": Soak.fill_disk,
    "driver killed": lambda soak, command: soak.signal_driver(command, signal.SIGKILL),
    "driver terminated": lambda soak, command: soak.signal_driver(command, signal.SIGTERM),
}


def planted(trials: int, seed: int) -> tuple[list[int], Callable[[int], float]]:
    """The batches in the order in which they are asked for, and how long a step of each waits, in s.

    A small one follows a large one: a figure of the trial before would be false.
    """
    draw, half = random.Random(seed), trials // 2
    small, large = list(range(1, half + 1)), list(range(half + 1, trials + 1))
    draw.shuffle(small)
    draw.shuffle(large)
    pairs = itertools.zip_longest(large, small)
    least_s, most_s = TRUE_S
    batches = [batch for pair in pairs for batch in pair if batch is not None]
    return batches, lambda batch: least_s + (most_s - least_s) * batch / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--faults", type=int, default=len(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--directory", type=Path, help="new; the results and what drivers printed stay there")
    options = parser.parse_args()
    if options.directory is not None and options.directory.exists():
        parser.error(f"--directory: a new one (received {options.directory})")
    with TemporaryDirectory() as temporary, small_disk(Path(temporary) / "disk", DISK) as is_small:
        folder = Path(temporary)
        kinds = [kind for kind in options.kinds if kind != "disk full" or is_small]
        soak = Soak(
            folder,
            folder / "disk",
            schedule(kinds, options.faults, options.trials, options.seed),
            random.Random(options.seed),
            folder / "shortage",
        )
        batches, wait_s = planted(options.trials, options.seed)
        study = STUDY.format(
            layer_s=wait_s(0) / 3,  # the backward pass waits twice as long
            sample_s=(wait_s(1) - wait_s(0)) / 3,
            batches=batches,
            shortage=soak.shortage,
            timeout_s=TIMEOUT_S,
        )
        (folder / "soak.toml").write_text(study)
        began = time.monotonic()
        try:
            soak.run(options.trials)
            records = ResultsDirectory.open_readonly(soak.output).records()
        finally:
            Command.end_all()
            if options.directory is not None:
                copytree(folder, options.directory)
        print(f"{(time.monotonic() - began) / 60:.1f} minutes, {len(soak.ends)} sessions")
    longest_s = TIMEOUT_S + GRACE_S
    found = accounts(records, batches, wait_s, tolerance_s=TOLERANCE_S, longest_s=longest_s)
    print(
        f"left out: {', '.join([*(each for each in KINDS if each not in kinds), 'node lost: there is one'])}"
    )
    sys.exit(not tell(soak, found))


def tell(soak: Soak, found: Accounts) -> bool:
    """Print what came out; whether every promise was kept."""
    states = ", ".join(f"{number} {state}" for state, number in found.states.items())
    print(
        f"trials: {found.asked} asked, {found.complete} complete, {len(found.lost)} lost, "
        f"{len(found.doubled)} counted twice, {len(found.false)} with a false figure; records: {states}"
    )
    if found.errors_s:
        least, middle, most = (1e3 * of(found.errors_s) for of in (min, statistics.median, max))
        print(f"step time less its wait: median {middle:+.2f} ms, {least:+.2f} to {most:+.2f}")
    kinds = Counter(fault.kind for fault in soak.happened)
    words = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
    print(f"faults: {kinds.total()} of {len(soak.faults)} happened, of {len(kinds)} kinds: {words}")
    for role, usage in soak.usage.items():
        print(f"{role}: {usage.words()}")
    broken = [*soak.broken, *soak.lines.changed, *_broken(found, kinds.total())]
    broken += [f"did not happen: {fault.kind}" for fault in soak.faults if not fault.happened]
    for role, usage in soak.usage.items():
        may_bytes = MORE_BYTES + (FIT_BYTES if role == "driver" else 0)
        broken += [f"{role}: grew"] if usage.grew(may_bytes, MORE_FILES) else []
    for line in broken:
        print(f"BROKEN: {line}")
    return not broken


def _broken(found: Accounts, faults: int) -> Sequence[str]:
    failed = sum(number for state, number in found.states.items() if state != "complete")
    return [
        *(f"lost: {each}" for each in found.lost),
        *(f"counted twice: {each}" for each in found.doubled),
        *(f"false: {each}" for each in found.false),
        *([f"{failed} trials failed by {faults} faults"] if failed > faults else []),
    ]


if __name__ == "__main__":
    main()
