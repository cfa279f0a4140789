"""Ray's worker group does what a runner does: run by ``test_address.py``, on the cluster at ADDRESS."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.machine.host import WorkerNeeds
from tests.support.contract_of_a_runner import ContractOfARunner

ADDRESS = "CONTRACT_ADDRESS"


@pytest.fixture(scope="class")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroupRunner]:
    needs, cluster = WorkerNeeds("cpu", 1), Cluster(address=os.environ[ADDRESS])
    cluster.prepare(needs, tell=print)
    runner = WorkerGroupRunner(cluster, needs=needs, storage=tmp_path_factory.mktemp("storage"))
    yield runner
    runner.close()


class TestRaysGroup(ContractOfARunner):
    pass
