"""How long the first step of each rank alone took, which is no part of making the models."""

from __future__ import annotations

from typing import Any, cast

import pytest

from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.group_cache import GroupCache
from raybench.worker.steps.setup import TrialModels, _Tried
from tests.unit.studies import config


class Planted:
    """The leader of three ranks, as it hears of the others' first steps."""

    rank, leads = 0, True

    def __init__(self, *others_s: float) -> None:
        self._others_s = others_s

    def gather(self, item: Any) -> list[Any]:
        return [item, *self._others_s]

    def agree(self, failure: BaseException | None) -> None:
        assert failure is None


@pytest.mark.parametrize(
    ("own_s", "others_s", "first_s", "later_s"),
    [(2.0, (60.0, 50.0), 62.0, 60.0), (9.0, (1.0, 3.0), 12.0, 9.0), (4.0, (), 4.0, 4.0)],
)
def test_the_slowest_of_the_others_counts_beside_the_leader_that_went_first(
    monkeypatch: pytest.MonkeyPatch, own_s: float, others_s: tuple[float, ...], first_s: float, later_s: float
) -> None:
    """The others compile for a minute: a step, as the leader's was; not the making of models."""
    monkeypatch.setattr(TrialModels, "_try_alone", lambda self, first_step: _Tried(own_s))
    cache, team = GroupCache(), cast(Team, Planted(*others_s))

    def stepped_s() -> float:
        models = TrialModels(config(world_size=3), team, cast(Device, None), cache)
        return models.set_up(lambda models: None)

    assert stepped_s() == first_s
    assert stepped_s() == later_s  # of the same workload: all at once
