"""What the replayed transfers hold, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from raybench.worker.steps.replay import Replay
from raybench.worker.strategies.ddp import Communication


def test_what_powersgd_leaves_out_of_a_step_is_held_in_its_own_blocks_alone():
    """A second set of gradients: its own state's, and what DDP's has is kept."""
    real, replayed = (SimpleNamespace(error_dict={}) for _ in range(2))

    def hook(state, bucket):
        state.error_dict[bucket.index()] = bucket.buffer().clone()
        sent = torch.futures.Future[Any]()
        sent.set_result(bucket.buffer())
        return sent

    communication = Communication(hook, real, own=lambda: (replayed, hook))
    hook(real, SimpleNamespace(index=lambda: 0, buffer=lambda: torch.zeros(4)))
    communication.calls[0] = 2  # steps of DDP until now
    team: Any = SimpleNamespace(data=SimpleNamespace())
    replay = Replay((16, 32), team, torch.device("cpu"), communication)
    replay.activate()
    assert sorted(replayed.error_dict) == [0, 1]
    replay.release()
    assert replayed.error_dict == {}
    replay.activate()
    replay.step()
    assert sorted(replayed.error_dict) == [0, 1]
    assert sorted(real.error_dict) == [0]
