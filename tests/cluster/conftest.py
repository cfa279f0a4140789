"""Nodes that are namespaces of this machine, and a study on them under which something breaks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support import budget, local_nodes
from tests.support.local_nodes import LocalNode, LocalNodes

Run = Callable[..., tuple[int, str]]
WAIT_S = 0.02  # of each sample's step, on every node: nothing that the cores decide
LAST_STEP = "last_step"  # a file that each step touches
WORKLOAD = f"""
import contextlib, pathlib, time, torch

class Waiting:
    def model(self): return torch.nn.Linear(64, 8)
    def batch(self, size, generator): return torch.randn(size, 64, generator=generator)
    def dataset(self, split): return torch.utils.data.TensorDataset(torch.randn(16, 64))
    def loss(self, model, batch):
        with contextlib.suppress(OSError):  # a node may not see the folder
            pathlib.Path({{step!r}}).touch()
        time.sleep({WAIT_S})
        return model(batch[0] if isinstance(batch, list) else batch).square().mean()

def build():
    return Waiting()
"""
STUDY = """
name = "waiting"
[workload]
factory = "waiting:build"
{workload}
[knobs]
batch_size = {batches}
[scaling]
world_sizes = {sizes}
placement = ["spread"]
[measure]
steps = 4
min_rounds = 3
visits = 1
[resources]
wait_seconds = 3
{more}
"""
BEGUN_S = 300.0  # until trials are on the disk


@contextmanager
def nodes_of(number: int, **options: Any) -> Iterator[LocalNodes]:
    """``LocalNodes``, counted."""
    budget.took(budget.NODES)
    with LocalNodes(number, **options) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands run: a directory that only the first node has."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="session")
def can_have_nodes() -> None:
    """Skips where nodes cannot be had here, with the reason."""
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def two_nodes(can_have_nodes: None, folder: Path) -> Iterator[LocalNodes]:
    """Each with one core for Ray; they end with the module."""
    with nodes_of(2, private=[folder]) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def run(two_nodes: LocalNodes, folder: Path) -> Run:
    """``raybench`` on the first node: its exit code and what it printed."""

    return lambda *arguments: run_on(two_nodes, folder, *arguments)


def run_on(nodes: LocalNodes, folder: Path, *arguments: str, timeout_s: float = 400) -> tuple[int, str]:
    """``raybench`` on the first of ``nodes``, in ``folder``: its exit code and what it printed."""
    process = nodes.popen(
        [sys.executable, "-m", "raybench.study", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, output


def write_study(
    folder: Path,
    name: str,
    *,
    batches: list[int],
    sizes: str = "[1, 2]",
    workload: str = "",
    more: str = "",
) -> None:
    """A study whose steps wait, as ``name``, and its workload."""
    (folder / "waiting.py").write_text(WORKLOAD.format(step=str(folder / LAST_STEP)))
    (folder / name).write_text(STUDY.format(batches=batches, sizes=sizes, workload=workload, more=more))


@dataclass
class Broken:
    """What became of a study under which something broke."""

    code: int
    words: str  # what it printed, in one line
    before: str  # the records when it broke
    trials: str  # in the end

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.trials.splitlines()]


def run_until_broken(
    nodes: LocalNodes,
    folder: Path,
    *options: str,
    breaks: Callable[[], None],
    within_s: float,
    on: LocalNode | None = None,
    records: int = 1,
) -> Broken:
    """A study of ``waiting.toml`` on a node; ``breaks`` is called in the trial after so many on the disk.

    It must end ``within_s`` of that. Nothing that was on the disk may have been changed.
    """
    output, file = folder / "output.txt", folder / "out" / "trials.jsonl"
    command = [sys.executable, "-m", "raybench.study", "scaling", "waiting.toml", "--output", "out", *options]
    with output.open("w") as printed:
        study = nodes.popen(
            command,
            on,
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=printed,
            stderr=printed,
        )
    try:
        deadline = time.monotonic() + BEGUN_S

        def wait_until(is_so: Callable[[], bool]) -> None:
            while not is_so():
                assert study.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.05)

        wait_until(lambda: file.exists() and file.read_text().count("\n") >= records)
        seen = (folder / LAST_STEP).stat().st_mtime_ns
        wait_until(lambda: (folder / LAST_STEP).stat().st_mtime_ns > seen)
        before = file.read_text()
        breaks()
        code = study.wait(within_s)
    except subprocess.TimeoutExpired:
        pytest.fail(f"still runs:\n{output.read_text()}")
    finally:
        study.kill()
    trials = file.read_text()
    assert trials.startswith(before)
    return Broken(code, " ".join(output.read_text().split()), before, trials)
