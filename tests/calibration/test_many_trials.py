"""A report of very many trials takes calls in proportion to them."""

from __future__ import annotations

import pytest

from tests.unit.report.test_many_trials import check_growth


@pytest.mark.long
def test_work_grows_with_the_number_of_trials() -> None:
    check_growth(550, 1650)
