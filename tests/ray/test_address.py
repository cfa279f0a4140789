"""A cluster that runs already: joined, left as it was, or refused in a line."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from raybench.commands.process import INTERRUPTED, WRONG_REQUEST
from tests.conftest import ROOT
from tests.ray.conftest import Head
from tests.ray.contract_on_ray import ADDRESS
from tests.ray.of_another_version import VERSIONS
from tests.support import budget
from tests.support.commands import Command
from tests.support.faulty_study import assert_report, read_records, write_study
from tests.support.planted.faults import until

pytestmark = pytest.mark.timeout(900)
ENDS_S = 60.0


class OfAnotherVersion(Command):
    program = ("-m", "tests.ray.of_another_version")


def refusal(kind: type[Command], folder: Path, address: str, **variables: str) -> str:
    """What the command says, with the one line that it ends with."""
    write_study(folder, [8], "[1]")
    command = kind(
        "scaling", "faulty.toml", "--output", "out", "--address", address, folder=folder, variables=variables
    )
    assert command.wait(ENDS_S) == WRONG_REQUEST, command.output
    (line,) = [line for line in command.output.splitlines() if line.startswith("--address")]
    assert "Traceback" not in command.output
    assert not (folder / "out").exists()
    assert address in line
    return command.output


@pytest.mark.promise("token")
def test_without_its_token_it_is_not_joined(tmp_path: Path, head: Head) -> None:
    another = {**head.variables, "RAY_AUTH_TOKEN": "b" * 32}
    assert "InvalidAuthToken" in refusal(Command, tmp_path, head.address, HOME=str(tmp_path), **another)


def test_with_another_version_it_is_not_joined(tmp_path: Path, head: Head) -> None:
    words = refusal(OfAnotherVersion, tmp_path, head.address, **head.variables)
    here = (ray.__version__, platform.python_version())
    assert all(each in words for each in (*VERSIONS, *here))


# Ray Train makes one of each on a cluster, without cores, for whoever uses it next
OF_RAY_TRAIN = ["TrainStateActor", "_AutoscalingCoordinatorActor"]
# what a driver of its own finds of a cluster, but for itself, for each line that it reads
LOOKS = """
import json, sys
import ray
from ray._private.state import state
from ray.util import placement_group_table

ray.init(address=sys.argv[1], log_to_driver=False)
for _ in sys.stdin:
    print(json.dumps({
        "nodes": sum(node["Alive"] for node in ray.nodes()),
        "actors": [each["ActorClassName"] for each in state.actor_table(None).values()
                   if each["State"] != "DEAD" and each["ActorClassName"] not in sys.argv[2:]],
        "groups": sum(each["state"] != "REMOVED" for each in placement_group_table().values()),
        "free": ray.available_resources().get("CPU", 0.0),
    }), flush=True)
