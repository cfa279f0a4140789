"""Throughput and speed-up over the devices: the values, the title, the axes."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex

from raybench.analysis.results import StudyResults
from raybench.analysis.settings import MOST_SETTINGS
from raybench.records.requests import Configuration
from raybench.report.sections.scaling import ONE_DEVICE, draw_scaling, plotted_settings, seen_words
from raybench.spec.knobs import Setting
from tests.support.analysis import analyse
from tests.support.planted import QUIET, FakeRunner, StepCosts
from tests.unit.studies import exactly, grid, planted, study

pytestmark = pytest.mark.usefixtures("pictures")


def test_bars_are_the_settings_of_the_table_from_one_device_on(results: StudyResults) -> None:
    settings = plotted_settings(results)
    words, default = settings[0]
    assert words == "batch 512, fp32"
    assert [point.world_size for point in default.points] == [1, 2]
    assert default.points[1].scaling == results.scaling(results.headline)
    figure = draw_scaling(settings)
    assert figure is not None
    left, right = figure.axes
    assert left.get_xlabel() == "speed-up over one device (pale: ideal)"
    assert right.get_xlabel().startswith("throughput (samples/s)")
    assert [each.get_width() for each in left.patches[:2]] == [2, default.main.scaling.speedup.value]
    assert len(right.patches) == 2 * len(settings)


def test_a_title_says_where_more_devices_are_faster_and_where_slower() -> None:
    found = planted({(8,): exactly(0.3), (128,): exactly(0.8, 0.04)}, "batch_size")
    words = seen_words(plotted_settings(found))
    assert words == "2 devices are faster than one at batch 128 and slower than one at batch 8"
    one = plotted_settings(planted({(32,): exactly(0.8)}, "batch_size"))
    assert seen_words(one) == "2 devices train 1.60 times as fast as one"
    slow = plotted_settings(planted({(8,): exactly(0.3), (16,): exactly(0.4)}, "batch_size"))
    assert seen_words(slow) == "2 devices are slower than one at every setting shown"


def test_more_settings_than_a_plot_holds_are_left_out_and_the_default_stays(wide: StudyResults) -> None:
    assert len(plotted_settings(wide)) == MOST_SETTINGS == len(wide.settings)
    assert wide.headline is not None
    assert wide.settings[0].main.record.trial_id == wide.headline.trial_id


def test_three_numbers_of_devices_are_lines_of_throughput_and_speed_up() -> None:
    def costs(config: Configuration, setting: Setting) -> StepCosts:
        return exactly({1: 1.0, 2: 0.9, 4: 0.8}[config.world_size])

    spec = study(knobs={"batch_size": [32]})
    settings = plotted_settings(analyse(spec, grid(spec, (1, 2, 4), FakeRunner(costs, QUIET))[0]))
    figure = draw_scaling(settings)
    assert figure is not None
    left, right = figure.axes
    assert left.get_ylabel() == "throughput (samples/s)"
    assert right.get_ylabel() == "speed-up over one device"
    assert [each.get_text() for each in left.get_xticklabels()] == ["1", "2", "4"]
    assert list(right.containers[0][0].get_ydata()) == pytest.approx([1.0, 1.8, 3.2])
    assert list(left.lines[0].get_ydata()[1:] / left.lines[0].get_ydata()[0]) == [2, 4]  # the ideal


def test_the_colour_of_one_device_is_of_no_more() -> None:
    costs = StepCosts(plain_s=0.01, exposed_s=0.001, missing={"plain": "out of memory"})
    spec = study(scaling={"world_sizes": [2, 4]}, knobs={"batch_size": [32]})
    settings = plotted_settings(analyse(spec, grid(spec, (2, 4), FakeRunner(lambda *_: costs, QUIET))[0]))
    figure = draw_scaling(settings)
    assert figure is not None
    colors = [to_hex(each.get_facecolor()) for each in figure.axes[1].patches]
    assert len(colors) == 2
    assert to_hex(ONE_DEVICE) not in colors
