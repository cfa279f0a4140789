"""What all studies over ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT_S = 900  # more than all that a test waits for, each with a message of its own


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(LIMIT_S))
