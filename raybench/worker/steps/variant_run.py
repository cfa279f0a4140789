"""How one variant is run on one rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from raybench.records.requests import Variant
from raybench.worker.communicators import Team
from raybench.worker.strategies.models import Bench


@dataclass(frozen=True)
class VariantRun:
    """How a variant is run on this rank."""

    variant: Variant
    step: Callable[[], None]
    activate: Callable[[], None] = lambda: None
    loss: Callable[[], torch.Tensor | None] = lambda: None
    alone: bool = False  # on one rank at a time, which changes from round to round
    led: bool = False  # by the leader for all ranks, who sit still
    free: bool = False  # ranks do not wait for each other
    warm: int = 0  # batches that a loader may have ready after a pause
    drifting: Callable[[], list[torch.Tensor]] | None = None  # what to make the same again before the block

    @property
    def changes_weights(self) -> bool:
        """Whether ranks hold different weights afterwards."""
        return self.alone or self.free


def as_measured(bench: Bench, team: Team) -> VariantRun:
    """What a trial measures: the bare model on one device, the real thing on several. A collective call."""
    return plain(bench) if team.size == 1 else wrapped("synced", bench, team)


def plain(bench: Bench) -> VariantRun:
    """One device alone, without a wrapper."""
    bare = bench.bare
    run = VariantRun("plain", bare.step, bench.activate, lambda: bare.loss, alone=True)
    return replace(run, warm=bare.batches.warm)


def wrapped(variant: Variant, bench: Bench, team: Team) -> VariantRun:
    """The real thing of ``bench``. A collective call."""
    lane, strategy = bench.wrap(team), bench.setting.strategy
    led = strategy == "dp"
    return VariantRun(
        variant,
        lane.step if team.leads or not led else lambda: None,
        bench.activate,
        lambda: lane.loss,
        led=led,
        warm=lane.batches.warm,
        # dp's weights are on the leader only, and every rank of FSDP has shards of its own
        drifting=lane.tensors if strategy == "ddp" else None,
    )
