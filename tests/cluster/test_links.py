"""Links of a known rate: what a sweep finds of them, and what a study's transfers take over them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from raybench.testing import local_nodes
from raybench.testing.local_nodes import LocalNodes, bits_per_s
from tests.cluster.conftest import run_on
from tests.ranks.ranks import results_that_agree

pytestmark = pytest.mark.timeout(600)  # it may be measured twice

# Of what tc lets through that is not payload: 66 bytes of headers in a frame of 1,514.
PAYLOAD = 1448 / 1514
WITHIN = 0.07
RATES = ("100mbit", "300mbit")

WORKLOAD = """
import time, torch

class Late:
    \"\"\"One layer, whose gradient of 4 MiB is ready when nothing is left to hide it behind.\"\"\"
    def model(self): return torch.nn.Linear(1024, 1024, bias=False)
    def batch(self, size, generator): return torch.ones(size, 1024)
    def loss(self, model, batch):
        time.sleep(0.05)
        return model(batch).mean()

def build():
    return Late()
"""
GRADIENT_BYTES = 4 * 2**20
STUDY = """
name = "late"
[workload]
factory = "late:build"
[knobs]
batch_size = 2
[scaling]
world_sizes = [2]
placement = ["spread"]
[measure]
steps = 3
min_rounds = 6
max_seconds = 30
timeout_seconds = 100
"""


@pytest.fixture(scope="module")
def nodes() -> Iterator[LocalNodes]:
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)
    with LocalNodes(2, cpus=2) as two:
        yield two


def run(nodes: LocalNodes, folder: Path, *arguments: str) -> None:
    code, output = run_on(nodes, folder, *arguments, timeout_s=250)
    assert code == 0, output


@pytest.mark.parametrize("rate", RATES)
def test_the_bandwidth_of_a_link_is_its_rate_and_a_node_has_more(
    rate: str, nodes: LocalNodes, tmp_path: Path
) -> None:
    for node in nodes.nodes:
        nodes.set_rate(node, rate)
    sweep = ["--collectives", "all_reduce", "--sizes", "4MiB", "--max-seconds", "12s"]
    where = ["--world-sizes", "2", "--placement", "pack,spread"]

    def measure(output: str) -> None:
        run(nodes, tmp_path, "communication", *sweep, *where, "--output", output)

    def check(output: Path) -> None:
        with (output / "report" / "communication.csv").open(newline="") as file:
            rows = {row["placement"]: row for row in csv.DictReader(file)}
        bandwidth = {name: 8 * float(row["bus_bandwidth_bytes_per_s"]) for name, row in rows.items()}
        assert bandwidth["spread"] == pytest.approx(PAYLOAD * bits_per_s(rate), rel=WITHIN)
        assert (rows["pack"]["nodes"], rows["spread"]["nodes"]) == ("1", "2")
        assert rows["spread"]["decided_by"] == "link"
        assert bandwidth["pack"] > 2 * bandwidth["spread"]  # within a node nothing is shaped

    results_that_agree(tmp_path, measure, check)


def test_exposed_communication_is_bytes_over_the_rate(nodes: LocalNodes, tmp_path: Path) -> None:
    for node in nodes.nodes:
        nodes.set_rate(node, "300mbit")
    (tmp_path / "late.py").write_text(WORKLOAD)
    (tmp_path / "late.toml").write_text(STUDY)

    def measure(output: str) -> None:
        run(nodes, tmp_path, "scaling", "late.toml", "--output", output)

    def check(output: Path) -> None:
        with (output / "report" / "summary.csv").open(newline="") as file:
            (row,) = (row for row in csv.DictReader(file) if row["role"] == "scaling")
        assert int(row["gradient_bytes"]) == GRADIENT_BYTES
        expected_s = 8 * GRADIENT_BYTES / (PAYLOAD * bits_per_s("300mbit"))  # 2 (n - 1) / n is 1 for two
        assert float(row["exposed_communication_s"]) == pytest.approx(expected_s, rel=0.15)
        records = [json.loads(line) for line in (output / "trials.jsonl").read_text().splitlines()]
        assert {record["nodes"] for record in records} == {2}

    results_that_agree(tmp_path, measure, check)
