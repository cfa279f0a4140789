"""What the driver calls utilisation is no evidence: no cause is claimed from it."""

from __future__ import annotations

import pytest

from tests.support.alone import findings
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import measured

PEAK = 100e12  # FLOP/s


@pytest.mark.parametrize("busy", [0.55, 0.97])
def test_a_step_far_below_the_matrix_peak_is_not_explained_by_how_busy_the_gpus_are(busy: float) -> None:
    """A kernel that waits for other ranks keeps a GPU busy; the last sample may be of another block."""
    record = measured(StepCosts(plain_s=0.010, utilization=busy), QUIET, device="cuda")
    assert record.steps is not None
    told = {"flops_per_step": 0.12 * PEAK * 0.010, "matrix_peak_flops_per_s": PEAK}
    assert findings(record.model_copy(update={"result": record.steps.model_copy(update=told)})) == []
