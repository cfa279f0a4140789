"""Nodes that are namespaces of this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raybench.testing import local_nodes
from raybench.testing.local_nodes import LocalNodes
from tests.conftest import ROOT

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands run: a directory that only the first node has."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def two_nodes(folder: Path) -> Iterator[LocalNodes]:
    """Each with one core for Ray; they end with the module."""
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)
    with LocalNodes(2, private=[folder]) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def run(two_nodes: LocalNodes, folder: Path) -> Run:
    """``raybench`` on the first node: its exit code and what it printed."""

    return lambda *arguments: run_on(two_nodes, folder, *arguments)


def run_on(nodes: LocalNodes, folder: Path, *arguments: str, timeout_s: float = 200) -> tuple[int, str]:
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
    output, _ = process.communicate(timeout=timeout_s)
    return process.returncode, output
