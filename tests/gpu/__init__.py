"""What only a GPU can show: ``pytest -m gpu tests/gpu``. Needs torch, and neither Ray nor Optuna."""

from __future__ import annotations

import pytest
import torch


def needs_gpus(number: int) -> list[pytest.MarkDecorator]:
    """The marks of a module or test that needs so many."""
    found = torch.cuda.device_count()
    return [
        pytest.mark.gpu,
        pytest.mark.skipif(found < number, reason=f"needs a GPU for each of {number} ranks, found {found}"),
    ]
