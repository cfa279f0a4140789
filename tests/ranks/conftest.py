"""The ranks that modules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raybench.records.messages import Outcome
from tests.ranks.own_scripts import served_in_turn
from tests.ranks.ranks import BLOCK_S, Ranks
from tests.support.ranks_runner import BRIEF_BLOCK_S


@pytest.fixture(scope="module", autouse=True)
def brief_blocks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Blocks of steps are as long as they are only where a module measures exactly, and so runs alone."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("alone") is None:
            patch.setenv(BLOCK_S, str(BRIEF_BLOCK_S))
        yield


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
