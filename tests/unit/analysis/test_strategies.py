"""What analysis says of a strategy that has no DDP wrapper."""

from __future__ import annotations

import pytest

from raybench.analysis.stats.waterfall import waterfall
from tests.unit.strategies import strategy_record


def test_the_waterfall_of_fsdp_has_no_parts_that_it_does_not_have():
    found = waterfall(strategy_record("fsdp", 2))
    assert found is not None
    assert list(found.parts.present()) == ["ideal", "small_batch", "undivided"]
    assert found.notes == ("fsdp has no DDP wrapper and no buckets: what is lost is not taken apart",)
    assert sum(part.value for part in found.parts.present().values()) == pytest.approx(
        found.step_time_s.value
    )
