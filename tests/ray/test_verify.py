"""``scaling --verify`` from the shell: a slow loader's cure is confirmed, and resume repeats nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ranks.ranks import results_that_agree
from tests.support.commands import Command

CONFIRMED = r"verified: data-bound -> workers \d: confirmed, \+"
pytestmark = pytest.mark.timeout(600)  # it may be measured twice
STUDY = """
name = "slow_loader"
[workload]
factory = "tests.ranks.slow_data:slow_data"
input = "real"
read_s = 0.020
step_s = 0.010
[knobs]
batch_size = 4
[scaling]
world_sizes = [2]
[search]
method = "grid"
[measure]
half_width = 0.1
max_seconds = 5
min_rounds = 6
"""


def test_the_cure_is_confirmed_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    (tmp_path / "slow_loader.toml").write_text(STUDY)

    def measure(results: str) -> None:
        asked = ("scaling", "slow_loader.toml", "--verify", "--output", results)
        command = Command(*asked, folder=tmp_path, log=f"{results}.txt")
        assert command.wait(400) == 0, command.output

    def check(results: Path) -> None:
        said = " ".join(results.with_suffix(".txt").read_text().split())
        assert "Verifying 1 change that the diagnosis proposes, interleaved" in said
        assert re.search(CONFIRMED, said)
        assert re.search(r"Use it: workers \d as code", said)  # what was confirmed is what is recommended
        assert re.search(r"\| data-bound \| workers \d \|", (results / "report" / "report.md").read_text())

    found = results_that_agree(tmp_path, measure, check)
    before = (found / "trials.jsonl").read_bytes()
    again = Command(
        "scaling", "--resume", "--verify", "--output", found.name, folder=tmp_path, log="again.txt"
    )
    assert again.wait(300) == 0, again.output
    assert (found / "trials.jsonl").read_bytes() == before
    assert re.search(CONFIRMED, " ".join(again.output.split()))
