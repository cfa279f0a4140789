"""Throughput and speed-up over the devices: the values, the title, the axes."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.analysis.settings import MOST_SETTINGS
from raybench.records.requests import Configuration
from raybench.report.sections.scaling import draw_scaling, scaling_plot
from raybench.spec import Setting
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import exactly, grid, planted, study

pytestmark = pytest.mark.usefixtures("pictures")


def test_bars_are_the_settings_of_the_table_from_one_device_on(results: StudyResults) -> None:
    plot = scaling_plot(results)
    assert plot is not None
    assert plot.world_sizes == (1, 2)
    default = plot.settings[0]
    assert default.label == "batch 512, fp32"
    assert default.throughput[1] == results.scaling(results.curves[0][1]).throughput_samples_per_s
    assert default.ideal == (default.throughput[0].value, 2 * default.throughput[0].value)
    left, right = draw_scaling(plot).axes
    assert left.get_xlabel() == "speed-up over one device (pale: ideal)"
    assert right.get_xlabel().startswith("throughput (samples/s)")
    assert [each.get_width() for each in left.patches[:2]] == [2, default.speedup[1].value]
    assert len(right.patches) == 2 * len(plot.settings)


def test_a_title_says_where_more_devices_are_faster_and_where_slower() -> None:
    found = planted({(8,): exactly(0.3), (128,): exactly(0.8, 0.04)}, "batch_size")
    plot = scaling_plot(found)
    assert plot is not None
    assert plot.title == "2 devices are faster than one at batch 128 and slower than one at batch 8"
    one = scaling_plot(planted({(32,): exactly(0.8)}, "batch_size"))
    assert one is not None
    assert one.title == "2 devices train 1.60 times as fast as one"
    slow = scaling_plot(planted({(8,): exactly(0.3), (16,): exactly(0.4)}, "batch_size"))
    assert slow is not None
    assert slow.title == "2 devices are slower than one at every setting shown"


def test_more_settings_than_a_plot_holds_are_left_out_and_the_default_stays(wide: StudyResults) -> None:
    plot = scaling_plot(wide)
    assert plot is not None
    assert len(plot.settings) == MOST_SETTINGS == len(wide.settings)
    assert wide.headline is not None
    assert wide.settings[0].main.record.trial_id == wide.headline.trial_id


def test_three_numbers_of_devices_are_lines_of_throughput_and_speed_up() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return exactly({1: 1.0, 2: 0.9, 4: 0.8}[config.world_size])

    spec = study(knobs={"batch_size": [32]})
    plot = scaling_plot(analyse(spec, grid(spec, (1, 2, 4), FakeRunner(costs, QUIET))[0]))
    assert plot is not None
    left, right = draw_scaling(plot).axes
    assert left.get_ylabel() == "throughput (samples/s)"
    assert right.get_ylabel() == "speed-up over one device"
    assert [each.get_text() for each in left.get_xticklabels()] == ["1", "2", "4"]
    assert plot.settings[0].speedup[-1].value == pytest.approx(3.2)
