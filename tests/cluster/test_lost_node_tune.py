"""A node that loses its power under one of several trials of Tune's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raybench.testing import local_nodes
from raybench.testing.local_nodes import LocalNodes
from tests.cluster.test_two_nodes import STUDY, WORKLOAD
from tests.conftest import ROOT

pytestmark = pytest.mark.timeout(590)

COMMAND = [sys.executable, "-m", "raybench.study", "scaling"]
BATCHES = [8, 16, 24, 32, 40, 48]
ONE_DEVICE = STUDY.replace("batch_size = 8", f"batch_size = {BATCHES}").replace("[1, 2]", "[1]")


def test_the_trials_beside_it_are_kept_and_the_rest_is_measured_on_the_other_nodes(tmp_path: Path) -> None:
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "waiting.py").write_text(WORKLOAD)
    (tmp_path / "grid.toml").write_text(ONE_DEVICE.format(workload="", more=""))
    output, trials = tmp_path / "output.txt", tmp_path / "out" / "trials.jsonl"
    with LocalNodes(3) as nodes:
        with output.open("w") as file:
            study = nodes.popen(
                [*COMMAND, "grid.toml", "--runner", "tune", "--output", "out"],
                cwd=tmp_path,
                env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                stdout=file,
                stderr=file,
            )
        try:
            deadline = time.monotonic() + 250
            while not (trials.exists() and trials.read_text().count("\n") >= 3):
                assert study.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.2)
            before = trials.read_text()
            lost = nodes.nodes[2]
            nodes.end(lost)
            code = study.wait(250)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs:\n{output.read_text()}")
        finally:
            study.kill()
    assert code == 0, output.read_text()
    assert trials.read_text().startswith(before)
    records = [json.loads(line) for line in trials.read_text().splitlines()]
    curve = [record for record in records if record["request"]["role"] == "scaling"]
    once = [record for record in curve if not record["request"].get("again")]
    assert sorted(each["request"]["config"]["setting"]["batch_size"] for each in once) == BATCHES
    states = [record["state"] for record in once]
    assert set(states) <= {"complete", "crashed"}
    assert states.count("crashed") <= 1  # the one that was on the node, where its workers had begun
    after = [record for record in records[before.count("\n") :] if record["state"] == "complete"]
    assert after
    assert all(record["hostnames"] != [lost.name] for record in after)
