"""What a workload sets for the whole process is put back, and said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from raybench.worker.torch_state import TorchState


def _set(module: object, name: str, value: object) -> None:
    setattr(module, name, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: torch.set_grad_enabled(False), "grad enabled at False"),
        (lambda: torch.set_default_dtype(torch.float64), "default dtype at torch.float64"),
        (lambda: torch.use_deterministic_algorithms(True), "deterministic algorithms at True"),
        (lambda: _set(torch.backends.cudnn, "deterministic", True), "cudnn deterministic at True"),
        (lambda: _set(torch.backends.cudnn, "enabled", False), "cudnn enabled at False"),
        (lambda: torch.backends.cuda.enable_flash_sdp(False), "flash attention at False"),
        (lambda: torch.backends.cuda.enable_math_sdp(False), "math attention at False"),
    ],
)
def test_it_is_put_back(change: Callable[[], None], words: str) -> None:
    before = TorchState.now()
    change()
    (told,) = before.put_back()
    assert told.startswith(f"the workload left {words}")
    assert TorchState.now() == before


def test_nothing_changed_is_nothing_said() -> None:
    assert TorchState.now().put_back() == ()
