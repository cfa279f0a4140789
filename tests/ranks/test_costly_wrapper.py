"""What the fix of a costly wrapper saves with thousands of small parameters: copies, which need no clock."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.worker.communicators import Communicators
from raybench.worker.devices.device import Device
from raybench.worker.strategies.ddp import no_transfer, wrap
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH

PARAMETERS = 2000
SETTINGS = {
    "default": Setting(),
    "views": Setting(gradient_as_bucket_view=True),
    "batched": Setting(batched_grad_copy=True),
}


class Many(nn.Module):
    """A model of small parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ParameterList(nn.Parameter(torch.ones(2, 2)) for _ in range(PARAMETERS))

    def forward(self) -> torch.Tensor:
        """A loss of all of them."""
        return torch.stack([each.sum() for each in self.all]).sum()


def copies(names: list[str]) -> dict[str, float]:
    """On each rank: by setting, how often a backward pass copies, for each parameter; "bare" without DDP."""
    communicators, found = Communicators("gloo"), dict[str, float]()
    team = communicators.team(BOTH, 60)
    assert team is not None
    for name in ["bare", *names]:
        model: nn.Module = Many()
        if name != "bare":
            wrapper = wrap(model, team, SETTINGS[name], Device())
            wrapper.register_comm_hook(None, no_transfer)
            model = wrapper
        for _ in range(3):  # DDP rebuilds its buckets, and views begin, in the first
            model().backward()
            model.zero_grad(set_to_none=True)
        loss = model()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            loss.backward()
        found[name] = Counter(each.name for each in profile.events())["aten::copy_"] / PARAMETERS
    communicators.drop_team()
    return found


def test_views_save_the_copies_back_and_batching_saves_none_on_cpus(pair: Ranks) -> None:
    names = [name for name, setting in SETTINGS.items() if setting.fault("cpu") is None]
    for found in pair.call(copies, names):
        more = {name: found[name] - found["bare"] for name in names}
        assert more["default"] == pytest.approx(2.0, abs=0.01)  # into the buckets, and back
        assert more["views"] == pytest.approx(1.0, abs=0.01)  # as no step keeps its gradients
        if "batched" in more:
            assert more["batched"] == pytest.approx(2.0, abs=0.01)
