"""A cluster that cannot be joined is told in a line: nobody there, silent, of another Ray, with a token."""

from __future__ import annotations

import platform
import socket
import time
from pathlib import Path

import pytest
import ray

from tests.ray.test_join import free_port, running_head
from tests.support.commands import Command
from tests.support.faulty_study import write_study

# Ray's own command line, of another release or another Python, by what it says of itself
OF_VERSIONS = """
import ray
from ray.scripts.scripts import main
ray._private.utils.compute_version_info = lambda: {versions}
main()
"""
HERE = (ray.__version__, platform.python_version())
TOKEN = "a" * 32
MOST_S = 60.0  # 30 s are for a head that is being started, the rest is for busy cores


def refusal(folder: Path, address: str, **variables: str) -> str:
    """The one line that the command ends with, soon."""
    write_study(folder, [8])
    given = {"RAY_AUTH_MODE": "disabled", **variables}
    began = time.monotonic()
    command = Command(
        "scaling", "faulty.toml", "--output", "out", "--address", address, folder=folder, variables=given
    )
    assert command.wait() == 2, command.output
    (line,) = [line for line in command.output.splitlines() if line.startswith("--address")]
    assert "Traceback" not in command.output
    assert not (folder / "out").exists()
    assert time.monotonic() - began < MOST_S
    return line


def test_where_nobody_answers(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    line = refusal(tmp_path, address)
    assert line.startswith("--address: a Ray cluster that answers: Connection refused, tried for 30 s")
    assert address in line


def test_where_somebody_is_silent(tmp_path: Path) -> None:
    """It takes the connection, and never says a word: another program's port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        line = refusal(tmp_path, address)
    assert line.startswith("--address: a Ray cluster that answers: nothing answers there")
    assert address in line


@pytest.mark.parametrize("versions", [("2.59.0", HERE[1]), (HERE[0], "3.10.9")], ids=["ray", "python"])
def test_a_cluster_of_another_version(tmp_path: Path, versions: tuple[str, str]) -> None:
    program = ("-c", OF_VERSIONS.format(versions=versions))
    variables = {"RAY_AUTH_MODE": "disabled"}
    with running_head("--include-dashboard", "false", program=program, variables=variables) as (address, _):
        line = refusal(tmp_path, address)
    assert line.startswith("--address: a Ray cluster that can be joined from here: Version mismatch")
    assert all(each in line for each in (*versions, *HERE, address))


def test_a_cluster_that_asks_for_a_token(tmp_path: Path) -> None:
    asks = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    with running_head("--include-dashboard", "false", variables=asks) as (address, _):
        line = refusal(tmp_path, address)
        assert "it asks for a token, and no token was sent" in line
        line = refusal(tmp_path, address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN[::-1] + "b")
        assert "the token that was sent is another one" in line
        nowhere = {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}
        line = refusal(tmp_path, address, **nowhere)
        assert "there is no token here" in line
