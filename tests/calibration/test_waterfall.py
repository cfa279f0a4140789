"""The intervals of the parts of a step hold what was planted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.planted import Noise
from tests.unit.analysis.stats.test_waterfall import ALL, covered

pytestmark = pytest.mark.long
EVEN, LOADED = replace(ALL, offset_s=(), jitter_s=0.0), Noise(block=0.02, step=0.0, preemption=0.05)


def test_intervals_of_the_parts_cover() -> None:
    shares = covered(EVEN, LOADED, trials=600)
    assert min(shares.values()) >= 0.92, shares
