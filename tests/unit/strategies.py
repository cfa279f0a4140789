"""Records of several strategies, each with its losses beside one device's, and the study that they are of."""

from __future__ import annotations

from raybench.records.record import TrialRecord
from raybench.records.results import LossParity
from raybench.spec.knobs import Setting
from tests.support.planted import StepCosts
from tests.unit.studies import measured, study

COSTS = StepCosts(plain_s=0.010, base_s=0.020, exposed_s=0.002)
STUDY = study(knobs={"strategy": ["single", "ddp", "fsdp"], "batch_size": 64}, scaling={"mode": "strong"})


def strategy_record(
    strategy: str,
    size: int,
    *,
    off: float | None = 0.0,
    gradient: float | None = None,
    **knobs: object,
) -> TrialRecord:
    """At a global batch of 64; ``off`` is added to one of the losses, with None it is not finite."""
    variants = ("plain",) if size == 1 else ("base", "plain", "ddp")
    setting = Setting.model_validate({"strategy": strategy, "batch_size": 64} | knobs)
    made = measured(COSTS, setting=setting, world_size=size, scaling="strong", variants=variants)
    assert made.steps is not None
    parity = None
    if size > 1:
        parity = LossParity(
            samples_per_step=64,
            losses=(2.0, None if off is None else 1.5 + off, 1.0),
            reference_losses=(2.0, 1.5, 1.0),
            gradient_difference=gradient,
        )
    result = made.steps.model_copy(update={"parity": parity})
    return made.model_copy(update={"result": result})
