"""Rounds of messages: what the ranks tell each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybench.analysis.stats.stopping import LEAST_MEASURED
from raybench.records.results import MessageRound, StopReason
from raybench.spec.sweep import SweepMeasureSpec
from raybench.worker.collectives_trial import Case, measure
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device

ROUNDS = 8


class Told(Team):
    """The other rank is not there; ``stops``: what the leader answers, where this one is not it."""

    def __init__(self, rank: int, stops: list[StopReason | None]) -> None:
        self.ranks, self.rank, self.leads, self.size, self._stops = (0, 1), rank, rank == 0, 2, stops

    def barrier(self) -> None:
        pass

    def gather(self, item: Any) -> list[Any]:
        pytest.fail("every rank would have the rounds of all")

    def gather_on_leader(self, item: Any) -> list[Any] | None:
        return [item, item] if self.leads else None

    def from_leader(self, item: Any) -> Any:
        return item if self.leads else self._stops.pop(0)


def measured(rank: int, *stops: StopReason | None) -> list[MessageRound]:
    cases = [Case("all_reduce", 1024, lambda: None, 1.0)]  # takes no time to speak of
    request: Any = SimpleNamespace(
        config=SimpleNamespace(seed=0, device="cpu"),
        measure=SweepMeasureSpec(min_rounds=ROUNDS, max_seconds=1e-9),
    )
    return measure(request, Told(rank, [*stops]), Device(), cases, lambda progress: None)


def test_the_leader_has_the_rounds_of_all_ranks() -> None:
    rounds = measured(0)
    assert len(rounds) == LEAST_MEASURED
    assert {len(block.time_s) for each in rounds for block in each.blocks} == {2}


def test_the_others_are_told_whether_to_go_on() -> None:
    assert measured(1, None, None, "max_seconds") == []
