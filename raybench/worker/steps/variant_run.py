"""How one variant is run on one rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from raybench.records.requests import Variant
from raybench.worker.batches import Batches
from raybench.worker.communicators import Team
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper


@dataclass(frozen=True)
class VariantRun:
    """How a variant is run on this rank."""

    variant: Variant
    step: Callable[[], None]
    activate: Callable[[], None] = lambda: None
    loss: Callable[[], torch.Tensor | None] = lambda: None
    one_rank: bool = False  # on one rank at a time, which changes from round to round
    leader_only: bool = False  # the leader's process drives every device, the other ranks wait
    independent: bool = False  # on all ranks, which do not wait for each other
    batches: Batches | None = None  # that a step takes; None: it takes none
    batches_per_step: int = 1
    # weights and optimizer state, where the ranks' may differ and have to be made equal before a block
    replicated: Callable[[], list[torch.Tensor]] | None = None

    @property
    def changes_weights(self) -> bool:
        """Whether ranks hold different weights afterwards."""
        return self.one_rank or self.independent


def measured_run(models: StrategyModels, team: Team) -> VariantRun:
    """What is measured: the bare model on one device, under its strategy on several. A collective call."""
    return plain_run(models) if team.size == 1 else strategy_run("synced", models, team)


def plain_run(models: StrategyModels) -> VariantRun:
    """One device alone, without a wrapper."""
    return bare_run("plain", models, models.bare, one_rank=True)


def bare_run(
    variant: Variant,
    models: StrategyModels,
    stepper: Stepper,
    *,
    one_rank: bool = False,
    independent: bool = False,
) -> VariantRun:
    """Without communication, by ``stepper`` of ``models``."""
    return VariantRun(
        variant,
        stepper.step,
        models.activate,
        lambda: stepper.loss,
        one_rank=one_rank,
        independent=independent,
        batches=stepper.batches,
        batches_per_step=stepper.batches_per_step,
    )


def strategy_run(variant: Variant, models: StrategyModels, team: Team) -> VariantRun:
    """The model under its strategy. A collective call."""
    stepper, strategy = models.wrap(team), models.setting.strategy
    leader_only = strategy == "dp"
    return VariantRun(
        variant,
        stepper.step if team.leads or not leader_only else lambda: None,
        models.activate,
        lambda: stepper.loss,
        leader_only=leader_only,
        batches=stepper.batches,
        batches_per_step=stepper.batches_per_step,
        # dp's weights are on the leader only, and every rank of FSDP has shards of its own
        replicated=stepper.tensors if strategy == "ddp" else None,
    )
