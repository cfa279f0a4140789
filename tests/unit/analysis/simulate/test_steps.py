"""Published figures come out again from their raw numbers, through the CSV import."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.analysis.published import Figure, load_figures
from raybench.analysis.simulate.steps import Measurement
from tests.unit.analysis.simulate.tables import HEADER, groups


def steps_of(study: str, quantity: str) -> list[tuple[str, Figure]]:
    """Times of a write-up as it printed them, with their strategy."""
    return [
        (each.strategy or "", each)
        for each in load_figures(study)
        if each.quantity == quantity and each.origin == "measured"
    ]


def by_size(found: tuple[Measurement, ...], batch: int) -> dict[int, Measurement]:
    return {each.shape.world_size: each for each in found if each.batch_size == batch}


def told(each: Measurement) -> tuple[str, str]:
    """The speed-up and the efficiency as a write-up prints them."""
    assert each.speedup is not None
    assert each.efficiency is not None
    return f"{each.speedup.value:.2f}x", f"{each.efficiency.value:.0%}"


def test_001_an_mlp_at_two_batches(tmp_path: Path) -> None:
    rows = [
        f"1,{figure.world_size},{figure.batch_size},{figure.value}"
        for _, figure in steps_of("mlp_scaling", "step_time")
    ]
    assert len(rows) == 4
    (group,) = groups(tmp_path, rows)
    found = group.scalings
    assert told(by_size(found, 256)[2]) == ("0.37x", "18%")
    assert told(by_size(found, 4096)[2]) == ("1.75x", "87%")
    rates = [f"{by_size(found, batch)[2].throughput_samples_per_s.value:.0f}" for batch in (256, 4096)]
    assert rates == ["12367", "71709"]  # 12,369 and 71,710 were printed, beside rounded step times


def test_003_strategies_share_their_one_device(tmp_path: Path) -> None:
    """An epoch of the same samples is a step of a fixed global batch: strong scaling."""
    rows = [
        f"1,{figure.world_size},50000,{figure.value},{strategy}"
        for strategy, figure in steps_of("strategies_resnet_cifar10", "epoch_time")
    ]
    found = {}
    for strategy in ("ddp", "dp"):
        own = [row for row in rows if row.startswith("1,1,") or row.endswith(f",{strategy}")]
        (group,) = groups(tmp_path, own, header=f"{HEADER},strategy", scaling="strong")
        found[strategy] = by_size(group.scalings, 50000)[2]
    assert told(found["ddp"]) == ("1.92x", "96%")
    assert told(found["dp"]) == ("0.51x", "25%")


def test_004_negative_scaling_of_a_small_encoder(tmp_path: Path) -> None:
    """Its speed-up and the time of its epoch on four devices are printed; one device's follows from them."""
    figures = {each.quantity: each for each in load_figures("transformer_ag_news") if each.world_size == 4}
    four_s, speedup = figures["epoch_time"].value, figures["speedup"].value
    rows = [f"1,1,32,{four_s * speedup}", f"1,4,32,{four_s}"]
    (group,) = groups(tmp_path, rows, scaling="strong")
    four = by_size(group.scalings, 32)[4]
    assert told(four)[0] == "0.46x"
    assert four.efficiency is not None
    assert four.efficiency.value == pytest.approx(figures["efficiency"].value, abs=0.0005)


def test_a_fixed_global_batch_that_scales_negatively(tmp_path: Path) -> None:
    times_ms = {1: 132.0, 2: 249.0, 4: 2366.0, 8: 5947.0}
    rows = [f"1,{size},2048,{time_ms / 1e3}" for size, time_ms in times_ms.items()]
    (group,) = groups(tmp_path, rows, scaling="strong")
    found = by_size(group.scalings, 2048)
    for size, time_ms in times_ms.items():
        each = found[size]
        assert each.speedup is not None
        assert each.efficiency is not None
        assert each.speedup.value == pytest.approx(132 / time_ms)
        assert each.efficiency.value == pytest.approx(132 / time_ms / size)
        assert each.throughput_samples_per_s.value == pytest.approx(2048e3 / time_ms)


def test_intervals_of_the_file_are_carried_over(tmp_path: Path) -> None:
    header = f"{HEADER},step_time_low_s,step_time_high_s"
    (group,) = groups(tmp_path, ["1,1,32,0.010,0.0095,0.0105", "1,2,32,0.010,0.0095,0.0105"], header=header)
    two = group.scalings[1]
    assert two.efficiency is not None
    assert two.efficiency.low == pytest.approx(0.9319, abs=0.001)  # exp(-sqrt(2) log(0.0105 / 0.0095) / 2)
    assert two.efficiency.high == pytest.approx(1.0733, abs=0.001)


def test_one_row_has_no_speedup(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, ["1,4,32,0.010"])
    (only,) = group.scalings
    assert only.speedup is only.efficiency is None
    assert only.throughput_samples_per_s.value == pytest.approx(12800)


def test_a_batch_without_one_device_is_compared_with_the_fewest(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, ["1,2,32,0.010", "2,4,32,0.0125"])
    two, four = group.scalings
    assert (two.baseline_world_size, four.baseline_world_size) == (2, 2)
    assert four.speedup is not None
    assert four.efficiency is not None
    assert four.speedup.value == pytest.approx(1.6)
    assert four.efficiency.value == pytest.approx(0.8)
