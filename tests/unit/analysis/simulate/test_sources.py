"""What is fitted together, of a study and of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybench.analysis.cost import run_of
from raybench.analysis.resolve import resolve
from raybench.analysis.simulate.outlook import cost_of_run
from raybench.analysis.simulate.sources import group_of_study, shape_of
from raybench.analysis.simulate.steps import MeasuredGroup, ScalingMode, Shape
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.report.prediction import more_sentences, more_table
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, StepCosts, run_all
from tests.unit.analysis.simulate.tables import HEADER, groups
from tests.unit.analysis.test_scaling import of_a_script
from tests.unit.studies import LARGE_NODE, asked, grid, measured, study


def costs(config: Configuration, setting: Setting) -> StepCosts:
    """10 ms for 32 samples; on several devices contention and transfers, half of them under bf16."""
    alone_s, several = 0.010 * setting.batch_size / 32, config.world_size > 1
    exposed_s = 0.001 * config.world_size * (0.5 if setting.precision == "bf16" else 1.0)
    return StepCosts(
        plain_s=alone_s,
        base_s=alone_s,
        contention_s=0.001 if several else 0.0,
        exposed_s=exposed_s if several else 0.0,
    )


def ran(sizes: tuple[int, ...] = (1, 2, 4), **fields: Any) -> tuple[Study, list[TrialRecord]]:
    spec = study(**({"knobs": {"batch_size": [32, 64]}} | fields))
    return spec, grid(spec, sizes, FakeRunner(costs, QUIET, num_devices=8))[0]


def batch_sizes(group: MeasuredGroup) -> set[int]:
    """As they were asked for."""
    return {each.batch_size for each in group.measurements}


def test_every_batch_and_world_size_of_the_headlines_setting() -> None:
    group = group_of_study(resolve(*ran(knobs={"batch_size": [32, 64], "precision": ["fp32", "bf16"]})))
    assert group is not None
    assert (group.world_sizes, batch_sizes(group)) == ((1, 2, 4), {32, 64})
    assert len(group.measurements) == 6
    assert (group.setting, group.scaling, group.model) == ("fp32", "weak", "mlp")
    (note,) = group.notes
    assert note.startswith("fitted: fp32; 6 trials of other settings left out")
    four = next(each for each in group.measurements if each.shape.world_size == 4)
    assert four.step_time_s.value == pytest.approx(0.015, rel=1e-3)
    assert four.compute_s == pytest.approx(0.011, rel=1e-3)  # all devices at once, without transfers
    assert four.efficiency is not None
    assert four.efficiency.value == pytest.approx(10 / 15, rel=1e-3)


def test_one_device_without_a_trial_is_the_one_that_costs_have() -> None:
    """As 3.39 min in the rounds of two devices stood beside 3.37 min in those of four."""
    spec = study(knobs={"batch_size": [32, 64]})
    results = analyse(spec, grid(spec, (2, 4), FakeRunner(costs, seed=1, num_devices=8))[0])
    group = group_of_study(results)
    assert group is not None
    one = {each.batch_size: each for each in group.measurements if each.shape.world_size == 1}
    rates = {
        point.at.config.setting.batch_size: point.cost.time_s.value
        for point in results.costs
        if point.at.world_size == 1
    }
    assert sorted(one) == sorted(rates) == [32, 64]
    for batch, step in one.items():
        assert step.mean_step_s is not None
        assert step.mean_step_s.value / batch * 1e6 == pytest.approx(rates[batch])


def test_of_places_of_one_shape_the_first_speaks() -> None:
    """As 53.8 s of pack and spread together stood beside 53.5 s of pack."""
    spec = study(knobs={"batch_size": [32]}, scaling={"placement": ["spread", "pack"]})
    requests = [
        asked(spec, "scaling", Setting(batch_size=32), size, placement=place)
        for size in (1, 2, 4)
        for place in ("pack", "spread")
        if size > 1 or place == "pack"
    ]
    results = analyse(spec, run_all(FakeRunner(costs, seed=1), requests)[0])
    group = group_of_study(results)
    assert group is not None
    assert len(group.measurements) == 5  # all are fitted
    told = {
        each.config.world_size: results.scaling(each)
        for each in results.references
        if "pack" not in str(each.config.placement)
    }
    for each in group.distinct[1:]:
        assert each.step_time_s == told[each.shape.world_size].step_time_s


def test_other_devices_than_the_headlines_are_left_out() -> None:
    spec, records = ran()
    headline = resolve(spec, records).headline
    assert headline is not None
    other = [
        record.model_copy(update={"device_name": "an older CPU"}) if record.config.world_size == 2 else record
        for record in records
    ]
    group = group_of_study(resolve(spec, other))
    assert group is not None
    assert group.world_sizes == (1, 4)
    (note,) = group.notes
    assert note == "fitted: fake cpu; 2 trials on other devices left out: an older CPU"


def test_one_device_that_was_measured_beside_the_others_alone() -> None:
    group = group_of_study(resolve(*ran((2, 4))))
    assert group is not None
    assert group.world_sizes == (1, 2, 4)
    alone = [each for each in group.measurements if each.shape.world_size == 1]
    assert [(each.batch_size, each.step_time_s.value) for each in alone] == [
        (32, pytest.approx(0.010, rel=1e-3)),
        (64, pytest.approx(0.020, rel=1e-3)),
    ]


def test_strong_scaling_keeps_the_global_batch() -> None:
    spec, records = ran(scaling={"mode": "strong"}, knobs={"batch_size": [128]})
    group = group_of_study(resolve(spec, records))
    assert group is not None
    assert group.scaling == "strong"
    assert batch_sizes(group) == {128}
    assert sorted(point.question.batch_size for point in group.measurements) == [32, 64, 128]


def group_of_a_script(samples: dict[int, float]) -> MeasuredGroup | None:
    """Of a script at its batch of 32, whose steps on so many devices have so many samples."""
    args, step_s = "--bs {batch_size}", {1: 0.080, 2: 0.050, 4: 0.040}
    spec = study(workload={"script": "train.py", "args": args}, scaling={"world_sizes": list(step_s)})
    return group_of_study(resolve(spec, of_a_script(args, step_s, samples)))


@pytest.mark.parametrize(
    ("samples", "scaling", "per_device"),
    [
        ({1: 64.0, 2: 64.0, 4: 64.0}, "strong", [32, 16, 8]),  # it divides one total
        ({1: 64.0, 2: 128.0, 4: 256.0}, "weak", [32, 32, 32]),
    ],
)
def test_a_script_scales_as_the_samples_of_its_steps_do(
    samples: dict[int, float], scaling: str, per_device: list[int]
) -> None:
    group = group_of_a_script(samples)
    assert group is not None
    assert group.scaling == scaling
    assert [each.question.batch_size for each in group.measurements] == per_device
    assert [each.question.samples for each in group.measurements] == list(samples.values())
    one, *_, four = group.scalings
    assert one.throughput_samples_per_s.value == pytest.approx(64 / 0.080)
    assert four.speedup is not None
    assert four.speedup.value == pytest.approx(samples[4] / 64 * 0.080 / 0.040)


def test_of_a_script_that_divides_one_total_the_law_is_amdahls() -> None:
    """Twice as fast on four devices: f = (1/2 - 1/4) / (1 - 1/4)."""
    args, step_s = "--bs {batch_size}", {1: 0.080, 4: 0.040}
    spec = study(workload={"script": "train.py", "args": args}, scaling={"world_sizes": [1, 4]})
    more = analyse(spec, of_a_script(args, step_s, {1: 64.0, 4: 64.0})).more_devices
    assert more is not None
    assert more.law is not None
    assert (more.law.law, more.law.fraction.value) == ("Amdahl", pytest.approx(1 / 3, rel=1e-3))
    eight = more.points[0]
    assert (eight.shape.world_size, eight.how, eight.question.samples) == (8, "law", 64.0)
    assert eight.total_step_s is not None
    assert eight.total_step_s.value == pytest.approx(0.080 * (1 / 3 + 2 / 3 / 8), rel=1e-3)


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 4)])
def test_where_nothing_can_be_predicted_the_law_answers_however_many_sizes_there_are(
    sizes: tuple[int, ...],
) -> None:
    """As sizes 1, 2 and 4 on one full node had no table, and 1 and 2 had one.

    90% on the most devices: f = (n - S) / (n - 1).
    """
    args, most = "--bs {batch_size}", max(sizes)
    step_s = dict.fromkeys(sizes, 0.090) | {1: 0.081}
    spec = study(workload={"script": "train.py", "args": args}, scaling={"world_sizes": list(sizes)})
    more = analyse(spec, of_a_script(args, step_s, {each: 64.0 * each for each in sizes})).more_devices
    assert more is not None
    f = 0.1 * most / (most - 1)
    for each, factor in zip(more.points, (2, 4, 8), strict=True):
        size = factor * most
        assert (each.how, each.shape.world_size) == ("law", size)
        assert each.speedup is not None
        assert each.speedup.value == pytest.approx(size - f * (size - 1), rel=1e-3)
    assert more_table(more, run_of(), None).rows
    assert "law" in more_sentences(more)[0]


def test_a_global_batch_is_of_the_samples_that_a_script_counts() -> None:
    """As "a global batch of 32 has no sample for each of 64 devices" stood beside steps of 512."""
    args, step_s = "--micro {batch_size}", {1: 0.080, 4: 0.040, 16: 0.020}
    spec = study(workload={"script": "train.py", "args": args}, scaling={"world_sizes": list(step_s)})
    records = of_a_script(args, step_s, dict.fromkeys(step_s, 512.0))
    found = analyse(spec, records, LARGE_NODE)
    assert found.outlook is not None
    assert [each.shape.world_size for each in found.outlook.answered] == [32, 64]
    assert found.more_devices is not None
    assert found.more_devices.law is not None
    assert [size for size, _ in found.more_devices.law.speedups] == [32, 64, 128]
    rows = more_table(found.more_devices, run_of(), None).rows
    assert [row[2] for row in rows] == ["16", "8"]


def test_a_script_whose_steps_have_other_samples_on_each_number_of_devices_is_refused() -> None:
    args, step_s, samples = "--bs {batch_size}", {1: 0.080, 2: 0.050, 4: 0.040}, {1: 64.0, 2: 96.0, 4: 128.0}
    spec = study(workload={"script": "train.py", "args": args}, scaling={"world_sizes": list(step_s)})
    found = analyse(spec, of_a_script(args, step_s, samples))
    assert found.outlook is not None
    assert {each.refused for each in found.outlook.predicted} == {"samples do not scale"}
    assert found.outlook.laws == {}
    assert [each.question.samples for each in found.outlook.group.distinct] == list(samples.values())
    (said,) = more_sentences(found.more_devices)
    assert said.endswith("the samples of a step neither grow with the devices nor stay the same")


def test_oversubscribed_trials_are_left_out_and_said_so() -> None:
    spec, records = ran()
    crowded = [
        record.model_copy(
            update={
                "request": record.study_request.model_copy(
                    update={"config": record.config.model_copy(update={"oversubscribed": True})}
                )
            }
        )
        if record.config.world_size == 4
        else record
        for record in records
    ]
    group = group_of_study(resolve(spec, crowded))
    assert group is not None
    assert group.world_sizes == (1, 2)
    assert group.notes[0] == "2 oversubscribed trials left out: more workers than cores"


def test_shapes_are_those_of_the_hosts() -> None:
    record = measured(StepCosts(plain_s=0.01), world_size=4)
    assert shape_of(record) == Shape((4,))
    several = record.model_copy(update={"nodes": 2, "hostnames": ("b", "a", "a", "a")})
    assert shape_of(several) == Shape((3, 1))
    assert shape_of(record.model_copy(update={"nodes": 2, "hostnames": ()})) == Shape((2, 2))


def test_a_trial_of_the_search_counts_where_the_curve_has_none() -> None:
    spec, records = ran(knobs={"batch_size": [32, 64]})
    setting = spec.knobs.default().model_copy(update={"batch_size": 128})
    runner = FakeRunner(costs, QUIET, num_devices=8)
    twice = spec.knobs.default()
    more = run_all(runner, [asked(spec, "search", each, 4) for each in (setting, twice)])[0]
    group = group_of_study(resolve(spec, [*records, *more]))
    assert group is not None
    of_128 = [each.shape.world_size for each in group.measurements if each.batch_size == 128]
    assert sorted(of_128) == [1, 4]  # one device of its rounds as well
    assert len([each for each in group.measurements if each.batch_size == 32]) == 3


def test_a_report_predicts_from_three_world_sizes_on() -> None:
    few = analyse(*ran((1, 2))).outlook
    assert few is not None
    assert few.answered == ()
    spec, records = ran((1, 2, 4, 8), cost={"price_per_device_hour": 2.0})
    outlook = analyse(spec, records, LARGE_NODE).outlook
    assert outlook is not None
    assert [each.shape.world_size for each in outlook.predicted] == [16, 32, 64] * 2
    assert len(outlook.answered) == 6
    one = cost_of_run(outlook.run, outlook.group.distinct[0], outlook.price)
    assert one is not None
    assert one.money is not None
    assert one.money.value == pytest.approx(1e6 / 3200 / 3600 * 2.0, rel=1e-3)
    across = analyse(spec, records).outlook
    assert across is not None
    assert all(each.refused == "network not crossed" for each in across.predicted)


SUMMARY = (
    "study,model,device_name,input,trial_id,role,state,strategy,scaling,world_size,nodes,placement,"
    "batch_size,global_batch_size,bucket_cap_mb,precision,gradient_accumulation,gradient_compression,"
    "OMP_PROC_BIND,step_time_s,step_time_low_s,step_time_high_s,ideal_s,small_batch_s,contention_s,"
    "oversubscribed,rounds"
)


def summary_row(**changes: object) -> str:
    values: dict[str, object] = {
        "study": "s",
        "model": "mlp",
        "device_name": "T4",
        "input": "synthetic",
        "trial_id": "t",
        "role": "scaling",
        "state": "complete",
        "strategy": "ddp",
        "scaling": "weak",
        "world_size": 2,
        "nodes": 1,
        "placement": "pack",
        "batch_size": 32,
        "bucket_cap_mb": "default",
        "precision": "fp32",
        "gradient_accumulation": 1,
        "gradient_compression": "none",
        "OMP_PROC_BIND": "",
        "step_time_s": 0.01,
        "step_time_low_s": 0.0099,
        "step_time_high_s": 0.0101,
        "oversubscribed": "false",
        "rounds": 10,
    } | changes
    values.setdefault("global_batch_size", int(str(values["batch_size"])) * int(str(values["world_size"])))
    return ",".join(str(values.get(name, "")) for name in SUMMARY.split(","))


def test_models_are_fitted_apart(tmp_path: Path) -> None:
    found = groups(tmp_path, ["1,1,32,0.01,a", "1,2,32,0.02,a", "1,1,8,0.03,b"], header=f"{HEADER},model")
    assert [(group.model, group.world_sizes, batch_sizes(group)) for group in found] == [
        ("a", (1, 2), {32}),
        ("b", (1,), {8}),
    ]


@pytest.mark.parametrize(
    ("row", "workers"),
    [
        ("1,4,32,0.01,", (4,)),
        ("2,4,32,0.01,", (2, 2)),
        ("2,4,32,0.01,31", (3, 1)),
        ("3,4,32,0.01,", (2, 1, 1)),
        ("2,6,32,0.01,pack", (4, 2)),  # the fullest node of the file has four
        ("2,6,32,0.01,spread", (3, 3)),
        ("2,2,32,0.01,pack", (1, 1)),  # packed it would stand on one
    ],
)
def test_shapes(tmp_path: Path, row: str, workers: tuple[int, ...]) -> None:
    (group,) = groups(tmp_path, [row, "1,4,32,0.01,4"], header=f"{HEADER},placement")
    assert group.measurements[0].shape == Shape(workers)


def test_communication_is_taken_out_of_the_compute(tmp_path: Path) -> None:
    header = f"{HEADER},communication_s"
    (group,) = groups(tmp_path, ["1,2,32,0.010,0.004", "1,4,32,0.012,"], header=header)
    assert [point.compute_s for point in group.measurements] == [pytest.approx(0.006), None]


def test_a_global_batch_is_divided_among_devices(tmp_path: Path) -> None:
    rows = ["1,1,64,0.01", "1,2,64,0.01", "1,3,64,0.01"]
    (group,) = groups(tmp_path, rows, scaling="strong")
    # the largest share of three
    assert [each.question.batch_size for each in group.measurements] == [64, 32, 22]
    assert batch_sizes(group) == {64}


def test_repeats_become_their_mean_with_its_interval(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, ["1,2,32,0.010", "1,2,32,0.012", "1,4,32,0.020"])
    assert len(group.measurements) == 3
    two, four = group.distinct
    assert two.step_time_s.value == pytest.approx((0.010 * 0.012) ** 0.5)
    assert two.step_time_s.low < 0.010 < 0.012 < two.step_time_s.high
    assert four.step_time_s.low == four.step_time_s.high == 0.020


def test_of_a_summary_the_setting_of_most_world_sizes_is_taken(tmp_path: Path) -> None:
    rows = [
        summary_row(world_size=1, strategy="single"),
        summary_row(world_size=2),
        summary_row(world_size=4),
        summary_row(world_size=4, bucket_cap_mb=1),
        summary_row(world_size=1, strategy="single", precision="bf16"),
        summary_row(world_size=4, precision="bf16"),
    ]
    (group,) = groups(tmp_path, rows, header=SUMMARY)
    assert group.world_sizes == (1, 2, 4)
    assert len(group.measurements) == 3
    assert group.setting == "bucket_cap_mb=default, precision=fp32"
    (note,) = group.notes
    assert note.startswith("fitted: bucket_cap_mb=default, precision=fp32; 2 other settings left out")


@pytest.mark.parametrize("counted", [1, 2])  # for each of a batch
def test_of_a_summary_a_script_scales_as_it_was_counted(tmp_path: Path, counted: int) -> None:
    """As 64 samples that a script divides among 1, 2 and 4 devices were read as 64, 128 and 256."""
    step_s, batch = {1: 0.100, 2: 0.055, 4: 0.035}, 64 // counted
    rows = [
        summary_row(
            world_size=size,
            batch_size=batch,
            global_batch_size=64,
            step_time_s=each,
            step_time_low_s="",
            step_time_high_s="",
        )
        for size, each in step_s.items()
    ]
    (group,) = groups(tmp_path, rows, header=SUMMARY)
    assert (group.scaling, group.counted, group.refused) == ("strong", counted, None)
    assert {each.question.samples for each in group.measurements} == {64}
    four = group.scalings[-1]
    assert four.speedup is not None
    assert four.speedup.value == pytest.approx(100 / 35)


def test_of_a_summary_samples_that_do_not_scale_are_refused(tmp_path: Path) -> None:
    samples = {1: 64, 2: 96, 4: 128}
    rows = [summary_row(world_size=size, global_batch_size=each) for size, each in samples.items()]
    (group,) = groups(tmp_path, rows, header=SUMMARY)
    assert group.refused == "samples do not scale"
    assert [each.question.samples for each in group.measurements] == list(samples.values())


ACCUMULATED = f"{HEADER},gradient_accumulation"


def test_a_global_batch_in_other_passes_on_other_devices_is_one_setting(tmp_path: Path) -> None:
    step_s = {1: 0.100, 2: 0.055, 4: 0.030, 8: 0.020}
    rows = [f"1,{size},256,{each},{8 // size}" for size, each in step_s.items()]
    (group,) = groups(tmp_path, rows, header=ACCUMULATED, scaling="strong")
    assert (group.world_sizes, group.setting, group.passes, group.notes) == ((1, 2, 4, 8), "", 1, ())
    asked = [each.question for each in group.measurements]
    assert [(each.batch_size, each.passes, each.samples) for each in asked] == [
        (32, passes, 256) for passes in (8, 4, 2, 1)
    ]
    assert group.scalings[-1].speedup is not None
    assert group.scalings[-1].speedup.value == pytest.approx(5.0)


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_several_accumulations_on_as_many_devices_are_settings(tmp_path: Path, scaling: ScalingMode) -> None:
    rows = [f"1,{size},256,0.01,{passes}" for size in (1, 2, 4) for passes in (1, 2)]
    (group,) = groups(tmp_path, rows, header=ACCUMULATED, scaling=scaling)
    assert (len(group.measurements), group.setting) == (3, "gradient_accumulation=1")


def test_of_a_file_columns_that_are_not_read_divide_nothing(tmp_path: Path) -> None:
    rows = [f"1,{size},32,0.01,run{size},{size},T4" for size in (1, 2, 4, 8)]
    (group,) = groups(tmp_path, rows, header=f"{HEADER},study,input,device_name")
    assert (group.model, group.world_sizes) == ("mine", (1, 2, 4, 8))


def test_of_a_summary_devices_are_never_mixed(tmp_path: Path) -> None:
    rows = [summary_row(world_size=size, device_name=name) for name in ("T4", "V100") for size in (1, 2)]
    found = groups(tmp_path, rows, header=SUMMARY)
    assert [group.model for group in found] == ["mlp (T4)", "mlp (V100)"]
    assert all(group.world_sizes == (1, 2) for group in found)


def test_of_a_summary_what_varies_is_a_setting(tmp_path: Path) -> None:
    rows = [
        summary_row(world_size=size, OMP_PROC_BIND=bound) for bound in ("false", "true") for size in (1, 2)
    ]
    (group,) = groups(tmp_path, rows, header=SUMMARY)
    assert group.setting == "OMP_PROC_BIND=false"
    assert len(group.measurements) == 2


def test_of_a_summary_the_parts_of_the_step_are_read(tmp_path: Path) -> None:
    parts = {"ideal_s": 0.005, "small_batch_s": 0.001, "contention_s": 0.002}
    strong = {"scaling": "strong", "batch_size": 64, "global_batch_size": 64, "world_size": 4}
    rows = [summary_row(**strong, **parts)]
    (group,) = groups(tmp_path, rows, header=SUMMARY)
    (only,) = group.measurements
    assert group.scaling == "strong"
    assert (only.batch_size, only.question.batch_size) == (64, 16)
    assert only.compute_s == pytest.approx(0.008)
    assert only.log_error == pytest.approx(0.0051, abs=1e-4)  # log(0.0101 / 0.0099) / 2 / 1.96
    assert only.step_time_s.n == 10
