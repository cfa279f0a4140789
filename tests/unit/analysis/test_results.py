"""What a study says, in every case."""

from __future__ import annotations

import csv
import io

import pytest

from raybench.analysis import analyse, to_pandas
from raybench.records.record import TrialRecord
from raybench.report.answer import answer_of
from raybench.report.formats import summary_csv
from raybench.spec import Setting, Study
from raybench.testing import QUIET, STARTED_AT, FakeHardware, FakeRunner, Noise, StepCosts, run_all
from tests.unit.studies import FULL, asked, grid, request, searched, study

CONTRACT = [
    "study",
    "model",
    "device_name",
    "input",
    "trial_id",
    "role",
    "state",
    "status",
    "strategy",
    "scaling",
    "world_size",
    "nodes",
    "placement",
    "batch_size",
    "global_batch_size",
    "bucket_cap_mb",
    "precision",
    "gradient_accumulation",
    "gradient_compression",
    "VARYING",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "throughput_samples_per_s",
    "throughput_tokens_per_s",
    "baseline_world_size",
    "baseline_strategy",
    "baseline_step_time_s",
    "speedup",
    "efficiency",
    "efficiency_low",
    "efficiency_high",
    "ideal_s",
    "small_batch_s",
    "contention_s",
    "wrapper_s",
    "skew_s",
    "exposed_communication_s",
    "hidden_communication_s",
    "communication_fraction",
    "gradient_bytes",
    "bus_bandwidth_bytes_per_s",
    "data_s",
    "forward_s",
    "backward_s",
    "optimizer_s",
    "other_s",
    "flops_per_s",
    "peak_memory_bytes",
    "device_memory_bytes",
    "device_utilization",
    "energy_joules",
    "epoch_time_s",
    "accuracy",
    "time_to_target_s",
    "oversubscribed",
    "rounds",
    "wall_time_s",
]

DEFAULT = study(
    knobs={"batch_size": [512, 32, 128], "bucket_cap_mb": ["default", 1, 25], "precision": ["fp32", "bf16"]},
    search={"method": "optuna", "trials": 12},
)
WINNER = Setting(batch_size=512, precision="bf16", bucket_cap_mb=25)


def fails(study: Study, setting: Setting, size: int, state: str, reason: str) -> TrialRecord:
    wanted = asked(study, "scaling", setting, size)
    return TrialRecord(
        study=study.name,
        trial_id=wanted.trial_id,
        request=wanted,
        state=state,  # type: ignore[arg-type]
        reason=reason,
        started_at=STARTED_AT,
        wall_time_s=0.1,
    )


def test_a_whole_search() -> None:
    results = analyse(DEFAULT, searched(DEFAULT, (1, 2), WINNER))
    answer = answer_of(results)
    assert answer.startswith("2 devices: 1.")
    for words in (
        "x [1.",
        "at batch 512",
        "slower than one below about batch 4",
        "(interpolated between 32 and 128",
        "lost: ",
        "% exposed communication",
        "% contention",
        "best of 12: 25 MiB buckets, bf16, +",
        "] over the default",
    ):
        assert words in answer
    assert "not yet confirmed" not in answer
    assert [curve.is_default for curve in results.curves] == [True, False]
    assert [[point.world_size for point in curve.points] for curve in results.curves] == [[1, 2], [1, 2]]


def test_no_confirmation_yet() -> None:
    answer = answer_of(analyse(DEFAULT, searched(DEFAULT, (1, 2), WINNER, confirm=False)))
    assert "best of 12: " in answer
    assert "not yet confirmed against the default" in answer


def test_no_significant_gain() -> None:
    costs = FakeHardware(speed={}).costs
    runner = FakeRunner(costs, Noise(block=0.01), seed=3)
    same = Setting(batch_size=512, bucket_cap_mb=25)
    assert "no significant gain over the default (" in answer_of(
        analyse(DEFAULT, searched(DEFAULT, (1, 2), same, runner))
    )


def test_a_winner_that_is_worse_is_not_recommended() -> None:
    runner = FakeRunner(FakeHardware(speed={"bf16": 0.8}).costs, seed=3)
    assert "keep the default" in answer_of(analyse(DEFAULT, searched(DEFAULT, (1, 2), WINNER, runner)))


def test_the_default_is_best() -> None:
    spec = study(knobs={"precision": ["fp32", "bf16"]}, search={"method": "optuna", "trials": 2})
    runner = FakeRunner(FakeHardware(speed={"bf16": 0.5}).costs, seed=3)
    records = searched(spec, (1, 2), Setting(precision="bf16"), runner, confirm=False)
    assert "best of 2: the default" in answer_of(analyse(spec, records))


def test_one_device_only() -> None:
    spec = study(knobs={"batch_size": [64]})
    answer = answer_of(analyse(spec, grid(spec, [1])[0]))
    assert answer.startswith("1 device: ")
    assert "samples/s at batch 64; one device only" in answer


