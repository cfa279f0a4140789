"""A study of the workload that fails as its batch size says, and what a command leaves of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOES_ON = "To go on: python -m raybench.study scaling --resume --output out"
STUDY = """
name = "faulty"
[workload]
factory = "{factory}"
{workload}
[knobs]
batch_size = {batches}
[scaling]
world_sizes = {sizes}
{scaling}
[measure]
min_rounds = 3
steps = 1
warmup_steps = 1
max_seconds = 1
timeout_seconds = {timeout_s}
half_width = 0.5
visits = 1
{more}
"""


def write_study(
    folder: Path,
    batches: list[int],
    sizes: str = "[2]",
    *,
    workload: str = "",
    scaling: str = "",
    more: str = "",
    factory: str = "tests.support.faulty:build",
    timeout_s: float = 60,  # of a trial: on busy cores a sound one may take long
) -> None:
    text = STUDY.format(
        batches=batches,
        sizes=sizes,
        workload=workload,
        scaling=scaling,
        more=more,
        factory=factory,
        timeout_s=timeout_s,
    )
    (folder / "faulty.toml").write_text(text)


def read_records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "out" / "trials.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_report(folder: Path) -> None:
    for name in ("report.html", "report.md", "diagnosis.md", "summary.csv", "summary.tex"):
        assert (folder / "out" / "report" / name).exists(), name
