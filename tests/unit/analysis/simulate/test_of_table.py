"""Which rows of a file are fitted together, and on which shapes they ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.analysis.simulate.steps import Shape
from raybench.errors import RequestError
from tests.unit.analysis.simulate.tables import HEADER, groups

SUMMARY = (
    "study,model,device_name,input,trial_id,role,state,strategy,scaling,world_size,nodes,placement,"
    "batch_size,global_batch_size,bucket_cap_mb,precision,gradient_accumulation,gradient_compression,"
    "OMP_PROC_BIND,step_time_s,step_time_low_s,step_time_high_s,ideal_s,small_batch_s,contention_s,"
    "oversubscribed,rounds,energy_joules"
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
    assert [(group.model, group.world_sizes, group.batch_sizes) for group in found] == [
        ("a", (1, 2), (32,)),
        ("b", (1,), (8,)),
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
    assert group.points[0].shape == Shape(workers)


def test_communication_is_taken_out_of_the_compute(tmp_path: Path) -> None:
    header = f"{HEADER},communication_s"
    (group,) = groups(tmp_path, ["1,2,32,0.010,0.004", "1,4,32,0.012,"], header=header)
    assert [point.compute_s for point in group.points] == [pytest.approx(0.006), None]


def test_a_global_batch_is_divided_among_devices(tmp_path: Path) -> None:
    rows = ["1,1,64,0.01", "1,2,64,0.01", "1,3,64,0.01"]
    (group,) = groups(tmp_path, rows, scaling="strong")
    assert [point.batch_size for point in group.points] == [64, 32, 22]  # the largest share of three
    assert group.batch_sizes == (64,)


def test_repeats_become_their_mean_with_its_interval(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, ["1,2,32,0.010", "1,2,32,0.012", "1,4,32,0.020"])
    assert len(group.points) == 3
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
    assert len(group.points) == 3
    assert group.setting == "default buckets, fp32"
    (note,) = group.notes
    assert note.startswith("fitted: default buckets, fp32; 2 other settings left out")
    (chosen,) = groups(tmp_path, rows, header=SUMMARY, precision="bf16")
    assert chosen.world_sizes == (1, 4)
    (buckets,) = groups(tmp_path, rows, header=SUMMARY, bucket_cap_mb="1")
    assert buckets.world_sizes == (1, 4)  # one device has no buckets
    with pytest.raises(RequestError) as refusal:
        groups(tmp_path, rows, header=SUMMARY, precision="fp16")
    told = "has: bucket_cap_mb=1, bucket_cap_mb=default, precision=bf16, precision=fp32 (received"
    assert told in str(refusal.value)


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
    assert len(group.points) == 2


@pytest.mark.parametrize("batch", [64, 16])  # of all devices; an older raybench wrote that of one
def test_of_a_summary_the_parts_of_the_step_are_read(batch: int, tmp_path: Path) -> None:
    parts = {"ideal_s": 0.005, "small_batch_s": 0.001, "contention_s": 0.002}
    strong = {"scaling": "strong", "batch_size": batch, "global_batch_size": 64, "world_size": 4}
    rows = [summary_row(**strong, **parts, energy_joules=6.4), summary_row(**strong | {"role": "search"})]
    (group,) = groups(tmp_path, rows, header=SUMMARY)
    (only,) = group.measurements  # the same trial of the search is left out
    assert group.scaling == "strong"
    assert (only.batch_size, only.point.batch_size) == (64, 16)
    assert only.point.compute_s == pytest.approx(0.008)
    assert only.joules_per_sample == pytest.approx(0.1)
    assert only.point.log_error == pytest.approx(0.0051, abs=1e-4)  # log(0.0101 / 0.0099) / 2 / 1.96
    assert only.step_time_s.n == 10
