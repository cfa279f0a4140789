"""A node that loses its power, or its link, in mid-trial."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raybench.testing import local_nodes
from raybench.testing.local_nodes import LocalNodes
from tests.cluster.conftest import run_on
from tests.cluster.test_two_nodes import STUDY, WORKLOAD
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(450)

GRID = STUDY.replace("batch_size = 8", "batch_size = [8, 16, 24, 32]")
WITHIN_S = 90.0


@pytest.mark.parametrize("lost", ["power", "link"])
def test_its_trial_fails_and_the_others_go_on_where_they_fit(tmp_path: Path, lost: str) -> None:
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "waiting.py").write_text(WORKLOAD)
    (tmp_path / "grid.toml").write_text(GRID.format(workload="", more=""))
    output, trials = tmp_path / "output.txt", tmp_path / "out" / "trials.jsonl"
    with LocalNodes(2) as nodes:
        with output.open("w") as file:
            command = [sys.executable, "-m", "raybench.study", "scaling", "grid.toml", "--output", "out"]
            environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
            study = nodes.popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + 150
            while not (trials.exists() and trials.read_text().count("\n") >= 1):
                assert study.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.2)
            before = trials.read_text()
            if lost == "power":
                nodes.end(nodes.nodes[1])
            else:
                nodes.set_link(nodes.nodes[1], up=False)
            code = study.wait(WITHIN_S + 60)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs:\n{output.read_text()}")
        finally:
            study.kill()
        if lost == "power":
            _goes_on_with_one_node(nodes, tmp_path)
    assert code == 0, output.read_text()
    assert trials.read_text().startswith(before)  # nothing recorded is lost
    records = [json.loads(line) for line in trials.read_text().splitlines()]
    once = [record["request"] | record for record in records if not record["request"].get("again")]
    ended = [(record["config"]["world_size"], record["state"]) for record in once]
    assert ended.count((1, "complete")) == 4
    assert set(ended) <= {(2, "complete"), (2, "crashed"), (1, "complete")}
    assert ended.count((2, "complete")) < 4
    words = " ".join(output.read_text().split())
    assert "not measured, since nodes are gone: 2 devices, batch 32" in words
    assert "waiting up to 3 s for 2 places" in words
    late = (tmp_path / "out" / "report" / "diagnosis.md").read_text()
    assert "## Not reached" in late  # by which a script finds it: the exit code is 0


def _goes_on_with_one_node(nodes: LocalNodes, folder: Path) -> None:
    """What is known is not measured a second time, what still does not fit is named again."""
    before = _trial_ids(folder)
    code, output = run_on(nodes, folder, "scaling", "--resume", "--output", "out")
    words = " ".join(output.split())
    assert code == 0, output
    assert "goes on with 1 of 2 nodes: what does not fit on them is left out" in words
    assert "not measured, since nodes are gone: 2 devices, batch 32" in words
    assert _trial_ids(folder) == before


def _trial_ids(folder: Path) -> list[str]:
    """Of the records, but for those of a setting that was measured again."""
    lines = (folder / "out" / "trials.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [record["trial_id"] for record in records if not record["request"].get("again")]
