"""Here it is pictures that are asked for."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def drawn_here(pictures: None) -> None:
    """Every plot is drawn."""
