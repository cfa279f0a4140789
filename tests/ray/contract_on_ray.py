"""Ray's worker group does what a runner does: run by ``test_address.py``, on the cluster at ADDRESS."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from raybench.launch.cluster import Cluster
from raybench.launch.group_runner import WorkerGroupRunner
from raybench.launch.runner import TrialRunner
from raybench.machine.host import WorkerNeeds
from raybench.records.results import StepsResult
from raybench.spec.workloads import ScriptSpec
from tests.conftest import ROOT
from tests.support.contract_of_a_runner import SIZE, ContractOfARunner, run, steps

ADDRESS = "CONTRACT_ADDRESS"
SCRIPTS = ROOT / "tests" / "support" / "scripts"


@pytest.fixture(scope="class")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroupRunner]:
    needs, cluster = WorkerNeeds("cpu", 1), Cluster(address=os.environ[ADDRESS])
    cluster.prepare(needs, tell=print)
    runner = WorkerGroupRunner(cluster, needs=needs, storage=tmp_path_factory.mktemp("storage"))
    yield runner
    runner.close()


class OfScripts:
    def test_a_script_makes_its_own_group_beside_rays(self, runner: WorkerGroupRunner) -> None:
        """Its processes are children of Ray's workers, which serve on."""
        runner.start(SIZE, {})
        script = ScriptSpec(script=str(SCRIPTS / "planted.py"), args="--base-ms 5")
        outcome, _ = run(runner, steps(workload=script, variants=("local", "ddp")))
        assert outcome.state == "complete", outcome.reason
        assert isinstance(outcome.result, StepsResult)
        assert {block.variant for each in outcome.result.rounds for block in each.blocks} == {"local", "ddp"}
        assert outcome.result.samples_per_step == SIZE * 8


class TestRaysGroup(ContractOfARunner, OfScripts):
    """The script's trial is the first: tests of bases are run from the last base on."""

    def test_another_size_other_variables_and_new_processes_are_another_group(
        self, runner: TrialRunner
    ) -> None:
        """A group costs half a minute here: what changes in turn over ranks changes at once."""
        first = runner.start(SIZE, {})
        other = runner.start(1, {"PLANTED": "a"})
        anew = runner.start(1, {"PLANTED": "a"}, anew=True)
        assert first.number < other.number < anew.number
        assert [len(each.members) for each in (first, other, anew)] == [SIZE, 1, 1]
        assert runner.start(1, {"PLANTED": "a"}).number == anew.number
