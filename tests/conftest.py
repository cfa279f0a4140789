"""What all layers share: where the real data is, and a clean environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real data sets, or a skip with the reason."""
    for place in (os.environ.get("RAYBENCH_DATA"), ROOT.parent / "shared" / "data"):
        if place and Path(place).is_dir():
            return Path(place)
    pytest.skip("no real data: set RAYBENCH_DATA to a directory with the data sets")
