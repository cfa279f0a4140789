"""The runner over forked ranks does what a runner does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raybench.launch.cluster import Cluster
from raybench.machine.host import WorkerNeeds
from tests.support import budget
from tests.support.contract_of_a_runner import ContractOfARunner
from tests.support.ranks_runner import RanksRunner


@pytest.fixture(scope="class")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RanksRunner]:
    budget.took(budget.STUDIES)
    storage: Path = tmp_path_factory.mktemp("storage")
    runner = RanksRunner(Cluster(), needs=WorkerNeeds("cpu", 1), storage=storage)
    yield runner
    runner.close()


class TestRanks(ContractOfARunner):
    pass
