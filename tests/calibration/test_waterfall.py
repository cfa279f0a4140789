"""The intervals of the parts of a step hold what was planted."""

from __future__ import annotations

import pytest

from tests.unit.analysis.stats.test_waterfall import EVEN, LOADED, covered

pytestmark = pytest.mark.long


def test_intervals_of_the_parts_cover() -> None:
    shares = covered(EVEN, LOADED, trials=600)
    assert min(shares.values()) >= 0.92, shares
