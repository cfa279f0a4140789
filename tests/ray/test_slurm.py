"""The files for Slurm, run from end to end: this test is sbatch, and srun starts its lines for real.

Two nodes are two nodes of Ray on this machine. ``ray symmetric-run`` tells them by their addresses, and ends
all Ray processes that it sees: there each node has process and network namespaces of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT
from tests.support.faulty_study import write_study

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FILES = ROOT / "deploy" / "slurm"
JOB = 71234
TIMEOUT_S = 400
HERE: dict[str, list[str]] = {"node0": [], "node1": []}


class Job:
    """A job without Slurm: the variables that sbatch sets, and programs in the place of Slurm's own."""

    def __init__(self, folder: Path, nodes: dict[str, list[str]]) -> None:
        self.folder, programs = folder, folder / "programs"
        programs.mkdir()
        names = "\n".join(nodes)
        _script(programs / "srun", f'exec {sys.executable} {ROOT}/tests/ray/fake_srun.py "$@"')
        _script(programs / "scontrol", f'[ "$1 $2" = "show hostnames" ] && echo {shlex.quote(names)}')
        activate = folder / "environment" / "bin" / "activate"
        activate.parent.mkdir(parents=True)
        activate.write_text(f"export PATH={programs}:{Path(sys.executable).parent}:$PATH\n")
        self.temporary = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
        write_study(folder, [8], "[1, 2]")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))},
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),  # where the token is made
            "RAY_TMPDIR": self.temporary.name,
            "RAYBENCH_VENV": str(folder / "environment"),
            "FAKE_NODES": json.dumps(nodes),
            "SLURM_SUBMIT_DIR": str(folder),
            "SLURM_JOB_ID": str(JOB),
            "SLURM_JOB_NAME": "raybench",
            "SLURM_JOB_NODELIST": "node[0-1]",
            "SLURM_JOB_NUM_NODES": str(len(nodes)),
            "SLURM_CPUS_PER_TASK": "2" if len(nodes) == 1 else "1",
        }

    def run(self, file: str, *arguments: str) -> tuple[int, str]:
        """The exit code and what was printed; nothing of the job's may be left afterwards."""
        process = self.start(file, *arguments)
        try:
            process.wait(TIMEOUT_S)
        finally:
            left = self.left(20)
            for each in left:
                each.kill()
        assert not left, self.printed
        return process.returncode, self.printed

    def start(self, file: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "printed.txt").open("w") as printed:
            return subprocess.Popen(
                ["bash", str(FILES / file), *arguments],
                cwd="/",
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return (self.folder / "printed.txt").read_text()

    def left(self, within_s: float) -> list[psutil.Process]:
        """Processes of the job that have not ended after so long: those that have its variables."""
        deadline = time.monotonic() + within_s
        while (found := list(self._processes())) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get("RAY_TMPDIR") == self.temporary.name:
                    yield process
            except psutil.Error:
                continue

    def records(self) -> list[dict[str, Any]]:
        lines = (self.folder / "results" / f"raybench-{JOB}" / "trials.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def nodes_by_size(job: Job) -> dict[int, int]:
    """Of complete trials: world size, and on how many nodes it was."""
    assert {record["state"] for record in job.records()} == {"complete"}
    return {record["request"]["config"]["world_size"]: record["nodes"] for record in job.records()}


def test_one_node(tmp_path: Path) -> None:
    job = Job(tmp_path, {"node0": []})
    code, printed = job.run("one-node.sbatch", "faulty.toml", "--device", "cpu")
    assert code == 0, printed
    assert nodes_by_size(job) == {1: 1, 2: 1}


@pytest.mark.promise("slurm")
def test_several_nodes(tmp_path: Path) -> None:
    job = Job(tmp_path, HERE)
    code, printed = job.run("several-nodes.sbatch", "faulty.toml", "--device", "cpu")
    assert code == 0, printed
    assert "2 nodes joined" in printed
    assert nodes_by_size(job) == {1: 1, 2: 2}
    assert (tmp_path / ".ray" / "auth_token").exists()


def test_a_job_that_slurm_ends_keeps_what_it_has(tmp_path: Path) -> None:
    job = Job(tmp_path, HERE)
    process = job.start("several-nodes.sbatch", "faulty.toml", "--device", "cpu", "--set", "measure.starts=9")
    deadline = time.monotonic() + TIMEOUT_S
    while "samples/s" not in job.printed and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)  # to the script alone, as --signal=B: has it
    assert process.wait(TIMEOUT_S) == 130, job.printed
    assert job.left(20) == []
    assert job.records()
    assert (tmp_path / "results" / f"raybench-{JOB}" / "report" / "report.md").exists(), job.printed


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[dict[str, list[str]]]:
    """Two nodes, each with processes, a name and an address of its own, and a wire between them."""
    nodes = {}
    made = list[str]()
    try:
        for number in range(2):
            name = f"raybench{os.getpid()}n{number}"
            _root("ip", "netns", "add", name)
            made.append(name)
            hosts = tmp_path / f"hosts{number}"
            hosts.write_text(f"127.0.0.1 localhost\n10.213.7.{number + 1} node{number}\n")
            # the first process of a node is a shell, which takes leave of those that nobody waits for
            become = f"mount --bind {hosts} /etc/hosts && hostname node{number}"
            inside = f'{become} && "$@"; code=$?; echo "node{number} ended with $code" >&2; exit $code'
            enter = [
                "nsenter",
                f"--net=/run/netns/{name}",
                "unshare",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
            ]
            nodes[f"node{number}"] = [*enter, "--mount-proc", "sh", "-c", inside, "sh"]
        _root("ip", "link", "add", "wire", "netns", made[0], "type", "veth", "peer", "wire", "netns", made[1])
        for number, name in enumerate(made):
            _root("ip", "-n", name, "address", "add", f"10.213.7.{number + 1}/24", "dev", "wire")
            _root("ip", "-n", name, "link", "set", "wire", "up")
            _root("ip", "-n", name, "link", "set", "lo", "up")
        tried = subprocess.run(
            [*nodes["node0"], "hostname", "--ip-address"], capture_output=True, text=True, check=False
        )
        if tried.stdout.strip() != "10.213.7.1":
            pytest.skip(f"no namespaces here: {tried.stdout}{tried.stderr}")
        yield nodes
    finally:
        for name in made:
            _root("ip", "netns", "delete", name)


def _root(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no namespaces here: {' '.join(command)}: {done.stderr.strip()}")


def test_several_nodes_by_symmetric_run(tmp_path: Path, apart: dict[str, list[str]]) -> None:
    job = Job(tmp_path, apart)
    # a further node ends when it has missed the head for so long: by default a minute
    job.environment["RAY_gcs_rpc_server_reconnect_timeout_s"] = "20"
    code, printed = job.run("several-nodes-symmetric.sbatch", "faulty.toml", "--device", "cpu")
    assert code == 0, printed
    assert nodes_by_size(job) == {1: 1, 2: 2}
