"""Throughput over the devices for every batch, with Amdahl's law."""

from __future__ import annotations

import pytest

from raybench.analysis.batch_lines import amdahl_speedup
from tests.unit.studies import exactly, planted


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
