"""Time against cost: the front, limits with their probability, how many devices are worth it."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.analysis import analyse
from raybench.analysis.cost import works
from raybench.analysis.objectives import Prices, on_front
from raybench.analysis.published import load_figures
from raybench.analysis.simulate.outlook import Outlook, forecast, outlook, probability_of_at_most, shapes_of
from raybench.analysis.simulate.sources import group_of_study
from raybench.analysis.stats.statistics import Estimate, of_log
from raybench.report.prediction import bring_words, outlook_sentences, prediction_table
from raybench.report.tables.base import NONE
from tests.unit.analysis.simulate.tables import HEADER, groups
from tests.unit.studies import exactly, grid, planted, study

TIMES_S = {1: 0.100, 2: 0.110, 4: 0.130, 8: 0.300}  # of a batch of 100 a device: 8 are slower than 4


def measured_outlook(folder: Path, prices: Prices, *, relative: float = 0.01, **limits: float) -> Outlook:
    """What one node measured, and a prediction that is refused: two nodes were never crossed."""
    rows = [f"1,{n},100,{t},{t * (1 - relative)},{t * (1 + relative)}" for n, t in TIMES_S.items()]
    (group,) = groups(folder, rows, header=f"{HEADER},step_time_low_s,step_time_high_s")
    found = forecast(group, shapes_of((16,), 8))
    return outlook(found, works(36_000, 10), prices, **limits)  # 3,600 steps of one device


def test_costs_of_an_epoch_and_a_run(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, Prices(2.0, 1.0))
    assert [way.expected.shape.world_size for way in found.ways] == [1, 2, 4, 8]
    two = found.ways[1]
    assert two.epoch is not None
    assert two.epoch.time_s.value == pytest.approx(360 / 2 * 0.110)
    assert two.run.time_s.value == pytest.approx(3600 / 2 * 0.110)
    assert two.run.device_s.value == pytest.approx(3600 * 0.110)
    assert two.run.money is not None
    assert two.run.money.value == pytest.approx(3600 / 2 * 0.110 / 3600 * (2 * 2.0 + 1.0))
    assert two.spent == two.run.money


def test_what_another_way_beats_in_both_is_not_on_the_front(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, Prices(1.0))
    assert [way.on_front for way in found.ways] == [True, True, True, False]
    unsure = measured_outlook(tmp_path, Prices(1.0), relative=0.05)
    assert [way.on_front for way in unsure.ways] == [True, True, True, False]
    overlapping = measured_outlook(tmp_path, Prices(1.0), relative=0.25)
    assert [way.on_front for way in overlapping.ways] == [
        True,
        True,
        True,
        False,
    ]  # slower, and surely dearer


def test_a_front_of_estimates() -> None:
    sure = [
        (Estimate(1, 0.9, 1.1, 9), Estimate(4, 3.9, 4.1, 9)),
        (Estimate(2, 1.9, 2.1, 9), Estimate(5, 4.9, 5.1, 9)),
    ]
    assert on_front(sure) == [True, False]
    touching = [sure[0], (Estimate(2, 1.0, 3.0, 9), Estimate(5, 4.9, 5.1, 9))]
    assert on_front(touching) == [True, False]  # no faster by its value, and surely dearer
    alike = [sure[0], (Estimate(1.1, 0.9, 1.3, 9), Estimate(4.1, 3.9, 4.3, 9))]
    assert on_front(alike) == [True, True]  # noise can turn both around
    either = [sure[0], (Estimate(0.9, 0.7, 1.2, 9), Estimate(5, 4.9, 5.1, 9))]
    assert on_front(either) == [True, True]


def test_the_cheapest_within_a_time(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, Prices(1.0), within_s=200.0)
    assert found.within is not None
    assert found.within.keeps
    assert found.within.way.expected.shape.world_size == 2  # 198 s; four devices are faster and dearer
    # the interval is 1% wide on each side, the limit 1% away: the normal distribution function at 1.96
    assert found.within.probability == pytest.approx(0.977, abs=0.01)
    assert found.within.surer is None


def test_a_limit_that_is_kept_by_chance_has_a_surer_way(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, Prices(1.0), within_s=199.0, relative=0.05)
    assert found.within is not None
    assert found.within.way.expected.shape.world_size == 2
    assert 0.5 < found.within.probability < 0.95
    assert found.within.surer is not None
    assert found.within.surer.expected.shape.world_size == 4


def test_the_fastest_for_an_amount(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, Prices(1.0), at_most=0.12)
    assert found.at_most is not None
    assert found.at_most.way.expected.shape.world_size == 2  # 396 device-seconds at 1 an hour cost 0.11
    assert measured_outlook(tmp_path, Prices(), at_most=0.12).at_most is None


def test_limits_that_nothing_keeps_name_the_nearest(tmp_path: Path) -> None:
    found = measured_outlook(tmp_path, Prices(1.0), within_s=10.0, at_most=0.01)
    for limited, size in ((found.within, 4), (found.at_most, 1)):
        assert limited is not None
        assert not limited.keeps
        assert limited.way.expected.shape.world_size == size
        assert limited.probability < 0.01


def test_devices_are_worth_it_while_each_brings_half_of_one(tmp_path: Path) -> None:
    (worth,) = measured_outlook(tmp_path, Prices()).worth
    assert worth.fewest.expected.shape.world_size == 1
    assert worth.way.expected.shape.world_size == 4
    assert worth.speedup.value == pytest.approx(4 * 0.100 / 0.130)
    assert worth.further is not None
    assert worth.further.expected.shape.world_size == 8
    rates = {size: size / time_s for size, time_s in TIMES_S.items()}
    assert worth.returns == pytest.approx((rates[8] - rates[4]) / 4 / rates[1])


def test_probability_by_the_logarithm() -> None:
    assert probability_of_at_most(of_log(0.0, 0.196, 9), 1.0) == pytest.approx(0.5)
    assert probability_of_at_most(of_log(0.0, 0.196, 9), 1.2214) == pytest.approx(0.977, abs=0.001)
    certain = Estimate(2.0, 2.0, 2.0, 1)
    assert (probability_of_at_most(certain, 2.0), probability_of_at_most(certain, 1.9)) == (1.0, 0.0)


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
    found = outlook(forecast(group, shapes_of((16,), 16)), works(50_000, 10), Prices(1.5))
    for way, scaling, size in zip(found.ways, found.scalings, sizes, strict=False):
        assert scaling.speedup is not None
        assert scaling.efficiency is not None
        assert way.run.money is not None
        if size > 1:
            assert scaling.speedup.value == pytest.approx(figures["speedup", size], abs=0.011)
            assert scaling.efficiency.value == pytest.approx(figures["efficiency", size], abs=0.006)
            assert way.run.money.value == pytest.approx(figures["cost", size], abs=0.006)
        else:
            assert way.run.money.value == pytest.approx(0.91, abs=0.001)
    (worth,) = found.worth
    assert worth.way.expected.shape.world_size == 8
    assert worth.further is not None  # sixteen are predicted to bring less than half a device each
    assert worth.further.expected.shape.world_size == 16


def test_002_alone_cannot_say_what_more_devices_bring(tmp_path: Path) -> None:
    """One device was measured, two were projected: that is no basis for 16."""
    (group,) = groups(tmp_path, ["1,1,128,0.559", "1,2,128,0.313"], scaling="strong")
    found = outlook(forecast(group, shapes_of((4, 8, 16), 16)), works(50_000, 10), Prices(1.5))
    assert all(each.refused for each in found.forecast.predicted)
    assert [way.expected.shape.world_size for way in found.ways] == [1, 2]


def test_the_serial_fraction_of_two_world_sizes_is_the_report_s() -> None:
    """As f = 95% [0, 100] in predict beside 48% [10, 98] in the report of the same directory."""
    results = planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size")
    group = group_of_study(results)
    assert group is not None
    found = outlook(forecast(group, shapes_of((4,), 4)), works(), Prices())
    by_batch = {each.batch_size: each for each in found.serial_fractions}
    assert sorted(by_batch) == [8, 128]
    assert results.waterfall is not None
    of_report, of_predict = results.waterfall.serial_fraction, by_batch[128].fraction
    assert of_report is not None
    assert (of_predict.value, of_predict.low, of_predict.high) == pytest.approx(
        (of_report.value, of_report.low, of_report.high)
    )
    assert of_predict.value == pytest.approx(0.25)
    (line,) = [each for each in outlook_sentences(found, costs=False) if each.startswith("Amdahl")]
    assert "none: slower than one at batch 8 by the speed-up on 2 devices" in line
    assert "at batch 128 by the speed-up on 2 devices, more than 2 devices return less than 50%" in line


def test_the_serial_fraction_is_of_a_batch_by_its_most_devices() -> None:
    """As f = 14% [0, 64] of a fit to two batches beside 57% and 7% in the table of the same report."""
    spec = study(knobs={"batch_size": [512, 32]})
    group = group_of_study(analyse(spec, grid(spec, (1, 2, 4))[0]))
    assert group is not None
    found = outlook(forecast(group, shapes_of((8,), 4)), works(), Prices())
    assert {(each.batch_size, each.world_size) for each in found.serial_fractions} == {(32, 4), (512, 4)}
    small, large = (each.fraction.value for each in found.serial_fractions)
    assert small > 0.5
    assert large < 0.1
    slow = planted({(8,): exactly(0.3)}, "batch_size")
    group = group_of_study(slow)
    assert group is not None
    (line,) = bring_words(outlook(forecast(group, shapes_of((4,), 4)), works(), Prices()))[:1]
    assert line.startswith("Amdahl's law: f = none: slower than one at batch 8")


def test_what_is_faster_and_cheaper_is_worth_it(tmp_path: Path) -> None:
    """As 4 devices were advised where 8 of the same node were faster and cost less."""
    rows = ["1,1,100,0.100", "1,2,100,0.210", "1,4,100,0.230", "1,8,100,0.260"]
    (group,) = groups(tmp_path, rows)
    found = forecast(group, shapes_of((16,), 8))
    (by_node,) = outlook(found, works(36_000, 10), Prices(1.0, 10.0)).worth
    assert by_node.way.expected.shape.world_size == 8
    (by_device,) = outlook(found, works(36_000, 10), Prices(1.0)).worth
    assert by_device.way.expected.shape.world_size == 1
    assert by_device.further is not None  # two are no faster, eight bring the most
    assert by_device.further.expected.shape.world_size == 8
    assert by_device.returns == pytest.approx((8 * 0.100 / 0.260 - 1) / 7)


def test_what_is_refused_has_no_figures_and_one_line_answers_over_all_batches() -> None:
    """As three lines "refused" with full columns, an interval of ±1921%, and an answer for each batch."""
    group = group_of_study(planted({(128,): exactly(0.8, 0.04), (8,): exactly(0.3)}, "batch_size"))
    assert group is not None
    found = outlook(forecast(group, shapes_of((4, 8), 4)), works(), Prices(1.2))
    for row in prediction_table(found).rows:
        assert row[2:5] == ("refused", NONE, NONE)
    lines = outlook_sentences(found, costs=True)
    (answer,) = [line for line in lines if line.startswith("of all batches, for a run")]
    assert "fastest is 2 devices at batch 128 (measured)" in answer
    assert "cheapest is 1 device at batch" in answer
