"""A study on a cluster that runs already: joined once, left as it was."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.ray.commands import Command
from tests.ray.test_faults import read_records, write_study

pytestmark = [pytest.mark.ray, pytest.mark.slow]

END_S = 20.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a head node with two cores, which ends with the test."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # by default Ray asks for a token where there is one
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        devices = ["--num-cpus", "2", "--num-gpus", "0"]
        head = subprocess.Popen(
            [*start, *devices, "--port", str(port), "--include-dashboard", "false", "--temp-dir", folder],
            # at its end a node would wait half a minute for work that is over
            env={
                **os.environ,
                "RAY_ENABLE_AUTO_CONNECT": "0",
                "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_for_port(head, port)
            yield f"127.0.0.1:{port}"
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
