"""The README's example of a workload of one's own, exactly as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raybench.analysis.summary import frame_of, summarize
from raybench.records.store import ResultsDirectory
from tests.conftest import ROOT
from tests.support.forked import ForkedCommand

README = ROOT / "README.md"


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.S)
    found = [text for text in blocks if containing in text]
    assert len(found) == 1, f"one {language} block with {containing!r} in the README, found {len(found)}"
    return str(found[0])


@pytest.mark.promise("own workload")
def test_own_workload_of_the_readme_runs(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(block("python", "class TinyRegression"))
    (tmp_path / "my_study.toml").write_text(block("toml", 'name = "my_study"'))
    line = next(line for line in README.read_text().splitlines() if line.endswith("scaling my_study.toml"))
    arguments = line.removeprefix("python -m raybench.study ").split()
    command = ForkedCommand(*arguments, "--output", "out", "--steps", "3", folder=tmp_path)
    assert command.wait() == 0, command.output
    with ResultsDirectory.open_readonly(tmp_path / "out") as store:
        frame = frame_of(summarize(store.records()))
    assert set(frame["state"]) == {"complete"}
    assert set(frame["batch_size"]) == {256, 32}
    assert set(frame[frame["role"] == "scaling"]["world_size"]) == {1, 2}
    assert "samples/s" in command.output
    assert command.survivors(10) == []
