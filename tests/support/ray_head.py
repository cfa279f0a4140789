"""A Ray cluster of one node that runs already, for whoever joins it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from tests.conftest import ROOT
from tests.support import budget
from tests.support.local_nodes import AS_IMPORTANT

START_S, END_S = 120.0, 60.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def running_head(
    *options: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and the process of a head with two cores; at the end it must still run, and is ended."""
    budget.took(budget.CLUSTERS)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        devices = ["--num-cpus", "2", "--num-gpus", "0"]
        head = subprocess.Popen(
            [*start, *devices, "--port", str(port), "--temp-dir", folder, *options],
            # at its end a node would wait half a minute for work that is over
            env={
                **os.environ,
                **AS_IMPORTANT,
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
            assert head.poll() is None, "the cluster was ended"
        finally:
            family = [*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)]
            head.terminate()
            _, alive = psutil.wait_procs(family, timeout=END_S)
            for process in alive:
                process.kill()
            head.wait()


def wait_for_port(head: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert head.poll() is None, "the head node has ended"
        assert time.monotonic() < deadline, "the head node does not answer"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
