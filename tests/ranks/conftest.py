"""The ranks that modules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raybench.records.messages import Outcome
from tests.ranks.own_scripts import served_in_turn
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


@pytest.fixture(scope="module")
def of_scripts(request: pytest.FixtureRequest, pair: Ranks) -> dict[str, Outcome]:
    """How each script ended that a module has ASKED for."""
    return served_in_turn(pair, request.module.ASKED)
