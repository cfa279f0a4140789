"""A study on a cluster that runs already: joined once, left as it was."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT
from tests.support.commands import Command
from tests.support.faulty_study import assert_report, read_records, write_study

END_S = 20.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a head node with two cores, which ends with the test."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # by default Ray asks for a token where there is one
    with running_head("--include-dashboard", "false") as (address, _):
        yield address


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of such a node, which takes jobs."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port, agent = free_port(), free_port()
    ports = ("--dashboard-port", str(port), "--dashboard-agent-listen-port", str(agent))
    with running_head("--include-dashboard", "true", *ports) as (_, head):
        for each in (port, agent):
            wait_for_port(head, each)
        yield f"http://127.0.0.1:{port}"


RAY = ("-m", "ray.scripts.scripts")


@contextmanager
def running_head(
    *options: str, program: tuple[str, ...] = RAY, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A head node's address and process; it is ended at the end, and must not have been before."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        start = [sys.executable, *program, "start", "--head", "--block"]
        devices = ["--num-cpus", "2", "--num-gpus", "0"]
        head = subprocess.Popen(
            [*start, *devices, "--port", str(port), "--temp-dir", folder, *options],
            # at its end a node would wait half a minute for work that is over
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "RAY_ENABLE_AUTO_CONNECT": "0",
                "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
                **(variables or {}),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for_port(head, port)
            yield f"127.0.0.1:{port}", head
            assert head.poll() is None, "the study has ended the cluster"
        finally:
            family = [*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)]
            head.terminate()
            _, alive = psutil.wait_procs(family, timeout=END_S)
            for process in alive:
                process.kill()
            head.wait()


def wait_for_port(head: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert head.poll() is None, "the head node has ended"
        assert time.monotonic() < deadline, "the head node does not answer"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return


def test_a_running_cluster_is_joined_and_left(tmp_path, address):
    write_study(tmp_path, [8])
    arguments = ("scaling", "faulty.toml", "--output", "out", "--address", address)
    for resume in ((), ("--resume",)):
        command = Command(*arguments, *resume, folder=tmp_path)
        assert command.wait() == 0, command.output
    assert "Ray dashboard" in command.output
    assert {record["state"] for record in read_records(tmp_path)} == {"complete"}


# Ray Train makes one of each on a cluster, without cores, for whoever uses it next
OF_RAY_TRAIN = ["TrainStateActor", "_AutoscalingCoordinatorActor"]
# what a driver of its own finds of a cluster, but for itself
LOOK = """
import json, sys
import ray
from ray._private.state import state
from ray.util import placement_group_table

ray.init(address=sys.argv[1], log_to_driver=False)
print(json.dumps({
    "nodes": sum(node["Alive"] for node in ray.nodes()),
    "actors": [each["ActorClassName"] for each in state.actor_table(None).values()
               if each["State"] != "DEAD" and each["ActorClassName"] not in sys.argv[2:]],
    "groups": sum(each["state"] != "REMOVED" for each in placement_group_table().values()),
    "free": ray.available_resources().get("CPU", 0.0),
}))
"""


def found_on(address: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, address, *OF_RAY_TRAIN],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_an_interrupt_leaves_the_cluster_as_it_was(tmp_path: Path, address: str) -> None:
    """Its nodes live, and nothing of the study's is on them when its command is over."""
    before = found_on(address)
    assert before == {"nodes": 1, "actors": [], "groups": 0, "free": 2.0}
    write_study(tmp_path, [8, 9], workload="seconds = 0.005")
    command = Command("scaling", "faulty.toml", "--output", "out", "--address", address, folder=tmp_path)
    command.wait_for("samples/s")
    during = found_on(address)
    assert during["free"] == 0.0
    assert "RayTrainWorker" in during["actors"]
    command.send(signal.SIGINT)
    assert command.wait(60) == 130, command.output
    assert f"scaling --address {address} --resume --output out" in " ".join(command.output.split())
    assert_report(tmp_path)
    deadline = time.monotonic() + END_S
    while (after := found_on(address)) != before:
        assert time.monotonic() < deadline, after
        time.sleep(0.5)


class Job(Command):
    program = ("-m", "ray.scripts.scripts", "job", "submit")


def test_a_study_that_is_submitted_as_a_job_runs_to_its_report(tmp_path: Path, dashboard: str) -> None:
    """Its driver runs on the head, and takes the cluster around it without being told the address."""
    write_study(tmp_path, [8])
    output = tmp_path / "out"
    study = [sys.executable, "-m", "raybench.study", "scaling", str(tmp_path / "faulty.toml")]
    command = Job("--address", dashboard, "--", *study, "--output", str(output), folder=tmp_path)
    assert command.wait() == 0, command.output
    assert "1 node with 2 places for workers of 1 core" in command.output
    assert {record["state"] for record in read_records(tmp_path)} == {"complete"}
    assert_report(tmp_path)
