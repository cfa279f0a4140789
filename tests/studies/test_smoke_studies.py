"""The smoke size of every study, on real data, from the command line to the report.

Measured for a shorter time than a user's, as nothing here asks how exact a figure is.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from raybench.analysis.published import load_figures, published_rows
from raybench.records.store import ResultsDirectory
from raybench.report.sections.published import TITLE
from raybench.spec.load import find_study, load_study, studies_folder
from tests.studies.briefly import BRIEFLY
from tests.support.analysis import analyse
from tests.support.forked import ForkedCommand

# the default study's is in tests/ray, from a shell prompt; that of the strategies in the notebook's test
ELSEWHERE = {"default", "strategies_resnet_cifar10"}
# Of the long run are those that differ from another in the model or the data set alone, which tests/ranks and
# the notebook read too.
LONG = {"resnet18_cifar10", "resnet50_cifar10", "transformer_ag_news", "transformer_imdb"}
STUDIES = [
    pytest.param(name, marks=pytest.mark.long) if name in LONG else name
    for name in sorted({file.stem for file in studies_folder().glob("*.toml")} - ELSEWHERE)
]
# a step of a user's smoke size takes long enough to measure, which nothing here needs
SMALLER = {
    "mlp_scaling": {"knobs.batch_size": [64, 16]},
    "resnet18_fashion_mnist": {"knobs.batch_size": [2, 4], "workload.samples": 256},
    "transformer_ag_news_tuned": {
        "knobs.batch_size": [2, 8],
        "workload.hidden_dim": 32,
        "workload.feed_forward_dim": 64,
        "workload.num_layers": 1,
        "workload.vocab_size": 500,
    },
    "transformer_imdb": {"knobs.batch_size": 8},
}
FEW = {"training.epochs": 1, "workload.samples": 64, "workload.test_samples": 32}


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as opened:
        return list(csv.DictReader(opened))


@pytest.mark.promise("published studies")
@pytest.mark.parametrize("study", STUDIES)
def test_goes_from_the_data_to_the_report(study: str, tmp_path: Path, data_dir: Path) -> None:
    trains = load_study(find_study(study)).training is not None
    fields = SMALLER.get(study, {}) | (FEW if trains else {})
    chosen = [*BRIEFLY, *(word for field, value in fields.items() for word in ("--set", f"{field}={value}"))]
    asked = ("scaling", study, "--smoke", "--data", str(data_dir), "--output", study, *chosen)
    command = ForkedCommand(*asked, folder=tmp_path)
    assert command.wait() == 0, command.output
    assert command.survivors(10) == []
    output, folder = command.output, tmp_path
    with ResultsDirectory.open_readonly(folder / study) as store:
        resolved, records = store.study(), list(store.latest().values())
    assert {record.state for record in records} == {"complete"}, output
    sizes = {record.config.world_size for record in records if record.request.role == "scaling"}
    assert sizes == {1, 2}
    assert resolved.workload.input == ("synthetic" if study == "mlp_scaling" else "real")
    report = (folder / study / "report" / "report.md").read_text()
    assert "## Where the time goes" in report
    figures = load_figures(study)
    assert f"## {TITLE}" not in report  # of toy sizes
    assert bool(published_rows(analyse(resolved, records), figures)) == bool(figures)
    if resolved.training is not None:
        trained = rows(folder / study / "epochs.csv")
        runs = {row["trial_id"]: row["world_size"] for row in trained}
        assert len(trained) == resolved.training.epochs * len(runs)
        assert set(runs.values()) == {"1", "2"}
        assert ("speed-up over the default" in report) == (resolved.search.method == "ablation")
        assert all(0 <= float(row["test_accuracy"]) <= 1 for row in trained)
        samples = getattr(resolved.workload, "samples", None)
        assert {int(row["samples"]) for row in trained} == {samples}  # each once, whatever the devices
        assert "## One device and several" in report
