"""Other buckets over a link of a known rate, predicted from the default's trial and then measured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from raybench.analysis.resolve import resolve
from raybench.analysis.simulate.what_if import study_what_if
from raybench.records.store import ResultsDirectory
from tests.cluster.conftest import nodes_of, run_on

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

# Waits in the place of computing, so that busy cores change little; 2 MiB take 60 ms at this rate. The sizes
# make different buckets: of equal ones one is measured.
RATE = "300mbit"
MOST_ERROR = 0.15  # relative, of a prediction: a trial of few rounds differs by half of that from another
STUDY = """
name = "buckets"
[workload]
factory = "tests.support.waits:build"
kib = [400, 8, 500, 8, 700, 8, 500]
layer_s = 0.003
[knobs]
batch_size = 4
bucket_cap_mb = ["default", 0.25, 0.5, 25]
[scaling]
world_sizes = [2]
placement = ["spread"]
[measure]
steps = 2
min_rounds = 4
warmup_steps = 2
max_seconds = 12
"""


def test_buckets_are_predicted_from_one_trial(can_have_nodes: None, tmp_path: Path) -> None:
    (tmp_path / "buckets.toml").write_text(STUDY)
    with nodes_of(2, rate=RATE) as nodes:
        code, output = run_on(nodes, tmp_path, "scaling", "buckets.toml", "--output", "out")
        assert code == 0, output
        code, predicted = run_on(
            nodes, tmp_path, "predict", "out", "--what-if", "bucket_cap_mb=0.5,5 link=1Gbit/s"
        )
    assert code == 0, predicted
    assert "Gbit/s" in predicted
    assert "What if: predicted from one trial" in (tmp_path / "out" / "report" / "report.md").read_text()

    with ResultsDirectory.open_readonly(tmp_path / "out") as store:
        results = resolve(store.study(), list(store.latest().values()))
    chosen = study_what_if(results)
    assert chosen is not None
    asked = [each for each in chosen.points if not each.setting.has_bucket_list]
    others = [each for each in asked if each.setting.bucket_cap_mb != "default"]
    assert len(others) == 3
    outside = 0
    for each in others:
        measured, interval = each.measured_s, each.step_time_s
        print(f"{each.setting.bucket_cap_mb} MiB: predicted {interval}, measured {measured}")
        assert measured is not None
        assert abs(math.log(interval.value / measured.value)) < MOST_ERROR
        outside += not interval.low <= measured.value <= interval.high
    assert outside <= 1  # of three 95% intervals, one in seven times
