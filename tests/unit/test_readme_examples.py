"""README's examples that need no worker, exactly as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from raybench.study import app
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
BATCH, MOST_DEVICES = 12, 16


def block(containing: str) -> str:
    """README's only code block with this text."""
    (found,) = (text for text in re.findall(r"```\w*\n(.*?)```", README, flags=re.S) if containing in text)
    return str(found)


@pytest.mark.promise("predict example")
def test_predict_prints_what_stands_there(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"num_nodes": "nodes", "num_replicas": "world_size"}
    scaled = pd.read_csv(data_dir / "ddp_traces" / "bert-scalability.csv").rename(columns=names)
    placed = pd.read_csv(data_dir / "ddp_traces" / "bert-placements.csv", dtype={"placement": str})
    placed["nodes"] = placed.placement.str.len()
    placed["world_size"] = placed.placement.map(lambda digits: sum(map(int, digits)))
    every = pd.concat([scaled, placed]).rename(
        columns={"local_bsz": "batch_size", "step_time": "step_time_s"}
    )
    chosen = every[(every.batch_size == BATCH) & (every.world_size <= MOST_DEVICES)]
    chosen[["nodes", "world_size", "batch_size", "step_time_s"]].to_csv("bert_t4.csv", index=False)
    typed, *printed = block("predict bert_t4.csv").splitlines()
    done = CliRunner().invoke(app, shlex.split(typed.removeprefix("$ python -m raybench.study ")))
    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.output.strip().splitlines()] == [line.rstrip() for line in printed]
