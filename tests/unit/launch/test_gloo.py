"""What Ray Train is handed of a run on CPUs: as Ray's own, and without torch."""

from __future__ import annotations

import copyreg

import torch
from ray import cloudpickle
from ray.train.torch import TorchConfig
from torch.torch_version import TorchVersion

from raybench.launch.gloo import GlooConfig, send_version_as_text, serve


def test_rays_page_of_the_run_shows_what_it_shows_of_rays_own_configuration() -> None:
    rays = TorchConfig(backend="gloo")
    assert GlooConfig().to_dict() == rays.to_dict()
    assert GlooConfig().framework == rays.framework.value


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
