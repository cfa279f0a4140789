"""Forecasts of other world sizes, and time against cost on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from raybench.analysis.cost import run_of
from raybench.analysis.published import load_figures
from raybench.analysis.simulate.outlook import Outlook, cost_of_run, doublings, outlook, shapes_of
from raybench.analysis.simulate.sources import group_of_study
from raybench.analysis.simulate.steps import MeasuredGroup, Question, ScalingMode, Shape
from raybench.errors import RequestError
from raybench.report.prediction import outlook_sentences, prediction_table, returns_words
from raybench.report.table import NONE
from tests.support.analysis import analyse
from tests.unit.analysis.simulate.tables import HEADER, groups
from tests.unit.studies import exactly, exactly_strong, grid, planted, study


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


def forecast(group: MeasuredGroup, shapes: Sequence[Shape], scaling: ScalingMode | None = None) -> Outlook:
    return outlook(group, shapes, run_of(), None, scaling)


def answers(found: Outlook) -> dict[tuple[int, int], object]:
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
        assert each.question.samples == each.batch_size * each.shape.world_size
        assert each.step_time_s.low < each.step_time_s.value < each.step_time_s.high


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
        assert each.question.samples == each.batch_size
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
    micro = [Question.of(shape, 1024, of_file, 1).batch_size for shape in MEASURED]
    rows = [
        f"{shape.nodes},{shape.world_size},1024,{planted_s(shape, each)}"
        for shape, each in zip(MEASURED, micro, strict=True)
    ]
    (group,) = groups(tmp_path, rows, scaling=of_file)
    found = forecast(group, shapes_of((16, 32), 4), asked)
    assert found.answered == found.predicted  # at 16 as well, which was measured
    first = found.predicted[0]
    run = cost_of_run(found.run, first, found.price)
    assert run is not None
    assert first.step_time_s is not None
    assert run.time_s.value == pytest.approx(1e6 / first.question.samples * first.step_time_s.value)


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
    for each in (strong, *weak.predicted):
        assert each.efficiency is not None
        assert each.efficiency.value == pytest.approx(1, rel=0.2)


def test_too_few_world_sizes_are_refused_and_the_naive_answer_stands_beside(tmp_path: Path) -> None:
    (group,) = groups(tmp_path, ["1,1,256,0.0076", "1,2,256,0.0414"])
    found = forecast(group, shapes_of(doublings(group), 16))
    assert [each.shape.world_size for each in found.predicted] == [4, 8, 16]
    assert all(each.step_time_s is None and each.refused for each in found.predicted)
    assert all(each.naive_step_time_s == 0.0414 for each in found.predicted)
    assert found.answered == ()


def test_shapes_fill_nodes_or_stand_evenly() -> None:
    assert shapes_of((3, 10), 4) == (Shape((3,)), Shape((4, 4, 2)))
    assert shapes_of((8, 10), 4, (2, 4)) == (Shape((4, 4)), Shape((3, 3, 2, 2)))
    with pytest.raises(RequestError, match="one number for each of --world-sizes, 2 \\(received 1\\)"):
        shapes_of((8, 16), 4, (2,))
    with pytest.raises(RequestError, match="a node for each device \\(received 9 for 8 devices\\)"):
        shapes_of((8,), 4, (9,))


TIMES_S = {1: 0.100, 2: 0.110, 4: 0.130, 8: 0.300}  # of a batch of 100 a device: 8 are slower than 4


def measured_outlook(folder: Path, price: float | None) -> Outlook:
    """What one node measured, and a prediction that is refused: two nodes were never crossed."""
    rows = [f"1,{n},100,{t},{t * 0.99},{t * 1.01}" for n, t in TIMES_S.items()]
    (group,) = groups(folder, rows, header=f"{HEADER},step_time_low_s,step_time_high_s")
    run = run_of(36_000, 10)  # 3,600 steps of one device
    return outlook(group, shapes_of((16,), 8), run, price)


def test_what_a_run_costs(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, 2.0 / 3600)
    two = cost_of_run(found.run, found.group.distinct[1], found.price)
    assert two is not None
    assert two.time_s.value == pytest.approx(3600 / 2 * 0.110)
    assert two.device_s.value == pytest.approx(3600 * 0.110)
    assert two.money is not None
    assert two.money.value == pytest.approx(3600 / 2 * 0.110 / 3600 * (2 * 2.0))
    assert cost_of_run(found.run, found.predicted[0], found.price) is None  # refused


def test_a_run_takes_mean_steps_measured_or_predicted(tmp_path: Path) -> None:
    """Slow steps add a tenth on eight devices, the most: so they do to what is predicted of more."""
    sizes = {1: (0.1, 0.1), 2: (0.11, 0.11), 4: (0.12, 0.12), 8: (0.13, 0.143)}
    rows = [f"1,{size},32,{step_s},{mean_s}" for size, (step_s, mean_s) in sizes.items()]
    (group,) = groups(tmp_path, rows, header=f"{HEADER},mean_step_time_s")
    found = outlook(group, shapes_of((16,), 16), run_of(), None)
    (*_, eight), (sixteen,) = group.distinct, found.predicted
    of_eight, of_sixteen = (cost_of_run(found.run, each, found.price) for each in (eight, sixteen))
    assert eight.step_time_s.value == pytest.approx(0.13)
    assert of_eight is not None
    assert of_eight.time_s.value == pytest.approx(0.143 * 1e6 / (8 * 32))
    assert sixteen.step_time_s is not None
    assert of_sixteen is not None
    assert of_sixteen.time_s.value == pytest.approx(1.1 * sixteen.step_time_s.value * 1e6 / (16 * 32))


def test_002_what_its_run_costs_on_each_number_of_devices(tmp_path: Path) -> None:
    """Its epochs on 1 to 8 devices, three of them projected, at its price, with a fixed global batch.

    Its speed-ups, efficiencies and costs follow, but for one device: 10 epochs of 218.5 s cost 0.91, no 1.03.
    """
    figures = {
        (each.quantity, each.world_size): each.value
        for each in load_figures("resnet50_cifar10")
        if each.table == "predictions" and each.world_size
    }
    sizes = (1, 2, 4, 8)
    rows = [f"1,{size},50000,{figures['epoch_time', size]}" for size in sizes]
    (group,) = groups(tmp_path, rows, scaling="strong")
    found = outlook(group, shapes_of((16,), 16), run_of(50_000, 10), 1.5 / 3600)
    for scaling, size in zip(found.group.scalings, sizes, strict=True):
        run = cost_of_run(found.run, group.distinct[sizes.index(size)], found.price)
        assert run is not None
        assert scaling.speedup is not None
        assert scaling.efficiency is not None
        assert run.money is not None
        if size > 1:
            assert scaling.speedup.value == pytest.approx(figures["speedup", size], abs=0.011)
            assert scaling.efficiency.value == pytest.approx(figures["efficiency", size], abs=0.006)
            assert run.money.value == pytest.approx(figures["cost", size], abs=0.006)
        else:
            assert run.money.value == pytest.approx(0.91, abs=0.001)


def test_002_alone_cannot_say_what_more_devices_bring(tmp_path: Path) -> None:
    """One device was measured, two were projected: that is no basis for 16."""
    (group,) = groups(tmp_path, ["1,1,128,0.559", "1,2,128,0.313"], scaling="strong")
    found = outlook(group, shapes_of((4, 8, 16), 16), run_of(50_000, 10), 1.5 / 3600)
    assert all(each.refused for each in found.predicted)


def test_the_law_of_two_world_sizes_is_the_report_s() -> None:
    """As f = 95% [0, 100] in predict beside 48% [10, 98] in the report of the same directory."""
    costs = {(128,): exactly_strong(0.8, 0.04), (8,): exactly_strong(0.3)}
    results = planted(costs, "batch_size", scaling={"mode": "strong"})
    group = group_of_study(results)
    assert group is not None
    found = outlook(group, shapes_of((4,), 4), run_of(), None)
    assert list(found.laws) == [128]  # batch 8 is slower on two devices
    assert results.headline_scaling is not None
    assert results.more_devices is not None
    assert results.more_devices.law is not None
    of_scaling = results.headline_scaling.serial_fraction
    assert of_scaling is not None
    for law in (found.laws[128], results.more_devices.law):
        assert (law.fraction.value, law.fraction.low, law.fraction.high) == pytest.approx(
            (of_scaling.value, of_scaling.low, of_scaling.high)
        )
    assert found.laws[128].fraction.value == pytest.approx(0.25, rel=1e-6)
    (line,) = [each for each in outlook_sentences(found) if "Amdahl" in each]
    assert "2 devices at global batch 128" in line
    assert "2.29x" in line


def test_in_weak_scaling_what_further_devices_brought_is_said_of_every_batch() -> None:
    spec = study(knobs={"batch_size": [512, 32]})
    group = group_of_study(analyse(spec, grid(spec, (1, 2, 4))[0]))
    assert group is not None
    found = outlook(group, shapes_of((8,), 4), run_of(), None)
    assert {law.law for law in found.laws.values()} == {"Gustafson"}  # nothing else answers
    assert [(batch, [each.more for each in doubled]) for batch, doubled in found.returns] == [
        (32, [2, 4]),
        (512, [2, 4]),
    ]
    slow = group_of_study(planted({(8,): exactly(0.3)}, "batch_size"))
    assert slow is not None
    line, *_ = returns_words(outlook(slow, shapes_of((4,), 4), run_of(), None))
    assert line.startswith("each further device brought: -40% [")
    assert line.endswith("] of one (1 to 2)")


def test_devices_of_a_new_node_bring_less(tmp_path: Path) -> None:
    """Of two placements of one world size the one on the fewest nodes counts."""
    rows = ["1,1,100,0.100", "1,4,100,0.110", "2,4,100,0.200", "2,8,100,0.250"]
    (group,) = groups(tmp_path, rows)
    ((_, found),) = outlook(group, shapes_of((16,), 4), run_of(), None).returns
    assert [(each.fewer, each.more) for each in found] == [(1, 4), (4, 8)]
    speedups = [4 * 0.1 / 0.11, 8 * 0.1 / 0.25]
    assert [each.each.value for each in found] == pytest.approx(
        [(speedups[0] - 1) / 3, (speedups[1] - speedups[0]) / 4]
    )


def test_what_is_refused_has_no_figures() -> None:
    """As three lines "refused" with full columns, and an interval of ±1921%."""
    group = group_of_study(planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size"))
    assert group is not None
    found = outlook(group, shapes_of((4, 8), 4), run_of(), 1.2 / 3600)
    for row in prediction_table(found).rows:
        assert row[2:5] == ("refused", NONE, NONE)
