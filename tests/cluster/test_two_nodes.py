"""A study over two nodes, one of which has nothing of the driver's: what travels, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.conftest import WAIT_S, Run, write_study
from tests.support.local_nodes import LocalNodes

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def study(folder: Path) -> Path:
    write_study(folder, "two.toml", batches=[8])
    return folder / "two.toml"


@pytest.mark.promise("two nodes")
def test_package_and_factory_travel_and_every_figure_names_its_node(run: Run, study: Path) -> None:
    code, output = run("scaling", str(study), "--output", "out")
    assert code == 0, output
    lines = (study.parent / "out" / "trials.jsonl").read_text().splitlines()
    records = {record["request"]["config"]["world_size"]: record for record in map(json.loads, lines)}
    assert {record["state"] for record in records.values()} == {"complete"}, output
    assert (records[2]["nodes"], sorted(records[2]["hostnames"])) == (2, ["node-1", "node-2"])
    assert records[1]["nodes"] == 1
    blocks = [block for each in records[2]["result"]["rounds"] for block in each["blocks"]]
    ddp = [block for block in blocks if block["variant"] == "ddp"]
    assert all(min(block["step_time_s"]) >= WAIT_S for block in ddp)
    environment = json.loads((study.parent / "out" / "environment.json").read_text())
    assert [node["hostname"] for node in environment["nodes"]] == ["node-1", "node-2"]
    assert "node-1, node-2" in (study.parent / "out" / "report" / "report.md").read_text()


@pytest.mark.promise("doctor of a cluster")
def test_doctor_sees_every_node_and_the_way_between_them(
    run: Run, study: Path, two_nodes: LocalNodes
) -> None:
    code, output = run("doctor", "--address", two_nodes.address)
    assert code == 0, output
    assert "2 with 2 cores and 0 GPUs for Ray: node-1 (10.77.0.1), node-2 (10.77.0.2)" in " ".join(
        output.split()
    )
    assert "node-1 and node-2: 2 workers, gloo, 16 MiB" in " ".join(output.split())


def test_a_training_without_a_shared_directory_is_refused(run: Run, study: Path) -> None:
    training = "[training]\nepochs = 1"
    write_study(study.parent, "training.toml", batches=[8], workload='input = "real"', more=training)
    code, output = run("scaling", "training.toml", "--output", "trained")
    assert code == 2, output
    assert "not so on node-2 (10.77.0.2)" in output
    assert "Traceback" not in output
    assert not (study.parent / "trained").exists()


def test_more_workers_than_the_cluster_has_are_waited_for_and_refused(run: Run, study: Path) -> None:
    code, output = run("scaling", str(study), "--world-sizes", "1,4", "--output", "four")
    assert code == 2
    assert "waiting up to 3 s for 4 places" in output
    assert "scaling.world_sizes: at most 2" in output
    assert not (study.parent / "four").exists()
