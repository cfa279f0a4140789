"""What a study amounts to as a whole: records that count once, settings, the best, fronts."""

from __future__ import annotations

from raybench.analysis.choice import is_default
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.unit.studies import asked, failed, grid, searched, study

DEFAULT = study(
    knobs={"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 12},
)
WINNER = Setting(batch_size=512, precision="bf16", bucket_cap_mb=25)


def test_a_whole_search() -> None:
    results = analyse(DEFAULT, searched(DEFAULT, (1, 2), WINNER))
    assert [is_default(results.study, each.main.config) for each in results.settings] == [True, *[False] * 5]
    assert [[point.world_size for point in each.points] for each in results.settings] == [[1, 2]] * 6


def test_several_objectives_give_a_front() -> None:
    spec = study(knobs={"batch_size": [64, 128, 256]}, search={"objectives": ["throughput", "peak_memory"]})
    results = analyse(spec, grid(spec, [2])[0])
    batches = [each.record.config.setting.batch_size for each in results.chosen]
    assert batches[0] == 64  # takes the least memory
    assert results.best is not None
    assert results.best in [each.record for each in results.chosen]


def test_a_trial_tried_again_counts_once() -> None:
    spec = study(knobs={"batch_size": [64]})
    records = grid(spec, [1, 2])[0]
    again = analyse(
        spec, [failed(asked(spec, "scaling", Setting(batch_size=64), 2), "crashed", "gone"), *records]
    )
    assert len(again.records) == 2
    assert not again.failed
