"""What Ray Train is handed of a run on CPUs: as Ray's own, and without torch."""

from __future__ import annotations

import copyreg
from pathlib import Path
from typing import Any

import pytest
import ray.train.torch
import torch
from ray import cloudpickle
from ray.train.torch import TorchConfig
from torch.torch_version import TorchVersion

from raybench.launch import worker_group
from raybench.launch.gloo import GlooConfig, send_version_as_text, serve
from raybench.launch.worker_group import WorkerGroup
from raybench.machine.host import DeviceKind, WorkerNeeds


def test_rays_page_of_the_run_shows_what_it_shows_of_rays_own_configuration() -> None:
    rays = TorchConfig(backend="gloo")
    assert GlooConfig().to_dict() == rays.to_dict()
    assert GlooConfig().framework == rays.framework.value


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rays_own_group_is_gloos_on_gpus_too(
    device: DeviceKind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What travels by NCCL has groups of its own."""
    monkeypatch.setattr(ray.train.torch, "TorchTrainer", lambda serve, **options: options)
    monkeypatch.setattr(worker_group, "_on_loopback", dict)
    group = object.__new__(WorkerGroup)
    vars(group).update(
        _needs=WorkerNeeds(device, 1), _mailbox=None, _name="mine", _nodes=(), _storage=tmp_path
    )
    options: Any = group._trainer(2, {})
    assert options["torch_config"].backend == "gloo"
    assert options["scaling_config"].use_gpu is (device == "cuda")


def test_who_unpickles_it_does_not_import_torch() -> None:
    config = GlooConfig()
    assert b"torch" not in cloudpickle.dumps((config, config.backend_cls, serve))
    assert b"torch" in cloudpickle.dumps(TorchConfig(backend="gloo"))


def test_torchs_version_travels_as_text() -> None:
    assert b"TorchVersion" in cloudpickle.dumps(torch.__version__)
    send_version_as_text()
    try:
        sent = cloudpickle.dumps(torch.__version__)
    finally:
        copyreg.dispatch_table.pop(TorchVersion)
    assert b"TorchVersion" not in sent
    assert cloudpickle.loads(sent) == str(torch.__version__)
