"""What a workload sets for the whole process is put back, and said."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

import pytest
import torch

from raybench.worker.process_state import ProcessState


def _set(module: object, name: str, value: object) -> None:
    setattr(module, name, value)


def _open_files(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: torch.set_grad_enabled(False), "grad enabled at False"),
        (lambda: torch.set_default_dtype(torch.float64), "default dtype at torch.float64"),
        (lambda: torch.use_deterministic_algorithms(True), "deterministic algorithms at True"),
        (lambda: _set(torch.backends.cudnn, "deterministic", True), "cudnn deterministic at True"),
        (lambda: _set(torch.backends.cudnn, "enabled", False), "cudnn enabled at False"),
        (lambda: torch.backends.cuda.enable_flash_sdp(False), "flash attention at False"),
        (lambda: sys.setrecursionlimit(sys.getrecursionlimit() - 100), "recursion limit at "),
        (lambda: _open_files(64), "open files limit at 64"),
        (lambda: torch.backends.cuda.enable_math_sdp(False), "math attention at False"),
    ],
)
def test_it_is_put_back(change: Callable[[], None], words: str) -> None:
    before = ProcessState.now()
    change()
    (told,) = before.put_back()
    assert told.startswith(f"the workload left {words}")
    assert ProcessState.now() == before


def test_a_limit_that_was_raised_stays() -> None:
    """As a module does when it is imported, once for all trials of its worker."""
    before, limit = ProcessState.now(), sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(limit + 1000)
        assert before.put_back() == ()
        assert sys.getrecursionlimit() == limit + 1000
    finally:
        sys.setrecursionlimit(limit)


def test_nothing_changed_is_nothing_said() -> None:
    assert ProcessState.now().put_back() == ()