def test_nothing_and_nothing_complete() -> None:
    spec = study(knobs={"batch_size": [64, 128, 256]})
    assert answer_of(analyse(spec, [])) == "nothing was measured"
    records = [
        fails(spec, Setting(batch_size=batch), 2, "oom", "can't allocate memory") for batch in (64, 128)
    ]
    records.append(fails(spec, Setting(batch_size=256), 2, "crashed", "ValueError: x\nmore"))
    expected = "no trial completed: 2 oom (can't allocate memory), 1 crashed (ValueError: x)"
    results = analyse(spec, records)
    assert answer_of(results) == expected
    assert len(results.failed) == 3
    assert results.waterfall is None


def test_the_target_failed() -> None:
    spec = study(scaling={"world_sizes": [1, 2, 4]}, knobs={"batch_size": [512]})
    records = [*grid(spec, [1, 2])[0], fails(spec, Setting(batch_size=512), 4, "timeout", "after 300 s")]
    answer = answer_of(analyse(spec, records))
    assert answer.startswith("no trial completed on 4 devices: 1 timeout (after 300 s); 2 devices: ")


def test_slower_at_every_batch() -> None:
    spec = study(knobs={"batch_size": [8, 16]})
    assert "slower than one at every batch measured (8 to 16)" in answer_of(
        analyse(spec, grid(spec, [1, 2])[0])
    )


def test_slower_with_one_batch() -> None:
    spec = study(knobs={"batch_size": [8]})
    assert "; slower than one;" in answer_of(analyse(spec, grid(spec, [1, 2])[0]))


def test_nothing_lost() -> None:
    spec = study(knobs={"batch_size": [64]})
    runner = FakeRunner(lambda request, setting: StepCosts(plain_s=0.01), QUIET)
    answer = answer_of(analyse(spec, grid(spec, [1, 2], runner)[0]))
    assert answer == "2 devices: 2.00x [2.00, 2.00] at batch 64; nothing lost that could be measured"


def test_base_of_several_devices() -> None:
    spec = study(scaling={"world_sizes": [2, 4]}, knobs={"batch_size": [64]})
    costs = StepCosts(plain_s=0.01, exposed_s=0.001, missing={"plain": "out of memory"})
    answer = answer_of(
        analyse(spec, grid(spec, [2, 4], FakeRunner(lambda request, setting: costs, QUIET))[0])
    )
    assert answer.startswith("4 devices: 2.00x [2.00, 2.00] over 2 devices at batch 64")


def test_oversubscribed_recommends_nothing() -> None:
    spec = study(knobs={"batch_size": [64, 128]})
    requests = [request(setting=setting, oversubscribed=True, variants=FULL) for setting in spec.knobs.grid()]
    results = analyse(spec, run_all(FakeRunner(), requests)[0])
    assert results.best is None
    assert answer_of(results).startswith("oversubscribed, so not to be relied on: 2 devices")


def test_strong_scaling_speaks_of_the_global_batch() -> None:
    spec = study(scaling={"mode": "strong", "world_sizes": [1, 2]}, knobs={"batch_size": [512]})
    assert "at global batch 512" in answer_of(analyse(spec, grid(spec, [1, 2])[0]))


def test_several_objectives_give_a_front() -> None:
    spec = study(knobs={"batch_size": [64, 128, 256]}, search={"objectives": ["throughput", "peak_memory"]})
    results = analyse(spec, grid(spec, [2])[0])
    assert len(results.pareto) == 3
    assert results.best is not None
    assert results.best.record.config.setting.batch_size == 256


def test_a_trial_tried_again_counts_once() -> None:
    spec = study(knobs={"batch_size": [64]})
    records = grid(spec, [1, 2])[0]
    again = analyse(spec, [fails(spec, Setting(batch_size=64), 2, "crashed", "gone"), *records])
    assert len(again.records) == 2
    assert not again.failed


def test_summary_has_the_columns_of_the_contract() -> None:
    spec = study(
        knobs={"batch_size": [64], "static_graph": [False, True]}, environment={"OMP_PROC_BIND": ["false"]}
    )
    results = analyse(spec, grid(spec, [1, 2])[0])
    rows = list(csv.DictReader(io.StringIO(summary_csv(results.summaries))))
    place = CONTRACT.index("VARYING")
    assert list(rows[0]) == [*CONTRACT[:place], "static_graph", *CONTRACT[place + 1 :]]
    one, two = rows[0], rows[1]
    assert (one["world_size"], one["efficiency"], one["strategy"]) == ("1", "1", "single")
    assert one["exposed_communication_s"] == ""
    assert two["oversubscribed"] == "false"
    parts = ("ideal_s", "contention_s", "wrapper_s", "skew_s", "exposed_communication_s")
    assert sum(float(two[name]) for name in parts) == pytest.approx(float(two["step_time_s"]), rel=1e-6)
    assert two["baseline_world_size"] == "1"


def test_failed_rows_have_no_numbers() -> None:
    spec = study(knobs={"batch_size": [64]})
    row = analyse(spec, [fails(spec, Setting(batch_size=64), 2, "oom", "no room")]).summaries[0].row()
    assert row["state"] == "oom"
    assert row["step_time_s"] is None
    assert row["status"] is None


def test_to_pandas() -> None:
    spec = study(knobs={"batch_size": [64]})
    frame = to_pandas(grid(spec, [1, 2, 4])[0])
    assert frame["world_size"].tolist() == [1, 2, 4]
    assert frame["efficiency"].is_monotonic_decreasing
