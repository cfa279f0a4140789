"""The smoke size of every study, on real data, from the shell to the report.

Measured for a shorter time than a user's, as nothing here asks how exact a figure is.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from commands import Command

from raybench.analysis.published import load_figures
from raybench.spec.load import find_study, load_study, studies_folder
from raybench.store import ResultsDirectory

pytestmark = [pytest.mark.ray, pytest.mark.slow]
# the default study's is in test_study.py, that of the strategies in the notebook
ELSEWHERE = {"default", "strategies_resnet_cifar10"}
STUDIES = sorted({file.stem for file in studies_folder().glob("*.toml")} - ELSEWHERE)
BRIEFLY = ("measure.max_seconds=1", "measure.min_rounds=3", "measure.half_width=0.9")


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as opened:
        return list(csv.DictReader(opened))


@pytest.mark.parametrize("study", STUDIES)
def test_goes_from_the_data_to_the_report(study: str, tmp_path: Path, data_dir: Path) -> None:
    fields = [*BRIEFLY, "training.epochs=1"] if load_study(find_study(study)).training else BRIEFLY
    options = [word for field in fields for word in ("--set", field)]
    command = Command(
        "scaling", study, "--smoke", "--data", str(data_dir), "--output", "out", *options, folder=tmp_path
    )
    assert command.wait(280) == 0, command.output
    assert command.survivors(10) == []
    with ResultsDirectory.open_readonly(tmp_path / "out") as store:
        resolved, records = store.study(), list(store.latest().values())
    assert {record.state for record in records} == {"complete"}, command.output
    sizes = {record.request.world_size for record in records if record.request.role == "scaling"}
    assert sizes == {1, 2}
    assert resolved.workload.input == ("synthetic" if study == "mlp_scaling" else "real")
    report = (tmp_path / "out" / "report" / "report.md").read_text()
    assert "## Where the time goes" in report
    figures = load_figures(study)
    assert ("## Published beside measured" in report) == bool(figures)
    if resolved.training is not None:
        trained = rows(tmp_path / "out" / "epochs.csv")
        runs = {(row["world_size"], row["seed"]) for row in trained}
        assert len(trained) == resolved.training.epochs * len(runs)
        assert {world_size for world_size, _ in runs} == {"1", "2"}
        assert all(0 <= float(row["test_accuracy"]) <= 1 for row in trained)
        samples = getattr(resolved.workload, "samples", None)
        assert {int(row["samples"]) for row in trained} == {samples}  # each once, whatever the devices
        assert "## Training to accuracy" in report
