"""Other buckets over a link of a known rate, predicted from the default's trial and then measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from raybench.analysis.measured import measured_study
from raybench.analysis.whatif.study import study_what_if
from raybench.records.store import ResultsDirectory
from raybench.testing import local_nodes
from raybench.testing.local_nodes import LocalNodes
from tests.cluster.conftest import run_on
from tests.ranks.ranks import results_that_agree

pytestmark = pytest.mark.timeout(600)  # it may be measured twice

# Waits in the place of computing, so that busy cores change little; 2 MiB take 60 ms at this rate.
RATE = "300mbit"
STUDY = """
name = "buckets"
[workload]
factory = "raybench.testing.waits:build"
kib = [400, 8, 500, 8, 700, 8, 500]
layer_s = 0.003
[knobs]
batch_size = 4
bucket_cap_mb = ["default", 0.5, 25]
[scaling]
world_sizes = [2]
placement = ["spread"]
[measure]
steps = 2
min_rounds = 4
warmup_steps = 2
max_seconds = 12
"""
MEDIAN_WITHIN, CHOSEN_WITHIN = 0.05, 0.05


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    reason = local_nodes.missing()
    if reason is not None:
        pytest.skip(reason)
    with LocalNodes(2, rate=RATE) as two:
        yield two


def measure(nodes: LocalNodes, folder: Path, results: str) -> None:
    code, output = run_on(nodes, folder, "scaling", "buckets.toml", "--output", results)
    assert code == 0, output
    told = " ".join(output.split())
    # said when the default is done, before the first of the others
    assert told.index("what if, on ") < told.index("0.5 MiB buckets: ")


def check(folder: Path) -> None:
    with ResultsDirectory.open_readonly(folder) as store:
        results = measured_study(store.study(), list(store.latest().values()))
    chosen = study_what_if(results)
    assert chosen is not None
    others = [each for each in chosen.found.points if each.setting.bucket_cap_mb != "default"]
    errors = [abs(each.error) for each in others if each.error is not None]
    assert len(errors) == 2
    assert median(errors) < MEDIAN_WITHIN, errors
    measured_s = {each.change.bucket_cap_mb: each.measured_s for each in chosen.found.points}
    best_s = min(each.value for each in measured_s.values() if each is not None)
    taken_s = measured_s[chosen.first.change.bucket_cap_mb]
    assert taken_s is not None
    assert taken_s.value < (1 + CHOSEN_WITHIN) * best_s


def test_buckets_are_predicted_from_one_trial(nodes: LocalNodes, tmp_path: Path) -> None:
    (tmp_path / "buckets.toml").write_text(STUDY)
    found = results_that_agree(tmp_path, lambda results: measure(nodes, tmp_path, results), check)
    assert "What if: predicted from one trial" in (found / "report" / "report.md").read_text()
    code, output = run_on(
        nodes, tmp_path, "predict", found.name, "--what-if", "bucket_cap_mb=0.5,5 link=1Gbit/s"
    )
    assert code == 0, output
    assert "Gbit/s" in output
