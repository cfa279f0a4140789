"""Which larger batch is proposed: twice the batch, unless a larger one was measured or would not fit."""

from __future__ import annotations

from typing import Any

import pytest

from raybench.analysis.findings.batch import twice_the_batch
from raybench.analysis.findings.case import Case
from raybench.analysis.scaling import Fit
from raybench.spec.knobs import Setting
from tests.support.planted import QUIET, StepCosts
from tests.unit.studies import measured

COSTS = StepCosts(plain_s=0.010, exposed_s=0.005)


def case_of(*batches: int, world_size: int = 2, used_share: float | None = None) -> Case:
    """The first batch's trial among those of the others; ``used_share`` of a GPU's memory is taken."""
    device = "cpu" if used_share is None else "cuda"
    records = [
        measured(COSTS, QUIET, setting=Setting(batch_size=batch), world_size=world_size, device=device)
        for batch in batches
    ]
    first, steps = records[0], records[0].steps
    assert steps is not None
    if used_share is not None:
        told = {"device_memory_bytes": (round(100 * used_share),) * 2, "memory_limit_bytes": (100, 100)}
        first = first.model_copy(update={"result": steps.model_copy(update=told)})
    records[0] = first
    return Case(first, Fit(records), tuple(records))


@pytest.mark.parametrize(
    ("batches", "how", "expected"),
    [
        ((16,), {}, 32),
        ((16, 8), {}, 32),
        ((16, 64), {}, None),
        ((16,), {"world_size": 1}, None),
        ((16,), {"used_share": 0.4}, 32),
        ((16,), {"used_share": 0.5}, None),
    ],
    ids=["alone", "smaller", "larger", "one device", "fits", "full"],
)
def test_twice_the_batch(batches: tuple[int, ...], how: dict[str, Any], expected: int | None) -> None:
    assert twice_the_batch(case_of(*batches, **how)) == expected
