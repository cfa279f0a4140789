"""The head of a cluster that was joined loses its power or its link, or all nodes theirs, in mid-trial."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from raybench.testing import local_nodes
from raybench.testing.local_nodes import LocalNodes
from tests.cluster.test_lost_node import GRID
from tests.cluster.test_two_nodes import WORKLOAD
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(450)

WITHIN_S = 60.0
OF_RAYS_DEATH = 3


@pytest.mark.parametrize(
    ("runner", "lost"), [("tune", "power"), ("tune", "link"), ("group", "power"), ("group", "switch")]
)
def test_it_ends_with_a_report_and_nothing_recorded_is_lost(tmp_path: Path, runner: str, lost: str) -> None:
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "waiting.py").write_text(WORKLOAD)
    (tmp_path / "grid.toml").write_text(GRID.format(workload="", more=""))
    output, trials = tmp_path / "output.txt", tmp_path / "out" / "trials.jsonl"
    study_line = ["scaling", "grid.toml", "--runner", runner]
    command = [sys.executable, "-m", "raybench.study", *study_line]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with LocalNodes(3) as nodes:
        head, drivers = nodes.nodes[:2]
        with output.open("w") as file:
            study = nodes.popen(
                [*command, "--output", "out"],
                drivers,
                cwd=tmp_path,
                env=environment,
                stdout=file,
                stderr=file,
            )
        try:
            deadline = time.monotonic() + 240
            while not (trials.exists() and trials.read_text().count("\n") >= 1):
                assert study.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.2)
            before = trials.read_text()
            if lost == "power":
                nodes.end(head)
            elif lost == "link":
                nodes.set_link(head, up=False)
            else:
                nodes.cut_switch()
            code = study.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs:\n{output.read_text()}")
        finally:
            study.kill()
    words = " ".join(output.read_text().split())
    assert code == OF_RAYS_DEATH, words
    assert trials.read_text().startswith(before)
    assert f"the head of the cluster, {nodes.address}, has not answered for" in words
    asked = "--runner tune " if runner == "tune" else ""
    assert f"scaling {asked}--resume --output out" in words
    assert (tmp_path / "out" / "report" / "report.html").exists()
