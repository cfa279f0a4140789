"""What is looked at in a round, where a rank has not run what is measured too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybench.worker.steps.meters import BlockMeters, Use, _use

IDLE_MHZ = 345.0


@pytest.mark.parametrize(("is_gpu", "expected"), [(True, None), (False, IDLE_MHZ)])
def test_the_clock_of_a_gpu_that_another_rank_drives_is_not_taken_for_one_at_work(is_gpu, expected):
    """Of cores it is the mean over all of them, whoever works."""
    device: Any = SimpleNamespace(
        tells_utilization=is_gpu, temperature_c=lambda: 40.0, clock_mhz=lambda: IDLE_MHZ
    )
    assert BlockMeters(device, "ddp").take_round().clock_mhz == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, None), (1.0, 3.0), (2.0, 3.0)])
def test_energy_is_known_from_a_second_on(seconds: float, expected: float | None) -> None:
    """A smoke run or a short time budget leaves less, in which the counter moves a few times."""
    done = list[int]()
    device: Any = SimpleNamespace(
        moment=lambda: SimpleNamespace(synchronize=lambda: None),
        synchronize=lambda: None,
        utilization_meter=lambda cores: SimpleNamespace(after_step=lambda: None, mean=lambda: 0.5),
        energy_joules=lambda: 3.0 * len(done),
    )
    assert _use(lambda: done.append(1), 0.01, device, seconds) == Use(0.5, expected)
