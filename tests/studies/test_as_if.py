"""A study that is measured as if on more devices too, by one command."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from raybench.records.store import ResultsDirectory
from tests.studies.briefly import BRIEFLY
from tests.support.forked import ForkedCommand

STUDY = """
name = "more"
network = "1x1Gbit/s"
[workload]
name = "mlp"
hidden_dim = 64
[knobs]
batch_size = 64
bucket_cap_mb = ["default", 1]
[scaling]
as_if = [4, 16]
"""


@pytest.mark.promise("more devices")
def test_the_rounds_of_the_curve_have_them_and_the_report_answers_with_them(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(STUDY)
    enough = ("--set", "measure.max_seconds=60")  # which three rounds with every variant never take
    command = ForkedCommand("scaling", "more.toml", "--output", "out", *BRIEFLY, *enough, folder=tmp_path)
    assert command.wait() == 0, command.output
    with ResultsDirectory.open_readonly(tmp_path / "out") as store:
        study, records = store.study(), list(store.latest().values())
    assert study.network is not None
    assert study.network.name == "1x1Gbit/s"
    at_target = [each for each in records if each.config.world_size == 2]
    of_default = [each for each in at_target if each.config.setting.bucket_cap_mb == "default"]
    assert of_default
    for record in at_target:
        assert record.steps is not None
        for each in record.steps.rounds:
            made = {"as_if_1", "as_if_2"} & {block.variant for block in each.blocks}
            assert len(made) == (2 if record in of_default else 0)
        assert len(record.steps.held) == (2 if record in of_default else 0)
    assert "devices over 1x1Gbit/s would train" in " ".join(command.output.split())
    table = pd.read_csv(tmp_path / "out" / "report" / "predictions.csv")
    assert list(table.world_size) == [4, 16]
    assert list(table.nodes) == [4, 16]
    assert set(table.how) == {"as_if"}
