"""What all tests with Ray share: a test that fails leaves nothing running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.commands import Command


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """A command that a failed test no longer waits for would take the cores from all tests after it."""
    yield
    Command.end_all()
