"""Links of a known rate: what a sweep finds of them, and what a study's transfers take over them.

A slow link, so that the cores have little to do. Nothing is faster than arithmetic has it, and at most a
tenth slower.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from tests.cluster.conftest import nodes_of, run_on
from tests.ranks.agreement import MUCH, others_took
from tests.support.local_nodes import LEAST_BURST_BYTES, LocalNodes, bits_per_s

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1200)]

# Of what tc lets through that is not payload: 66 bytes of headers in a frame of 1,514.
PAYLOAD = 1448 / 1514
MESSAGE_BYTES = 4 * 2**20
# what a bucket that has filled up lets through at once is not at its rate
FASTER = 1 / (1 - LEAST_BURST_BYTES / MESSAGE_BYTES)
SLOWER = 1.1
RATE = "100mbit"

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
visits = 1
max_seconds = 30
timeout_seconds = 100
"""


@pytest.fixture(scope="module")
def nodes(can_have_nodes: None) -> Iterator[LocalNodes]:
    with nodes_of(2, cpus=2) as two:
        yield two


def run(nodes: LocalNodes, folder: Path, *arguments: str) -> None:
    code, output = run_on(nodes, folder, *arguments)
    assert code == 0, output


def transfer_s(rate: str) -> float:
    """Of the payload of an all-reduce of two ranks: each sends as many bytes as the message has."""
    return 8 * MESSAGE_BYTES / (PAYLOAD * bits_per_s(rate))


@pytest.mark.promise("link rate")
@pytest.mark.parametrize("rate", [RATE, pytest.param("300mbit", marks=pytest.mark.long)])
def test_the_bandwidth_of_a_link_is_its_rate_and_a_node_has_more(
    rate: str, nodes: LocalNodes, tmp_path: Path
) -> None:
    for node in nodes.nodes:
        nodes.set_rate(node, rate)
    sweep = ["--collectives", "all_reduce", "--sizes", "4MiB", "--max-seconds", "6s"]
    where = ["--world-sizes", "2", "--placement", "pack,spread"]
    run(nodes, tmp_path, "communication", *sweep, *where, "--output", "out")
    with (tmp_path / "out" / "report" / "communication.csv").open(newline="") as file:
        rows = {row["placement"]: row for row in csv.DictReader(file)}
    bandwidth = {name: float(row["bus_bandwidth_bytes_per_s"]) for name, row in rows.items()}
    taken_s = MESSAGE_BYTES / bandwidth["spread"]
    assert transfer_s(rate) / FASTER <= taken_s <= transfer_s(rate) * SLOWER
    assert (rows["pack"]["nodes"], rows["spread"]["nodes"]) == ("1", "2")
    assert bandwidth["pack"] > 2 * bandwidth["spread"]  # within a node nothing is shaped


@pytest.mark.long
def test_exposed_communication_is_bytes_over_the_rate(nodes: LocalNodes, tmp_path: Path) -> None:
    for node in nodes.nodes:
        nodes.set_rate(node, RATE)
    (tmp_path / "late.py").write_text(WORKLOAD)
    (tmp_path / "late.toml").write_text(STUDY)
    out = tmp_path / "out"
    run(nodes, tmp_path, "scaling", "late.toml", "--output", "out")
    if (took := fmean(others_took(each.steps) for each in records(out) if each.steps)) > MUCH:
        print(f"measured once more: others took {took:.2f} of the cores")
        out = tmp_path / "undisturbed"
        run(nodes, tmp_path, "scaling", "late.toml", "--output", out.name)
    with (out / "report" / "summary.csv").open(newline="") as file:
        row = [row for row in csv.DictReader(file) if row["role"] == "scaling"][-1]
    assert int(row["gradient_bytes"]) == MESSAGE_BYTES
    exposed_s = float(row["exposed_communication_s"])
    assert transfer_s(RATE) / FASTER <= exposed_s <= transfer_s(RATE) * SLOWER
    assert {record.nodes for record in records(out)} == {2}


def records(results: Path) -> list[TrialRecord]:
    with ResultsDirectory.open_readonly(results) as store:
        return store.records()
