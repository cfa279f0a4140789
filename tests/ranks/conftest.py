"""The ranks that modules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ranks.ranks import Ranks


@pytest.fixture(scope="session")
def pair() -> Iterator[Ranks]:
    """Two ranks for all modules that need no processes of their own."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Four ranks; smaller teams are made of them."""
    ranks = Ranks(4)
    yield ranks
    ranks.close()