"""
Look = Callable[[], dict[str, Any]]


@pytest.fixture
def look(head: Head) -> Iterator[Look]:
    """What is on the cluster."""
    driver = subprocess.Popen(
        [sys.executable, "-c", LOOKS, head.address, *OF_RAY_TRAIN],
        env={**os.environ, **head.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )

    def found() -> dict[str, Any]:
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write("\n")
        return json.loads(next(line for line in driver.stdout if line.startswith("{")))

    with driver:
        yield found
        driver.kill()


class SlowReport(Command):
    program = ("-m", "tests.ray.slow_report")


@pytest.mark.promise("address", "sigterm")
def test_sigterm_leaves_the_report_and_the_cluster_as_it_was(tmp_path: Path, head: Head, look: Look) -> None:
    """Its nodes live, and nothing of the study's is on them when its command is over.

    Ray's core answers the signal with an alarm that aborts the process before its report is drawn, unless it
    is kept from that. How a study goes on is shown over ranks: tests/studies/test_endings.py.
    """
    before = look()
    assert before == {"nodes": 1, "actors": [], "groups": 0, "free": 2.0}
    # long enough to be looked at
    batches = [8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20]
    write_study(tmp_path, batches, "[1]", workload="seconds = 0.05")
    command = SlowReport(
        *("scaling", "faulty.toml", "--output", "out", "--address", head.address),
        folder=tmp_path,
        variables=head.variables,
    )
    command.wait_for("samples/s")
    during = look()
    assert during["free"] == 1.0
    assert "RayTrainWorker" in during["actors"]
    command.send(signal.SIGTERM)
    command.wait_for("SIGTERM: the workers are gone", timeout_s=ENDS_S)
    log = tmp_path / "out" / "ray.log"
    assert until(lambda: "drawing" in log.read_text(errors="replace"), ENDS_S), command.output
    command.send(signal.SIGTERM)  # an impatient second one, while the report is drawn, changes nothing
    assert command.wait(ENDS_S) == INTERRUPTED, command.output
    assert command.survivors(ENDS_S) == []
    assert f"scaling --address {head.address} --resume --output out" in " ".join(command.output.split())
    assert "Traceback" not in command.output
    assert_report(tmp_path)
    kept = read_records(tmp_path)
    assert 1 <= len(kept) < len(batches)
    assert {record["state"] for record in kept} == {"complete"}
    assert until(lambda: look() == before, ENDS_S), look()


SIGNALLED = """
import os, signal, sys, time
import ray
from raybench.errors import Interrupted
from raybench.launch import signals
from raybench.launch.cluster import Cluster

caught = []
with signals.raising():
    cluster = Cluster(address=sys.argv[1])
    cluster.connect()
    for moment in range(10):
        number = signal.SIGTERM if moment % 2 == 0 else signal.SIGINT
        try:
            with signals.held():
                os.kill(os.getpid(), number)
                ray.get(ray.put(moment))  # a call of Ray's under way
                time.sleep(0.1 * moment)
        except Interrupted as interrupted:
            caught.append(str(interrupted))
    time.sleep(4)  # longer than the alarm of the last SIGTERM
    cluster.close()
print(" ".join(caught), flush=True)
"""


def test_ten_signals_under_calls_of_ray_are_ten_interrupts_and_no_alarm(head: Head) -> None:
    budget.took(budget.PROCESSES)
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, head.address],
        env={**os.environ, **head.variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-10:] == ["SIGTERM", "SIGINT"] * 5


class Contract(Command):
    program = ("-m", "pytest", "-q", "-W", "default", str(ROOT / "tests" / "ray" / "contract_on_ray.py"))


def test_a_worker_group_of_rays_does_what_a_runner_does(tmp_path: Path, head: Head) -> None:
    budget.took(budget.GROUPS, 4)
    command = Contract(folder=tmp_path, variables={**head.variables, ADDRESS: head.address})
    assert command.wait(300) == 0, command.output
    assert re.search(r"\b9 passed", command.output), command.output


class Job(Command):
    program = ("-m", "ray.scripts.scripts", "job", "submit")


@pytest.mark.promise("job")
def test_a_study_that_is_submitted_as_a_job_runs_to_its_report(tmp_path: Path, head: Head) -> None:
    """Its driver runs on the head, and takes the cluster around it without being told the address."""
    write_study(tmp_path, [8], "[1]")
    study = [sys.executable, "-m", "raybench.study", "scaling", str(tmp_path / "faulty.toml")]
    command = Job(
        *(
            "--address",
            f"http://127.0.0.1:{head.dashboard_port}",
            "--",
            *study,
            "--output",
            str(tmp_path / "out"),
        ),
        folder=tmp_path,
        variables=head.variables,
    )
    assert command.wait(400) == 0, command.output
    assert "1 node with 2 places for workers of 1 core" in command.output
    assert {record["state"] for record in read_records(tmp_path)} == {"complete"}
    assert_report(tmp_path)
