"""``--verify`` on gloo ranks: the cure of a planted slow loader is confirmed, a wrong one is refuted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raybench.analysis.findings import diagnose as diagnosing
from raybench.analysis.findings.finding import Finding, FindingName, Severity
from raybench.analysis.findings.verifications import Verification, Verified
from raybench.analysis.stats.statistics import Estimate
from raybench.driver import stages as verifying
from raybench.machine.host import Resources
from raybench.plan.make_plan import make_plan
from raybench.records.messages import Outcome
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest, TrialRequest
from raybench.report.sections.settings import verification_table
from raybench.worker.communicators import Communicators
from raybench.worker.group_cache import GroupCache
from tests.ranks.agreement import measured_undisturbed
from tests.ranks.ranks import Ranks
from tests.ranks.trials import BOTH, complete, serve_trial
from tests.support.analysis import analyse
from tests.support.planted import FakeRunner
from tests.unit.runs import run
from tests.unit.studies import study

pytestmark = pytest.mark.alone

READ_S, STEP_S = 0.020, 0.010  # for each batch: to read it, and to compute on it
PROMISED = 1.5
LISTED = "1e-06/1"  # a byte, then all


def serve(request: StepsRequest) -> list[Outcome]:
    communicators = Communicators("gloo")
    told = serve_trial(request, BOTH, communicators, GroupCache())
    communicators.drop_team()
    return told


class OnRanks(FakeRunner):
    """Steps are measured by two processes."""

    def __init__(self, pair: Ranks) -> None:
        super().__init__()
        self._pair = pair

    def run(self, request: TrialRequest, on_progress: Any) -> Outcome:
        assert request.kind == "steps"
        self.requests.append(request)

        def measure() -> Outcome:
            (outcome,) = self._pair.call(serve, request)[0]
            found: Outcome = outcome
            return found

        return measured_undisturbed(measure, complete)


@pytest.fixture(scope="module")
def measured(pair: Ranks) -> tuple[dict[str, Verification], list[TrialRecord], list[str]]:
    """By the knob that is changed; the records; the lines of the terminal."""
    spec = study(
        workload={
            "factory": "tests.ranks.slow_data:slow_data",
            "input": "real",
            "read_s": READ_S,
            "step_s": STEP_S,
        },
        knobs={"batch_size": 4},
        scaling={"world_sizes": [2]},
        search={"method": "grid"},
        measure={"half_width": 0.1, "max_seconds": 3, "min_rounds": 6},
    )
    real = diagnosing.diagnose_study

    def and_a_wrong_one(base: Any, confirmed: Any, *around: Any) -> Any:
        found, headline = real(base, confirmed, *around), base.headline
        wrong = Finding(
            FindingName.COSTLY_WRAPPER,
            Severity.WARNING,
            headline.trial_id,
            {},
            explains=Estimate(1e-6, 0.5e-6, 1.5e-6, 10),
            change={"static_graph": True},
            predicted=Estimate(PROMISED, 1.4, 1.6, 10),
        )
        return replace(found, first=(*found.first, wrong))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "diagnose_study", and_a_wrong_one)
        patch.setattr("raybench.analysis.results.diagnose_study", and_a_wrong_one)
        # on these ranks no list is faster: the simulator is made to propose one
        patch.setattr("raybench.analysis.simulate.what_if.best_caps", lambda _: ("default", LISTED))
        patch.setattr("raybench.analysis.simulate.what_if.ListedSizes.is_proposed", True)
        plan = make_plan(spec, Resources("cpu", 2, "a CPU"))
        _, store, _ = run(plan, OnRanks(pair), verify=True)
        results = analyse(plan.study, store.records)
    by_knob = {"+".join(each.proposal.change): each for each in results.verifications}
    return by_knob, store.records, verification_table(results).rows


@pytest.mark.promise("verify")
def test_the_cure_that_the_diagnosis_proposes_is_confirmed(measured: Any) -> None:
    found, records, rows = measured
    print(*rows, sep="\n")
    assert records[0].request.role == "scaling"
    cure = found["workers"]
    assert [each.name for each in cure.proposal.findings] == [FindingName.DATA_BOUND]
    assert cure.verdict is Verified.CONFIRMED
    assert cure.gain.gain.low > 1  # 30 ms a step become 10: several processes read as fast as it computes
    assert cure.record.study_request.anchor.workers == 0


def test_a_proposed_bucket_list_is_measured_in_the_same_rounds(measured: Any) -> None:
    found, records, rows = measured
    listed = found["bucket_cap_mb"]
    assert listed.proposal.change == {"bucket_cap_mb": LISTED}
    assert listed.gain is not None
    assert any(row[0] == "what if" for row in rows)
    default, tested = records[0].steps, listed.record.steps
    assert listed.record.study_request.anchor == records[0].config.setting
    assert {block.variant for block in tested.rounds[0].blocks} >= {"ddp", "anchor"}
    order = default.gradient_timeline.parameter_bytes
    assert tested.bucket_bytes == (order[0], sum(order[1:]))
    assert default.bucket_bytes == (sum(order),)


def test_a_wrong_one_is_refuted(measured: Any) -> None:
    found, _, _ = measured
    wrong = found["static_graph"]
    assert wrong.verdict is Verified.REFUTED
    assert wrong.gain.gain.high < PROMISED - 1
