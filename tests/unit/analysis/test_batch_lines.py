"""Throughput over the devices for every batch, with Amdahl's law."""

from __future__ import annotations

import pytest

from raybench.analysis import analyse
from raybench.analysis.batch_lines import amdahl_speedup
from tests.support.planted import FakeRunner
from tests.unit.studies import exactly, grid, planted, study


def test_lines_of_a_batch_start_on_one_device_of_the_same_rounds() -> None:
    found = planted({(8,): exactly(0.3), (128,): exactly(0.8, 0.04)}, "batch_size")
    small, large = found.batch_lines
    assert (small.batch_size, large.batch_size) == (8, 128)
    assert [point.world_size for point in large.points] == [1, 2]
    assert large.points[0].throughput_samples_per_s.value == pytest.approx(128 / 0.04)
    assert large.points[1].speedup.value == pytest.approx(1.6)
    fraction = large.points[1].serial_fraction
    assert fraction is not None
    assert fraction.value == pytest.approx(0.25)  # (1/1.6 - 1/2) / (1 - 1/2)
    assert amdahl_speedup(0.05, 8) == pytest.approx(5.926, abs=1e-3)


def test_a_line_of_several_starts_says_so_in_every_point() -> None:
    """Intervals for all at once are widened by the degrees of freedom of the starts."""
    spec = study(knobs={"batch_size": [8, 128]}, measure={"starts": 3})
    for line in analyse(spec, grid(spec, (1, 2), FakeRunner(seed=3))[0]).batch_lines:
        one, two = line.points
        fraction = two.serial_fraction
        assert fraction is not None
        parts = (
            one.throughput_samples_per_s,
            one.speedup,
            two.throughput_samples_per_s,
            two.speedup,
            fraction,
        )
        assert [part.starts for part in parts] == [3] * 5
