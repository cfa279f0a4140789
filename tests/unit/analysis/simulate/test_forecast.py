"""Answers for each batch and shape, in weak and in strong scaling, and planted models found again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from raybench.analysis.cost import works
from raybench.analysis.objectives import Prices
from raybench.analysis.simulate.outlook import Forecast, doublings, forecast, outlook, shapes_of
from raybench.analysis.simulate.steps import MeasuredGroup, ScalingMode, Shape, micro_batch
from raybench.errors import RequestError
from tests.unit.analysis.simulate.tables import groups


def planted_s(shape: Shape, batch: int) -> float:
    """Rings in and between nodes of four: compute 2 ms and 0.1 ms a sample, half of what is sent hidden."""
    n, nodes = shape.world_size, shape.nodes
    if n == 1:
        return 0.002 + 0.0001 * batch
    sent_s = 0.004 * 2 * (n - 1) / n if nodes == 1 else 0.020 * 2 * (nodes - 1) / nodes + 0.0003 * n
    return 0.002 + 0.0001 * batch + 0.0005 * math.log2(n) + 0.5 * sent_s


MEASURED = [Shape.even(size, -(-size // 4)) for size in (1, 2, 3, 4, 6, 8, 12, 16)]


def measured(
    folder: Path, batches: Sequence[int] = (64, 256, 1024), noise: float = 0.03, seed: int = 0
) -> MeasuredGroup:
    """A file of a planted model with repeats that differ by ``noise``."""
    generator = np.random.default_rng(seed)
    rows = [
        f"{shape.nodes},{shape.world_size},{batch},{planted_s(shape, batch) * math.exp(error)}"
        for shape in MEASURED
        for batch in batches
        for error in generator.normal(0, noise, 2)
    ]
    (group,) = groups(folder, rows)
    return group


def answers(found: Forecast) -> dict[tuple[int, int], object]:
    return {(each.batch_size, each.shape.world_size): each for each in found.predicted}


def test_a_planted_model_is_found_again_within_the_intervals(tmp_path: Path) -> None:
    held = every = 0
    errors = []
    for seed in range(4):
        found = forecast(measured(tmp_path, seed=seed), shapes_of((32, 64), 4))
        for each in found.predicted:
            assert each.step_time_s is not None, each.refused
            truth_s = planted_s(each.shape, each.batch_size)
            held += each.step_time_s.low <= truth_s <= each.step_time_s.high
            errors.append(abs(each.step_time_s.value / truth_s - 1))
            every += 1
    assert held / every >= 0.9
    assert np.mean(errors) < 0.2


def test_weak_scaling_has_a_row_for_each_batch_and_shape(tmp_path: Path) -> None:
    group = measured(tmp_path)
    found = forecast(group, shapes_of((32, 64), 4))
    assert [(each.batch_size, each.shape) for each in found.predicted] == [
        (batch, Shape((4,) * (size // 4))) for batch in (64, 256, 1024) for size in (32, 64)
    ]
    for each in found.predicted:
        assert each.step_time_s is not None
        assert each.efficiency is not None
        assert each.naive_step_time_s is not None
        at_16 = [m.step_time_s.value for m in group.distinct if m.batch_size == each.batch_size][-1]
        assert each.naive_step_time_s == pytest.approx(at_16, rel=0.02)
        rate = each.throughput_samples_per_s
        assert rate is not None
        assert rate.value == pytest.approx(each.batch_size * each.shape.world_size / each.step_time_s.value)
        assert rate.low < rate.value < rate.high
    assert found.everything == (*found.measured, *found.predicted)


def test_strong_scaling_divides_the_global_batch(tmp_path: Path) -> None:
    rows = [
        f"{shape.nodes},{shape.world_size},{batch},{planted_s(shape, -(-batch // shape.world_size))}"
        for shape in MEASURED
        for batch in (1024, 4096)
    ]
    (group,) = groups(tmp_path, rows, scaling="strong")
    found = forecast(group, shapes_of((32, 2048), 4))
    assert found.scaling == "strong"
    at_32 = [each for each in found.predicted if each.shape.world_size == 32]
    assert [each.batch_size for each in at_32] == [1024, 4096]
    for each in at_32:
        assert each.step_time_s is not None, each.refused
        truth_s = planted_s(each.shape, each.batch_size // 32)
        assert each.step_time_s.low <= truth_s <= each.step_time_s.high
        alone_s = planted_s(Shape((1,)), each.batch_size)
        assert each.efficiency is not None
        assert each.efficiency.value == pytest.approx(alone_s / each.step_time_s.value / 32)
        assert each.samples == each.batch_size
        assert each.naive_step_time_s == pytest.approx(planted_s(MEASURED[-1], each.batch_size // 16))
    (no_room,) = [
        each for each in found.predicted if each.shape.world_size == 2048 and each.batch_size < 2048
    ]
    assert no_room.step_time_s is None
    assert no_room.refused == "no sample for each device"


def test_what_was_measured_in_weak_scaling_says_something_of_strong(tmp_path: Path) -> None:
    found = forecast(measured(tmp_path, noise=0.0), shapes_of((32,), 4), "strong")
    largest = found.predicted[-1]
    assert largest.batch_size == 1024
    assert largest.step_time_s is not None
    assert largest.step_time_s.value == pytest.approx(planted_s(largest.shape, 32), rel=0.35)


@pytest.mark.parametrize(("of_file", "asked"), [("weak", "strong"), ("strong", "weak")])
def test_steps_of_one_scaling_do_not_stand_beside_answers_of_the_other(
    tmp_path: Path, of_file: ScalingMode, asked: ScalingMode
) -> None:
    micro = [micro_batch(1024, shape.world_size, of_file, 1) for shape in MEASURED]
    rows = [
        f"{shape.nodes},{shape.world_size},1024,{planted_s(shape, each)}"
        for shape, each in zip(MEASURED, micro, strict=True)
    ]
    (group,) = groups(tmp_path, rows, scaling=of_file)
    found = forecast(group, shapes_of((16, 32), 4), asked)
    assert found.measured == ()
    assert found.everything == found.answered == found.predicted  # at 16 as well, which was measured
    way = outlook(found, works(1e6, 1), Prices()).ways[0]
    step_s = way.expected.step_time_s
    assert step_s is not None
    assert way.run.time_s.value == pytest.approx(1e6 / way.expected.samples * step_s.value)


@pytest.mark.parametrize("sizes", [(1, 2, 3, 4, 6, 8), (2, 3, 4, 6, 8)])
def test_efficiency_with_several_passes_is_over_one_device_with_as_many(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """Four passes, each 1 ms a sample whatever the devices."""
    rows = [f"1,{size},{batch},{4 * 0.001 * batch},4" for size in sizes for batch in (64, 256, 1024)]
    header = "nodes,world_size,batch_size,step_time_s,gradient_accumulation"
    (group,) = groups(tmp_path, rows, header=header)
    strong = forecast(group, shapes_of((4,), 8), "strong").predicted[-1]
    weak = forecast(group, shapes_of((16,), 16))
    for each in (strong, *weak.measured, *weak.predicted):
        assert each.efficiency is not None
        assert each.efficiency.value == pytest.approx(1, rel=0.2)


def test_too_few_world_sizes_are_refused_and_amdahl_stands_beside(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, ["1,1,256,0.0076", "1,2,256,0.0414"])
    found = forecast(group, shapes_of(doublings(group), 16))
    assert [each.shape.world_size for each in found.predicted] == [4, 8, 16]
    assert all(each.step_time_s is None and each.refused for each in found.predicted)
    assert all(each.naive_step_time_s == 0.0414 for each in found.predicted)
    assert found.answered == ()
    assert found.everything == found.measured
    assert found.amdahl is not None


def test_shapes_fill_nodes_or_stand_evenly() -> None:
    assert shapes_of((3, 10), 4) == (Shape((3,)), Shape((4, 4, 2)))
    assert shapes_of((8, 10), 4, (2, 4)) == (Shape((4, 4)), Shape((3, 3, 2, 2)))
    with pytest.raises(RequestError, match="one number for each of --world-sizes, 2 \\(received 1\\)"):
        shapes_of((8, 16), 4, (2,))
    with pytest.raises(RequestError, match="a node for each device \\(received 9 for 8 devices\\)"):
        shapes_of((8,), 4, (9,))
