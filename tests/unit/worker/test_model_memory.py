"""How much memory a rank may take, and which models are told to be larger than that before they are made."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.spec.workloads import MLPSpec
from raybench.worker.devices.probe import DeviceProbe, MemoryRoom, memory_limits
from raybench.worker.model_memory import refuse_too_large
from raybench.workloads.mlp import MLP

GIB = 2**30
WIDE = MLP(MLPSpec(name="mlp", input_dim=8192, hidden_dim=8192, output_dim=8192, num_layers=2))
WEIGHTS_GIB = 2 * (8192 + 1) * 8192 * 4 / GIB  # 0.50


def test_ranks_of_one_host_share_what_it_has_left():
    rooms = [MemoryRoom("a", 300, 1000), MemoryRoom("a", 500, 990), MemoryRoom("b", 300, 4000)]
    assert memory_limits(rooms) == (795, 995, 4300)
    assert memory_limits([MemoryRoom("a 0", 10, 90), MemoryRoom("a 1", 20, 80)]) == (100, 100)  # two GPUs
    assert memory_limits([rooms[0], None]) is None


def test_the_peak_of_a_cpu_is_that_of_the_process_since_it_was_reset():
    probe = DeviceProbe(torch.device("cpu"))
    probe.reset_peak()
    before = probe.device_memory_bytes()
    held = torch.ones(64 * 2**20 // 4)
    peak, room = probe.device_memory_bytes(), probe.memory_room()
    del held
    assert before is not None
    assert peak is not None
    assert room is not None
    assert peak >= before + 60 * 2**20
    assert room.left_bytes > 0
    assert room.taken_bytes <= peak + 2**20


def test_a_peak_that_cannot_be_reset_is_unknown_until_it_is_passed(monkeypatch):
    probe = DeviceProbe(torch.device("cpu"))
    peaks = [500, 500, 700]
    monkeypatch.setattr("raybench.worker.devices.probe._status_bytes", lambda name: peaks.pop(0))
    monkeypatch.setattr("builtins.open", lambda *_: (_ for _ in ()).throw(PermissionError()))
    probe.reset_peak()
    assert probe.device_memory_bytes() is None
    assert probe.device_memory_bytes() == 700


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        (OptimizerSpec(), 2),
        (OptimizerSpec(momentum=0.9), 3),
        (OptimizerSpec(name="adam"), 4),
        (OptimizerSpec(name="adamw"), 4),
    ],
)
def test_a_model_larger_than_memory_is_told_with_its_numbers(optimizer, copies):
    needed = copies * WEIGHTS_GIB
    refuse_too_large(WIDE, optimizer, Setting(), 2, int(needed * 1.001 * GIB))
    words = rf"the model alone needs {needed:.2f} GiB \(weights 0.50, gradients 0.50, .*\), a rank has"
    with pytest.raises(MemoryError, match=words):
        refuse_too_large(WIDE, optimizer, Setting(), 2, int(needed * 0.999 * GIB))


def test_what_is_not_trained_has_no_gradients():
    class Frozen(MLP):
        def model(self) -> nn.Module:
            return super().model().requires_grad_(False)

    spec = MLPSpec(name="mlp", input_dim=8192, hidden_dim=8192, output_dim=8192, num_layers=2)
    refuse_too_large(Frozen(spec), OptimizerSpec(name="adam"), Setting(), 2, int(WEIGHTS_GIB * 1.001 * GIB))


def test_a_model_that_cannot_be_made_without_storage_is_not_judged():
    class Stubborn:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def model(self) -> nn.Module:
            weights = torch.ones(4)
            assert float(weights.sum()) == 4.0  # needs values
            return nn.Linear(4, 4)

        def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            return model(batch).sum()

    refuse_too_large(Stubborn(), OptimizerSpec(), Setting(), 2, 1)


def test_what_a_workload_keeps_is_not_left_without_storage():
    class Keeping:
        kept: nn.Module | None = None

        def model(self) -> nn.Module:
            if self.kept is None:
                self.kept = nn.Linear(4, 4)
            return self.kept

        def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            return model(batch).sum()

    workload = Keeping()
    refuse_too_large(workload, OptimizerSpec(), Setting(), 2, GIB)
    assert not any(parameter.is_meta for parameter in workload.model().parameters())
