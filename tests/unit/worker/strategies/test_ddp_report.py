"""What DDP is given, and which bytes travel where gradients are compressed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raybench.spec.knobs import Setting
from raybench.worker.devices.device import Device
from raybench.worker.strategies import ddp
from raybench.worker.strategies.ddp import bucket_bytes, gradient_bytes


def test_ddp_is_given_its_knobs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp, "DistributedDataParallel", lambda module, **arguments: arguments)
    team: Any = SimpleNamespace(data=None)
    switches = [name for name in ddp.FLAGS if name != "bucket_cap_mb"]
    other = dict.fromkeys(switches, True) | {"broadcast_buffers": False, "bucket_cap_mb": 50.0}
    default, changed = (
        ddp.wrap(nn.Linear(1, 1), team, setting, Device()) for setting in (Setting(), Setting(**other))
    )
    for name in switches:
        assert (default[name], changed[name]) == (False, True), name
    assert (default[ddp.SYNC_BUFFERS], changed[ddp.SYNC_BUFFERS]) == (True, False)
    assert (default["bucket_cap_mb"], changed["bucket_cap_mb"]) == (None, 50.0)


@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 1.0), (torch.float32, 0.5)])
def test_compression_saves_nothing_of_bf16(dtype: torch.dtype, share: float) -> None:
    module = nn.Linear(8, 16, dtype=dtype)
    own_bytes = sum(each.nbytes for each in module.parameters())
    wrapper = DistributedDataParallel.__new__(DistributedDataParallel)  # without a group of processes
    nn.Module.__init__(wrapper)
    wrapper.module = module
    wrapper._get_ddp_logging_data = lambda: {"bucket_sizes": str(own_bytes)}  # type: ignore[method-assign]
    for compression, expected in (("none", own_bytes), ("bf16", share * own_bytes)):
        assert (bucket_bytes(wrapper), gradient_bytes(wrapper, compression)) == ((own_bytes,), expected)
    module.requires_grad_(False)  # as a GAN freezes one of its models while the other steps
    assert gradient_bytes(wrapper, "none") == own_bytes
    assert (bucket_bytes(module), gradient_bytes(module, "none")) == ((), None)
