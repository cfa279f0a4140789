"""The fake runner does what a runner does."""

from __future__ import annotations

import pytest

from raybench.records.record import State
from raybench.records.requests import TrialRequest
from tests.support import faulty
from tests.support.contract_of_a_runner import ContractOfARunner
from tests.support.planted import FakeRunner


def raises(request: TrialRequest) -> tuple[State, str] | None:
    is_planted = request.config.setting.batch_size == faulty.RAISES
    return ("crashed", "rank 1: ValueError: planted in the user's model") if is_planted else None


@pytest.fixture(scope="class")
def runner() -> FakeRunner:
    return FakeRunner(fail=raises)


class TestFake(ContractOfARunner):
    pass
