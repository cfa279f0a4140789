"""Ranks that are alike are seldom told apart."""

from __future__ import annotations

import pytest

from tests.unit.analysis.findings.test_evenness import claims_of


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_that_are_alike_have_no_straggler(ranks: int) -> None:
    assert claims_of(ranks, 300) <= 0.05 * 300
