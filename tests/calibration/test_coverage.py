"""Predictions of studies that other laws made, and of real ones: intervals hold, errors are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.analysis.simulate.test_coverage import check_laws, check_traces

pytestmark = pytest.mark.long


def test_intervals_hold_for_laws_that_are_not_the_model() -> None:
    check_laws(studies=5)  # benchmarks/prediction.py has more, and more designs


@pytest.mark.parametrize("model", ["cifar10", "yolov3"])
def test_measured_training_at_twice_the_devices(data_dir: Path, model: str) -> None:
    check_traces(data_dir, model)
